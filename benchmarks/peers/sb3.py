"""PPO of Stable-Baselines3 on a task, with the settings that its zoo publishes: ``python -m benchmarks.peers.sb3 TASK SEED``.

The settings are those of ``hyperparams/ppo.yml`` in rl-baselines3-zoo. It has none for tasks of Herd's own, which get PPO's defaults
with eight environments, and sb3-contrib's MaskablePPO where there is a mask.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import torch
from sb3_contrib import MaskablePPO
from stable_baselines3 import PPO
from stable_baselines3.common.atari_wrappers import AtariWrapper
from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack, VecNormalize

from benchmarks.peers import tasks

if TYPE_CHECKING:
    from collections.abc import Callable


def linear(start: float) -> Callable[[float], float]:
    """Return a schedule that falls from ``start`` to 0."""
    return lambda remaining: remaining * start


_LANDER = {"n_envs": 16, "n_steps": 1024, "batch_size": 64, "gae_lambda": 0.98, "gamma": 0.999, "n_epochs": 4, "ent_coef": 0.01}
_ATARI = {
    "n_envs": 8,
    "n_steps": 128,
    "n_epochs": 4,
    "batch_size": 256,
    "n_timesteps": 10_000_000,  # both schedules end then
    "learning_rate": linear(2.5e-4),
    "clip_range": linear(0.1),
    "vf_coef": 0.5,
    "ent_coef": 0.01,
}
SETTINGS: dict[str, dict[str, Any]] = {
    "cartpole": {
        "n_envs": 8,
        "n_steps": 32,
        "batch_size": 256,
        "gae_lambda": 0.8,
        "gamma": 0.98,
        "n_epochs": 20,
        "learning_rate": linear(1e-3),
        "clip_range": linear(0.2),
    },
    "lunarlander": _LANDER,
    "lunarlander_continuous": _LANDER,
    "pendulum": {
        "n_envs": 4,
        "n_steps": 1024,
        "gae_lambda": 0.95,
        "gamma": 0.9,
        "n_epochs": 10,
        "learning_rate": 1e-3,
        "clip_range": 0.2,
        "use_sde": True,
        "sde_sample_freq": 4,
    },
    "halfcheetah": {
        "n_envs": 1,
        "normalize": True,
        "batch_size": 64,
        "n_steps": 512,
        "gamma": 0.98,
        "learning_rate": 2.0633e-05,
        "ent_coef": 0.000401762,
        "clip_range": 0.1,
        "n_epochs": 20,
        "gae_lambda": 0.92,
        "max_grad_norm": 0.8,
        "vf_coef": 0.58096,
        "policy_kwargs": {
            "log_std_init": -2,
            "ortho_init": False,
            "activation_fn": torch.nn.ReLU,
            "net_arch": {"pi": [256, 256], "vf": [256, 256]},
        },
    },
    "dials": {"n_envs": 8},
    "dials_masked": {"n_envs": 8},
    "pong": _ATARI,
    "breakout": _ATARI,
}


def main(task: str, seed: int) -> None:
    """Train; the environments write down their episodes."""
    settings, make, policy = dict(SETTINGS[task]), getattr(tasks, task), "MlpPolicy"
    copies, steps = settings.pop("n_envs"), settings.pop("n_timesteps", tasks.TASKS[task].frames)
    if tasks.TASKS[task].game:
        policy = "CnnPolicy"
        environments: Any = VecFrameStack(DummyVecEnv([lambda: AtariWrapper(make())] * copies), 4)
    else:
        torch.set_num_threads(1)  # the networks are too small for more
        environments = DummyVecEnv([make] * copies)
    if settings.pop("normalize", False):
        environments = VecNormalize(environments, gamma=settings["gamma"])
    algorithm = MaskablePPO if task == "dials_masked" else PPO
    algorithm(policy, environments, seed=seed, device="cpu", **settings).learn(steps)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
