from __future__ import annotations

import numpy as np
import pytest
from herd_learner.intake.ingest import inverse_temperatures_of
from herd_learner.intake.ledger import LedgerSnapshot
from herd_learner.record.statistics import RunStatistics

from herd.config.services import BanditSettings
from herd.contract.actions import discrete
from herd.contract.spaces import EnvSpec
from herd.contract.unroll import UnrollLayout
from herd.protocols.bandit.tiling import tiling_of

SPEC = EnvSpec(task_names=("pong",), frame_shape=(2, 2, 1), frame_stack=1, actions=discrete(3), action_repeat=4, instruction_length=0)


@pytest.mark.parametrize("burn_in", [0, 2])
def test_a_games_temperature_is_read_from_its_rows(burn_in: int) -> None:
    layout = UnrollLayout(
        unroll_length=6 + burn_in, burn_in=burn_in, frame_stack=1, frame_shape=(2, 2, 1), actions=discrete(3), num_parameters=3
    )
    arrays = layout.allocate(2)
    arrays["environment_slot"][...] = [40, 41]
    arrays["episode_id"][...] = [7, 3]
    arrays["game_reset"][0, burn_in + 2] = arrays["game_reset"][0, burn_in + 5] = True
    arrays["game_reset"][:, : burn_in + 1] = True  # from earlier games, and from the game that `episode_id` already counts
    arrays["inverse_temperature"][0, burn_in:] = [0.5, 0.5, 20.0, 20.0, 20.0, 0.0]
    arrays["inverse_temperature"][1, burn_in:] = 3.0
    arrays["inverse_temperature"][:, :burn_in] = 9.0
    assert inverse_temperatures_of(arrays, burn_in) == {(40, 7): 0.5, (40, 8): 20.0, (40, 9): 0.0, (41, 3): 3.0}


def test_returns_by_temperature_are_reported_and_survive_a_restart() -> None:
    tiling = tiling_of(BanditSettings())
    statistics = RunStatistics(SPEC, tiling=tiling)
    for inverse, episode_return in ((0.0, 1.0), (0.05, 2.0), (50.0, -4.0), (None, 9.0)):
        statistics.record_episode(0, episode_return, inverse)
    statistics = RunStatistics(SPEC, statistics.as_json(1.0), tiling)
    report = statistics.report(LedgerSnapshot(), session_seconds=1.0, training_seconds=1.0)
    low, high = report["tasks"]["pong"]["temperatures"]
    assert (low["tile"], low["episodes"], low["return_sum"], low["mean_return"]) == (0, 2, 3.0, 1.5)
    assert low["inverse_temperature"] == pytest.approx([0.0, np.expm1(0.1)])
    assert (high["tile"], high["episodes"], high["mean_return"]) == (tiling.num_tiles - 1, 1, -4.0)
    assert high["inverse_temperature"][1] == pytest.approx(50.0)


def test_the_number_of_uses_of_each_sample_is_reported() -> None:
    statistics = RunStatistics(SPEC)
    for _ in range(4):
        statistics.record_consumed(0, 80, 1)
    statistics._session_trained += 8  # two updates on these four unrolls
    assert statistics.report(LedgerSnapshot(), session_seconds=1.0, training_seconds=1.0)["sample_reuse"] == 2.0
