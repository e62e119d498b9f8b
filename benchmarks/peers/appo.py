"""APPO of Sample Factory on a task, with settings that it publishes: ``python -m benchmarks.peers.appo TASK SEED FOLDER``.

Games of Atari take the settings of its Atari example, other actions that are numbers those of its MuJoCo example, and the rest those of its
CartPole example.
"""

from __future__ import annotations

import sys
from typing import Any

import gymnasium
from gymnasium import spaces
from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
from sample_factory.envs.env_utils import register_env
from sample_factory.train import run_rl
from sf_examples.atari import atari_utils
from sf_examples.atari.atari_params import atari_override_defaults
from sf_examples.mujoco.mujoco_params import mujoco_override_defaults

from benchmarks.peers import tasks

_GYM = {
    "use_rnn": False,
    "num_workers": 2,  # one for each core
    "num_envs_per_worker": 20,
    "policy_workers_per_policy": 2,
    "recurrence": 1,
    "with_vtrace": False,
    "batch_size": 512,
    "reward_scale": 0.1,
}


def environment(name: str, cfg: Any = None, _env_config: Any = None, render_mode: str | None = None) -> Any:
    """Return the environment of a task; Sample Factory knows several discrete actions as a tuple."""
    if tasks.TASKS[name].game:
        return _atari(name, cfg)
    del render_mode
    env = getattr(tasks, name)()
    if isinstance(env.action_space, spaces.MultiDiscrete):
        env.action_space = spaces.Tuple([spaces.Discrete(int(n)) for n in env.action_space.nvec])
    return env


def _atari(name: str, cfg: Any) -> Any:
    """Return a game in the preprocessing of its Atari example, which asks gymnasium for it by a name."""
    registered = f"peers/{name}"
    if registered not in gymnasium.registry:
        gymnasium.register(registered, getattr(tasks, tasks.TASKS[name].game or ""), order_enforce=False, disable_env_checker=True)
        atari_utils.ATARI_ENVS.append(atari_utils.AtariSpec(name, registered))
    return atari_utils.make_atari_env(name, cfg, None)


def main(task: str, seed: int, folder: str) -> None:
    """Train; the environments write down their episodes."""
    register_env(task, environment)
    words = ["--algo=APPO", f"--env={task}", f"--seed={seed}", "--device=cpu", f"--train_dir={folder}", "--experiment=run"]
    words += [f"--train_for_env_steps={tasks.TASKS[task].frames}", "--save_every_sec=600"]
    parser, _ = parse_sf_args(words)
    if tasks.TASKS[task].game:
        atari_override_defaults(task, parser)
        if tasks.TASKS[task].deep:
            parser.set_defaults(encoder_conv_architecture="resnet_impala")
    elif isinstance(environment(task).action_space, spaces.Box):
        mujoco_override_defaults(task, parser)
        parser.set_defaults(num_workers=2, num_envs_per_worker=8)  # its 8 workers are for 8 cores
    else:
        parser.set_defaults(**_GYM)
    sys.exit(run_rl(parse_full_cfg(parser, words)))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
