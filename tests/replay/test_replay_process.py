"""The replay service as a process, asked by learners' clients."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from herd.config.settings import RunSettings
from herd.envs.make import environment_spec
from herd.wire.layout import Array, UnrollLayout
from herd.wire.replay_client import ReplayClient
from herd.wire.replay_samples import SampledEpisode, SampledUnrolls
from herd.wire.run_layout import run_layout
from herd.wire.sockets import Context
from tests.replay.played_games import game, oracle_slice, play, unrolls_of
from tests.server_process import ServerProcess, killed_at_the_end, until

pytestmark = pytest.mark.processes


def settings_of(run_dir: Path, **replay: object) -> RunSettings:
    return RunSettings.model_validate(
        {
            "name": "replayed",
            "run_dir": run_dir,
            "agents": 2,
            "env": {"suite": "catch"},
            "network": {"torso": "mlp"},
            "algorithm": {"unroll_length": 7},
            "actor": {"environments": 4},
            "replay": {"kind": "shared", "minimum_fill_agent_steps": 0} | replay,
            "replay_service": {"port": 0},
        }
    )


class Learner:
    """A client, and what it has played."""

    def __init__(self, context: Context, server: ServerProcess, layout: UnrollLayout, agent: int) -> None:
        self.layout, self.agent = layout, agent
        self.client = ReplayClient(
            context,
            [server.endpoint],
            layout=layout,
            run_id=server.settings.name,
            agent=agent,
            contract=server.contract,
            max_pending_bytes=1 << 24,
        )

    def insert(self, *unrolls: dict[str, Array], actor: int = 0) -> None:
        """All in one message."""
        arrays = {name: np.concatenate([unroll[name] for unroll in unrolls]) for name in unrolls[0]}
        self.client.insert(arrays, len(unrolls), np.full((len(unrolls), 2), (actor, 1 << 20), np.int64))

    def settle(self) -> None:
        """Until all is acknowledged."""
        until(lambda: self.client.poll(0.01) == [] and self.client.num_unacknowledged == 0)

    def draw(self, count: int, *, whole_episodes: bool) -> list[SampledUnrolls | SampledEpisode]:
        self.client.request(count, whole_episodes=whole_episodes)
        samples: list[SampledUnrolls | SampledEpisode] = []

        def came() -> bool:
            samples.extend(self.client.poll(0.05))
            return not self.client.num_requests

        until(came)
        return samples


@pytest.fixture
def context() -> Iterator[Context]:
    with Context() as context:
        yield context


def test_two_agents_share_what_they_played(tmp_path: Path, context: Context) -> None:
    settings = settings_of(tmp_path)
    layout = run_layout(settings, environment_spec(settings.env))
    with killed_at_the_end(ServerProcess("replay", settings)) as server:
        learners = [Learner(context, server, layout, agent) for agent in range(2)]
        streams = [play(layout, [9, 9, 4, 15], seed) for seed in range(2)]
        for learner, rows in zip(learners, streams, strict=True):
            learner.insert(*unrolls_of(layout, rows, slot=3))
            learner.settle()
        assert learners[1].client.num_steps_stored == 2 * (9 + 9 + 4)  # the last game's end is not in a whole unroll
        (sample,) = learners[0].draw(300, whole_episodes=False)
        assert isinstance(sample, SampledUnrolls)
        assert len(sample.unrolls) == 300
        assert {unroll.agent for unroll in sample.unrolls} == {0, 1}
        for unroll in sample.unrolls:
            got = layout.allocate(1)
            unroll.write_into(got, 0)
            expected = oracle_slice(layout, streams[unroll.agent], unroll.part.key.episode_id, unroll.first_step, slot=3)
            for name, array in expected.items():
                np.testing.assert_array_equal(got[name], array, err_msg=name)
        episodes = learners[1].draw(20, whole_episodes=True)
        assert len(episodes) == 20
        for episode in episodes:
            assert isinstance(episode, SampledEpisode)
            assert episode.num_steps == len(game(streams[episode.agent], episode.part.key.episode_id)) - 1
            assert sum(unroll.num_steps for unroll in episode.slices()) == episode.num_steps
        assert server.total("herd_replay_agent_steps") == 44
        assert server.total("herd_replay_samples_total", kind="unroll") == 300
        assert server.end(15) == 0
