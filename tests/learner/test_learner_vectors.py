"""Actor and learner in one process learn from vectors. Seeds are fixed, so the machine's speed does not matter."""

from __future__ import annotations

from collections import deque
from pathlib import Path

import numpy as np
import torch
from herd_actor.loop import Group

from herd.components.suites.api import Transition
from herd.config.loading import load_settings
from tests.acting.playing import local_policy, make_group, play_unroll
from tests.training.small_runs import buffer_of, trainer_of

MAX_FRAMES = 100_000
"""More than twice the number that is needed."""


def test_the_return_of_cartpole_triples_within_a_bounded_training() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(1)
    settings = load_settings([Path("cartpole")], [], {})
    trainer = trainer_of(settings)
    policy = local_policy(trainer)
    group = make_group(settings, settings.learner.batch_size)
    before: list[float] = []
    latest: deque[float] = deque(maxlen=100)
    frames = 0
    while frames < MAX_FRAMES:
        returns: list[float] = []

        def note(_: Group, step: Transition, returns: list[float] = returns) -> None:
            returns.extend(game.episode_return for game in step.finished)

        unroll = play_unroll(settings, [group], policy, on_step=note)
        (before if len(before) < 50 else latest).extend(returns)
        if len(latest) == latest.maxlen and np.mean(latest) >= 3 * np.mean(before):
            break
        frames += int(unroll["row_valid"].sum())
        trainer(buffer_of(settings, unroll), settings.optimizer.rates(env_frames=frames, learner_updates=0))
        policy.load(trainer.weights())
    assert np.mean(latest) >= 3 * np.mean(before), (frames, np.mean(before), np.mean(latest))
    assert np.mean(before) < 40
    group.environments.close()
