"""APPO of Sample Factory on a task, with settings that it publishes: ``python -m benchmarks.peers.appo TASK SEED FOLDER``.

Actions that are numbers take the settings of its MuJoCo example, others those of its CartPole example.
"""

from __future__ import annotations

import sys
from typing import Any

from gymnasium import spaces
from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
from sample_factory.envs.env_utils import register_env
from sample_factory.train import run_rl
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


def environment(name: str, _cfg: Any = None, _env_config: Any = None, render_mode: str | None = None) -> Any:
    """Return the environment of a task; Sample Factory knows several discrete actions as a tuple."""
    del render_mode
    env = getattr(tasks, name)()
    if isinstance(env.action_space, spaces.MultiDiscrete):
        env.action_space = spaces.Tuple([spaces.Discrete(int(n)) for n in env.action_space.nvec])
    return env


def main(task: str, seed: int, folder: str) -> None:
    """Train; the environments write down their episodes."""
    register_env(task, environment)
    words = ["--algo=APPO", f"--env={task}", f"--seed={seed}", "--device=cpu", f"--train_dir={folder}", "--experiment=run"]
    words += [f"--train_for_env_steps={tasks.TASKS[task].frames}", "--save_every_sec=600"]
    parser, _ = parse_sf_args(words)
    space = environment(task).action_space
    if isinstance(space, spaces.Box):
        mujoco_override_defaults(task, parser)
        parser.set_defaults(num_workers=2, num_envs_per_worker=8)  # its 8 workers are for 8 cores
    else:
        parser.set_defaults(**_GYM)
    sys.exit(run_rl(parse_full_cfg(parser, words)))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
