"""The work of the learner's I/O thread is proportional to the bytes that it receives; operations are counted for doubling sizes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from herd_learner.intake.ingest import inverse_temperatures_of

from herd.protocols.unrolls.credit import CreditPool
from herd.protocols.unrolls.messages import EpisodeReport
from herd.transport import Peer
from tests.learner.ingest_learner import PEER, Learner
from tests.learner.small_unrolls import FRAMES_PER_UNROLL, LAYOUT, small_arrays, unrolls_message
from tests.operations import assert_linear, counted


@pytest.mark.parametrize("same_slot", [False, True])
def test_work_for_unrolls_and_episodes_is_linear(same_slot: bool) -> None:
    """Every step ends a game, which is the maximum: games of many environments, or all of one."""

    def prepare(size: int) -> Callable[[], object]:
        learner = Learner(capacity=size)
        learner.hello(max_unrolls=size)
        learner.grant(size)
        arrays = small_arrays(size)
        arrays["game_reset"][...] = True
        arrays["environment_slot"][...] = 0 if same_slot else np.arange(size)
        episodes = tuple(
            EpisodeReport(task_id=0, environment_slot=0 if same_slot else unroll, episode_id=step, episode_return=0.0, agent_steps=1)
            for unroll in range(size)
            for step in range(LAYOUT.new_steps)
        )
        frames = unrolls_message(1, generated=size * FRAMES_PER_UNROLL, num_unrolls=size, arrays=arrays, episodes=episodes)
        return lambda: learner.ingest.on_message(PEER, frames, 0.0)

    assert_linear(prepare, 64, 128, 256, 512)


def test_work_for_game_temperatures_is_linear() -> None:
    def prepare(size: int) -> Callable[[], object]:
        arrays = small_arrays(size)
        arrays["game_reset"][...] = True
        arrays["environment_slot"][...] = np.arange(size)
        watched = {name: counted(array) for name, array in arrays.items()}
        return lambda: inverse_temperatures_of(watched, 0)

    assert_linear(prepare, 256, 512, 1024)


@pytest.mark.parametrize("waiting", [True, False])
def test_work_for_credit_is_linear_in_the_number_of_actors(waiting: bool) -> None:
    """All actors ask; then the credit that they used is returned at once."""

    def prepare(size: int) -> Callable[[], object]:
        pool = CreditPool(size, expires_seconds=60.0)
        peers = [Peer(f"actor/{index}".encode()) for index in range(size)]

        def use() -> None:
            for peer in peers:
                pool.on_hello(peer, 1, 0.0)
            for peer in peers:
                pool.on_credit_request(peer, 2 if waiting else 1, 0.0)
            for peer in peers:
                pool.on_message_received(peer, 1, 0.0)
            pool.on_consumed(size)
            for peer in peers:
                pool.on_goodbye(peer)

        return use

    assert_linear(prepare, 64, 128, 256, 512)
