"""Ensembles by task, by actor and by environment: they are shared as configured, learn independently, are bounded and survive a restart."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from herd_bandit import bandits_vote, snapshot
from herd_bandit.exchange import ExchangeHandler, new_window
from herd_bandit.snapshot import ForeignSnapshotError
from herd_bandit.task_bandit import CENTRAL, Groups, TaskBandit, TaskBandits, draw_generator, groups_of, new_bandits

from herd.config.run import RunSettings
from herd.config.services import BanditSettings
from herd.files import sealed
from herd.protocols.bandit.tiling import tiling_of, x_of
from herd.rpc.serving import Received
from tests.asking import CLIENT
from tests.bandit.contents import contents
from tests.bandit.test_bandit_exchange import finished, request, starting

SETTINGS = BanditSettings()
TILING = tiling_of(SETTINGS)
EACH = Groups(slots_each=1, most=8)


def bandits_of(groups: Groups) -> TaskBandits:
    return new_bandits(SETTINGS, ("pong",), seed=1, groups=groups)


def played(groups: Groups) -> TaskBandit:
    """Environments 0 and 1 do best at opposite temperatures; environment 9 reports once."""
    bandit = bandits_of(groups)[0, 0]
    for _ in range(30):
        for slot, liked in ((0, 0.5), (1, 40.0)):
            for inverse in (0.5, 40.0):
                bandit.count(inverse, 1.0 if inverse == liked else 0.0, 4, learn=True, slot=slot)
    bandit.count(5.0, 0.1, 4, learn=True, slot=9)
    return bandit


@pytest.mark.parametrize(
    ("ensembles", "agents", "tasks", "expected"),
    [
        ("task", 1, 1, CENTRAL),
        ("actor", 1, 1, Groups(32, 100)),
        ("environment", 1, 1, Groups(1, 100)),
        ("environment", 2, 7, Groups(7, 7)),
        ("environment", 50, 7, Groups(7, 1)),
    ],
)
def test_groups_follow_the_ensembles_setting(ensembles: str, agents: int, tasks: int, expected: Groups) -> None:
    settings = RunSettings.model_validate({"agents": agents, "bandit": {"ensembles": ensembles, "max_ensembles": 100}})
    groups = groups_of(settings, tasks)
    assert groups == expected
    if ensembles == "environment":
        of_one_task = {groups.of_slot(slot) for slot in range(tasks - 1, tasks * groups.most, tasks)}
        assert len(of_one_task) == groups.most  # slots are dealt to tasks in turn


def test_environments_share_groups_beyond_the_maximum() -> None:
    assert [CENTRAL.of_slot(slot) for slot in (0, 1, 10**9)] == [0, 0, 0]
    assert [Groups(32, 3).of_slot(slot) for slot in (0, 31, 32, 95, 96, 10**9)] == [0, 0, 1, 2, 0, 10**9 // 32 % 3]
    bandit = bandits_of(Groups(1, 4))[0, 0]
    for slot in range(1000):
        bandit.count(5.0, 1.0, 4, learn=True, slot=slot)
    assert len(bandit.ensembles) == 4
    assert [int(ensemble.counts.sum()) for ensemble in bandit.ensembles] == [250] * 4


def test_each_environment_learns_only_from_its_own_games() -> None:
    apart, together = played(EACH), played(CENTRAL)
    assert [int(ensemble.counts.sum()) for ensemble in apart.ensembles] == [60, 61]  # environment 9 shares the ensemble of environment 1
    assert int(together.ensemble.counts.sum()) == 121
    assert apart.tally.episodes == together.tally.episodes == 121
    for slot, liked in ((0, 0.5), (1, 40.0)):
        ensemble = apart._of_group(slot)
        assert bandits_vote.best_tiles(bandits_vote.evaluation(ensemble), ensemble.counts).tolist() == [TILING.tile(x_of(liked))]
    assert len({ensemble.learning_rates + ensemble.widths for ensemble in apart.ensembles}) == 2  # each has its own design


def test_best_tiles_weight_ensembles_by_their_tries() -> None:
    bandit = played(EACH)
    counts = np.array([ensemble.counts for ensemble in bandit.ensembles], np.float64)
    values = np.array([bandits_vote.evaluation(ensemble) for ensemble in bandit.ensembles])
    best, tile_of = -np.inf, -1
    for tile in range(TILING.num_tiles):
        if counts[:, tile].sum():
            value = sum(counts[i, tile] * values[i, tile] for i in range(2)) / counts[:, tile].sum()
            assert bandit.evaluation[tile] == pytest.approx(value)
            if value > best:
                best, tile_of = value, tile
        else:
            assert bandit.evaluation[tile] == pytest.approx(values[:, tile].mean())
    assert bandit.best_tiles.tolist() == [tile_of]
    drawn = bandit.hand_out_best(np.random.default_rng(0))
    assert TILING.tile(x_of(drawn)) == tile_of
    bandit.count(20.0, 50.0, 4, learn=True, slot=0)
    assert bandit.best_tiles.tolist() == [TILING.tile(x_of(20.0))]  # the snapshot is current


def test_a_restart_restores_ensembles_and_designs_new_ones_equally(tmp_path: Path) -> None:
    bandit = played(EACH)
    snapshot.save(tmp_path, run="run", tiling=TILING, groups=EACH, bandits=[bandit], window=new_window())
    restored, damaged = snapshot.load(tmp_path, tiling=TILING, num_bandits=SETTINGS.bandits, groups=EACH)
    assert damaged == []
    assert restored is not None
    again = restored.bandits[0, "pong"]
    assert list(map(contents, again.ensembles)) == list(map(contents, bandit.ensembles))
    assert again.others.keys() == bandit.others.keys()
    fresh = bandits_of(EACH)[0, 0]
    assert contents(fresh._of_group(5)) == contents(bandits_of(EACH)[0, 0]._of_group(5))
    assert fresh._of_group(5).learning_rates + fresh._of_group(5).widths != fresh.ensemble.learning_rates + fresh.ensemble.widths


def test_a_state_of_other_groups_is_refused(tmp_path: Path) -> None:
    snapshot.save(tmp_path, run="run", tiling=TILING, groups=EACH, bandits=[played(EACH)], window=new_window())
    for groups in (CENTRAL, Groups(32, 8), Groups(1, 9)):
        with pytest.raises(ForeignSnapshotError, match=r"other bandit\.ensembles"):
            snapshot.load(tmp_path, tiling=TILING, num_bandits=SETTINGS.bandits, groups=groups)


def test_groups_beyond_the_maximum_are_reported_as_damage(tmp_path: Path) -> None:
    snapshot.save(tmp_path, run="run", tiling=TILING, groups=EACH, bandits=[played(EACH)], window=new_window())
    state = json.loads((tmp_path / "state.json").read_text())["state"]
    state["bandits"][0]["others"][0]["group"] = 8
    (tmp_path / "state.json").write_text(sealed(json.dumps(state, separators=(",", ":"))))
    restored, damaged = snapshot.load(tmp_path, tiling=TILING, num_bandits=SETTINGS.bandits, groups=EACH)
    assert restored is None
    assert "above 8" in damaged[0]


def test_an_exchange_uses_the_ensemble_of_its_environment() -> None:
    bandits = bandits_of(Groups(slots_each=2, most=8))
    handler = ExchangeHandler(
        SETTINGS,
        action_repeat=4,
        bandits=bandits,
        window=new_window(),
        generator=draw_generator(bandits, seed=1),
    )
    reports = (finished(0, slot=slot, inverse=5.0) for slot in (0, 2, 3, 7))
    message = request(1, *reports, ask=(starting(1, slot=0), starting(1, slot=5)))
    answer = handler.answer(Received(CLIENT, message))
    assert dict(answer.reports) == {"accepted": 4}
    bandit = bandits[0, 0]
    counted = {group: int(bandit._of_group(group).counts.sum()) for group in sorted({0, *bandit.others})}
    assert counted == {0: 1, 1: 2, 2: 0, 3: 1}  # group 2 asked, but never reported
