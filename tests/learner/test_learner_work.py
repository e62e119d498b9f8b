"""The work of the learner's I/O thread is proportional to the bytes that it receives; operations are counted for doubling sizes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from herd_learner.intake.ingest import Ingest, inverse_temperatures_of
from herd_learner.intake.ledger import Ledger
from herd_learner.intake.queue import UnrollQueue

from herd.protocols.unrolls.arrays import pack_arrays
from herd.protocols.unrolls.credit import CreditPool
from herd.protocols.unrolls.messages import CreditRequest, EpisodeReport, Hello, Unrolls, actor_identity
from herd.rpc.codec import encode
from herd.rpc.serving import ServedRun
from herd.transport import Peer
from tests.learner.small_unrolls import ACTION_REPEAT, FRAMES_PER_UNROLL, LAYOUT, small_arrays
from tests.operations import assert_linear, counted

PEER = Peer(actor_identity(0, 1).encode())


@pytest.mark.parametrize("same_slot", [False, True])
def test_work_for_unrolls_and_episodes_is_linear(same_slot: bool) -> None:
    """Every step ends a game, which is the maximum: games of many environments, or all of one."""

    def prepare(size: int) -> Callable[[], object]:
        ingest = Ingest(
            run=ServedRun("actor.learner", "run", "c", range(1)),
            layout=LAYOUT,
            action_repeat=ACTION_REPEAT,
            ledger=Ledger(),
            queue=UnrollQueue(),
            credit=CreditPool(size, expires_seconds=60.0),
            on_episode=lambda *_: None,
            on_unrolls=lambda *_: None,
        )
        hello = Hello(id=1, run="run", agent=0, contract="c", actor_index=0, incarnation=1, max_unrolls=size, oldest_sequence=1)
        ingest.on_message(PEER, encode(hello), 0.0)
        ingest.on_message(PEER, encode(CreditRequest(wanted_unrolls=size)), 0.0)
        arrays = small_arrays(size)
        arrays["game_reset"][...] = True
        arrays["environment_slot"][...] = 0 if same_slot else np.arange(size)
        episodes = tuple(
            EpisodeReport(task_id=0, environment_slot=0 if same_slot else unroll, episode_id=step, episode_return=0.0, agent_steps=1)
            for unroll in range(size)
            for step in range(LAYOUT.new_steps)
        )
        num_frames = size * FRAMES_PER_UNROLL
        header = Unrolls(sequence=1, generated_frames=num_frames, num_frames=num_frames, num_unrolls=size, episodes=episodes)
        frames = [*encode(header), *pack_arrays(arrays)]
        return lambda: ingest.on_message(PEER, frames, 0.0)

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
