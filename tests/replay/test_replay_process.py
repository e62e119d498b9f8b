"""The replay service as a process, used by learners' clients."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from herd.components.suites import environment_spec
from herd.config.run import RunSettings
from herd.config.run_contract import run_layout
from herd.contract.unroll import Array, UnrollLayout
from herd.protocols.replay.client import ReplayClient
from herd.protocols.replay.samples import SampledEpisode, SampledUnrolls, StoredUnroll
from herd.service import EXIT_LOST
from herd.service.identity import Endpoint, Identity
from herd.telemetry.scrape import total
from herd.transport.context import Context
from tests.failing_disks import no_space_beyond
from tests.patience import patient
from tests.replay.played_games import Row, game, oracle_slice, play, unrolls_of
from tests.server_process import ServerProcess, until

pytestmark = pytest.mark.processes

SLOW_SECONDS = patient(600.0)
"""Snapshot interval for tests that want no snapshot."""


def settings_of(run_dir: Path, *, snapshots: float = SLOW_SECONDS, **sections: object) -> RunSettings:
    return RunSettings.model_validate(
        {
            "name": "replayed",
            "run_dir": run_dir,
            "agents": 2,
            "env": {"suite": "catch"},
            "network": {"torso": "mlp"},
            "algorithm": {"unroll_length": 7},
            "actor": {"environments": 4},
            "replay": {"kind": "shared", "minimum_fill_agent_steps": 0},
            "replay_service": {"snapshot_interval_seconds": snapshots},
        }
        | sections
    )


def running(run_dir: Path, *, port: int = 0, snapshots: float = SLOW_SECONDS, **sections: object) -> ServerProcess:
    settings = settings_of(run_dir, snapshots=snapshots, **sections)
    return ServerProcess("replay", settings, Identity(listen=Endpoint(port=port)))


class Learner:
    """A client, with what it has inserted."""

    def __init__(self, context: Context, server: ServerProcess, agent: int = 0) -> None:
        self.layout = layout = run_layout(server.settings, environment_spec(server.settings.env))
        self.client = ReplayClient(
            context,
            [server.endpoint],
            layout=layout,
            run_id=server.settings.name,
            agent=agent,
            contract=server.contract,
            max_pending_bytes=1 << 27,
        )

    def insert(self, *unrolls: dict[str, Array], actor: int = 0) -> None:
        """Insert all unrolls in one message."""
        arrays = {name: np.concatenate([unroll[name] for unroll in unrolls]) for name in unrolls[0]}
        self.client.insert(arrays, len(unrolls), np.full((len(unrolls), 2), (actor, 1 << 20), np.int64))

    def settle(self) -> None:
        """Wait until everything is acknowledged."""
        until(lambda: self.client.poll(0.01) == [] and self.client.num_unacknowledged == 0)

    def draw(self, count: int, *, whole_episodes: bool) -> list[SampledUnrolls | SampledEpisode]:
        self.client.request(count, whole_episodes=whole_episodes)
        samples: list[SampledUnrolls | SampledEpisode] = []

        def came() -> bool:
            samples.extend(self.client.poll(0.05))
            return not self.client.num_requests

        until(came)
        return samples


def test_two_agents_draw_from_one_replay(tmp_path: Path, context: Context) -> None:
    with running(tmp_path) as server:
        learners = [Learner(context, server, agent) for agent in range(2)]
        layout = learners[0].layout
        streams = [play(layout, [9, 9, 4, 15], seed) for seed in range(2)]
        for learner, rows in zip(learners, streams, strict=True):
            learner.insert(*unrolls_of(layout, rows, slot=3))
            learner.settle()
        assert learners[1].client.num_steps_stored == 2 * (9 + 9 + 4)  # the end of the last game is not in a complete unroll
        (sample,) = learners[0].draw(300, whole_episodes=False)
        assert isinstance(sample, SampledUnrolls)
        assert len(sample.unrolls) == 300
        assert {unroll.agent for unroll in sample.unrolls} == {0, 1}
        check(sample.unrolls, lambda agent, _: streams[agent], layout)
        episodes = learners[1].draw(20, whole_episodes=True)
        assert len(episodes) == 20
        for episode in episodes:
            assert isinstance(episode, SampledEpisode)
            assert episode.part is not None
            assert episode.part.episode_steps == len(game(streams[episode.part.key.agent], episode.part.key.episode_id)) - 1
            assert sum(unroll.num_steps for unroll in episode.part.unrolls()) == episode.part.episode_steps
        assert server.total("herd_replay_agent_steps") == 44
        assert server.end(signal.SIGTERM) == 0


def unrolls_in(sample: SampledUnrolls | SampledEpisode) -> list[StoredUnroll]:
    if isinstance(sample, SampledUnrolls):
        return sample.unrolls
    assert sample.part is not None
    return sample.part.unrolls()


def check(unrolls: list[StoredUnroll], rows_of: Callable[[int, int], list[Row]], layout: UnrollLayout) -> None:
    """Check that each unroll equals what was played, byte for byte."""
    for unroll in unrolls:
        key, got = unroll.part.key, layout.allocate(1)
        unroll.write_into(got, 0)
        rows = rows_of(key.agent, key.environment_slot)
        expected = oracle_slice(layout, rows, key.episode_id, unroll.first_step, slot=key.environment_slot)
        for name, array in expected.items():
            np.testing.assert_array_equal(got[name], array, err_msg=name)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_all_steps_to_disk(tmp_path: Path, context: Context, number: int) -> None:
    with running(tmp_path) as first:
        learner = Learner(context, first)
        rows = play(learner.layout, [30, 30, 30], 1)
        unrolls = unrolls_of(learner.layout, rows)
        learner.insert(*unrolls[:6])
        learner.settle()
        assert first.end(number) == 0
    with running(tmp_path, port=first.port) as second:
        assert second.total("herd_replay_restored_agent_steps") == 30
        assert second.total("herd_replay_open_agent_steps") == 11  # steps of the second game, which are not lost
        learner.insert(*unrolls[6:])
        learner.settle()
        assert learner.client.num_steps_stored == 60
        episodes = learner.draw(10, whole_episodes=True)
        check([unroll for episode in episodes for unroll in unrolls_in(episode)], lambda *_: rows, learner.layout)
        assert second.total("herd_replay_discarded_episodes_total") == 0
        assert second.before == [line for line in second.before if "restored" in line]


def test_episodes_stay_intact_under_eviction_and_kills(tmp_path: Path, context: Context) -> None:
    """Four environments, a capacity of a few games, continuous snapshots, and three kills on the way."""
    replay = {"kind": "shared", "minimum_fill_agent_steps": 0, "capacity_agent_steps": 200}
    random = np.random.default_rng(5)
    with ExitStack() as stack:
        server = stack.enter_context(running(tmp_path, snapshots=0.05, replay=replay))
        learner = Learner(context, server)
        streams = [play(learner.layout, [int(length) for length in random.integers(1, 40, 60)], slot) for slot in range(4)]
        waiting = [unrolls_of(learner.layout, rows, slot=slot) for slot, rows in enumerate(streams)]
        seen: set[tuple[int, int]] = set()
        rounds = 0
        while any(waiting):
            unrolls = [waiting[slot].pop(0) for slot in range(4) if waiting[slot]]
            learner.insert(*unrolls)
            # Sampling runs alongside insertion, once there is something to sample.
            samples = learner.draw(3, whole_episodes=rounds % 2 == 0) if learner.client.num_steps_stored else learner.client.poll(0.02)
            for sample in samples:
                parts = unrolls_in(sample)
                check(parts, lambda _, slot: streams[slot], learner.layout)
                seen |= {(unroll.part.key.environment_slot, unroll.part.key.episode_id) for unroll in parts}
            rounds += 1
            if rounds % 40 == 0 and rounds <= 120:
                until(lambda: server.total("herd_replay_snapshots_written_total") >= 2)  # noqa: B023  the present one
                assert server.end(signal.SIGKILL) == -signal.SIGKILL
                server = stack.enter_context(running(tmp_path, port=server.port, snapshots=0.05, replay=replay))
                assert not [line for line in server.before if "skipped" in line]
        assert rounds > 120
        learner.settle()
        assert server.total("herd_replay_agent_steps") == learner.client.num_steps_stored
        assert 160 <= learner.client.num_steps_stored <= 200
        assert len(seen) > 50
        assert server.total("herd_replay_evicted_episodes_total", reason="capacity") > 0


def test_a_full_disk_delays_no_answer_and_sets_the_exit_code(tmp_path: Path, context: Context) -> None:
    with running(tmp_path, snapshots=0.05) as server:
        learner = Learner(context, server)
        unrolls = unrolls_of(learner.layout, play(learner.layout, [30, 30, 30], 1))
        learner.insert(*unrolls[:5])
        learner.settle()
        # The second snapshot from here on began after the unrolls had arrived.
        written = server.total("herd_replay_snapshots_written_total")
        until(lambda: server.total("herd_replay_snapshots_written_total") >= written + 2)
        with no_space_beyond(0, server.process.pid):
            until(lambda: server.total("herd_replay_file_failures_total") >= 1)
            learner.insert(*unrolls[5:])
            learner.settle()
            assert len(learner.draw(5, whole_episodes=True)) == 5
            assert server.end(signal.SIGTERM) == EXIT_LOST
        assert server.process.stderr is not None
        assert "the last snapshot of replay could not be written" in server.process.stderr.read()
    with running(tmp_path) as second:
        assert second.total("herd_replay_restored_agent_steps") in {30, 60}


def test_reported_memory_matches_the_memory_of_the_process(tmp_path: Path, context: Context) -> None:
    """The frames are noise, which cannot be compressed: 150 MB in games of 200 steps."""
    atari: dict[str, Any] = {"env": {"suite": "atari"}, "network": {"torso": "shallow"}, "algorithm": {"unroll_length": 20}}
    with running(tmp_path, **atari) as server:
        learner = Learner(context, server)
        layout = learner.layout
        noise = np.random.default_rng(1)
        assert layout.frame_shape == (84, 84, 1)

        def game_of(number: int) -> list[dict[str, Array]]:
            """The first game of an environment: 10 unrolls of it, and one that starts the next game."""
            unrolls = []
            for index in range(11):
                arrays = layout.allocate(1)
                arrays["frames"][...] = noise.integers(0, 256, arrays["frames"].shape, np.uint8)
                arrays["row_valid"][...] = True
                arrays["environment_slot"][...], arrays["index_in_episode"][...] = number, 20 * index
                arrays["game_reset"][:, 0] = index == 0
                unrolls.append(arrays)
            unrolls[-1]["row_valid"][:, 0] = False
            unrolls[-1]["game_reset"][:, 1] = True
            return unrolls

        def held_and_taken() -> tuple[float, float]:
            learner.settle()
            samples = server.metrics()
            return total(samples, "herd_replay_bytes"), total(samples, "herd_process_resident_memory_bytes")

        for number in range(20):  # these also fill what is allocated once
            learner.insert(*game_of(number))
            learner.settle()
        held, taken = held_and_taken()
        for number in range(20, 120):
            learner.insert(*game_of(number))
            learner.settle()
        held_then, taken_then = held_and_taken()
        assert learner.client.num_steps_stored == 120 * 200
        assert held_then - held > 140e6
        assert held_then - held == pytest.approx(taken_then - taken, rel=0.1)


def test_a_run_without_shared_replay_is_bad_input(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "herd_replay", "--replay.kind", "none", "--run_dir", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert "does not use a replay service" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_snapshot_of_another_contract_is_bad_input(tmp_path: Path, context: Context) -> None:
    with running(tmp_path) as server:
        learner = Learner(context, server)
        learner.insert(*unrolls_of(learner.layout, play(learner.layout, [30, 30], 1)))
        learner.settle()
        assert server.end(signal.SIGTERM) == 0
    command = [sys.executable, "-m", "herd_replay", "--config", str(tmp_path / "config.yaml"), "--algorithm.unroll_length", "8"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, "belongs to another run or contract" in done.stderr) == (2, True)
