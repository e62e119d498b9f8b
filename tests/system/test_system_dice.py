"""DiCE in real processes: the bandit sends temperatures and is killed, and every game is accounted for."""

from __future__ import annotations

import json
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from herd.telemetry.scrape import total
from tests.system.whole_runs import CATCH, Run, herd, metrics, read_report

DICE = CATCH.replace("catch", "dice-catch")
Account = dict[int, tuple[int, float]]
"""Number of games and sum of their returns, by tile."""


def _bandit(run_dir: Path) -> dict[str, Any]:
    bandit: dict[str, Any]
    (bandit,) = json.loads((run_dir / "bandit" / "state.json").read_text())["state"]["bandits"]
    return bandit


def _bandits_account(run_dir: Path) -> Account:
    bandit = _bandit(run_dir)
    return {tile: (games, bandit["return_sums"][tile]) for tile, games in enumerate(bandit["reports"]) if games}


def _actors_account(run_dir: Path, *, dropped: bool = True) -> tuple[Account, int]:
    """Games by tile, with or without those never reported, and the number of games that the bandit may or may not have counted."""
    games: Counter[int] = Counter()
    returns: Counter[int] = Counter()
    unconfirmed = 0
    for file in (run_dir / "bandit" / "actors").glob("*.json"):
        account = json.loads(file.read_text())
        unconfirmed += account["unconfirmed"]
        for sign, rows in ((1, account["games"]), (-1, [] if dropped else account["dropped"])):
            for _, tile, number, return_sum in rows:
                games[tile] += sign * number
                returns[tile] += sign * return_sum
    return {tile: (games[tile], float(returns[tile])) for tile in games if games[tile]}, unconfirmed


def _differ_by_at_most(unconfirmed: int, told: Account, counted: Account) -> bool:
    """A bandit counts every reported game, except perhaps the last few, for whose confirmation an actor did not wait."""
    assert counted.keys() <= told.keys()
    missing = {
        tile: (games - counted.get(tile, (0, 0.0))[0], returns - counted.get(tile, (0, 0.0))[1]) for tile, (games, returns) in told.items()
    }
    # The return of a game of Catch is 1 or -1.
    assert all(games >= 0 and abs(returns) <= games for games, returns in missing.values())
    return sum(games for games, _ in missing.values()) <= unconfirmed


def _learners_account(run_dir: Path) -> Account:
    tiles = read_report(run_dir)["tasks"]["catch"]["temperatures"]
    return {one["tile"]: (one["episodes"], one["return_sum"]) for one in tiles}


QUICK = ("--learner.log_interval_seconds", "0.5", "--bandit.snapshot_interval_seconds", "1", "--actor.bandit_timeout_seconds", "0.2")
# Games are long and few run at once: while the bandit is away their reports wait, and few if any are dropped.
LONG = ("--env.frame_height", "40", "--actor.environments", "8", "--learner.batch_size", "8")


def test_learning_continues_without_the_bandit_and_counts_agree(tmp_path: Path) -> None:
    run_dir = tmp_path / "dice"
    with Run(run_dir, *QUICK, *LONG, file=DICE) as run:
        run.until_more_frames(10_000)
        # The bandit ends in order, so its counts are on disk: the accounts must agree to the last game.
        before = run.signal("bandit-0", signal.SIGTERM)
        run.until_more_frames(5_000)
        run.until_replaced("bandit-0", before)
        run.until_more_frames(10_000)
        assert run.stop() == 0, run.output

    bandits = _bandits_account(run_dir)
    told, unconfirmed = _actors_account(run_dir, dropped=False)
    assert _differ_by_at_most(unconfirmed, told, bandits)
    assert len(bandits) >= 10  # there are several temperatures
    # The learner knows the games whose unrolls it took: all except those in the last, unfinished unrolls.
    learner = _learners_account(run_dir)
    report = read_report(run_dir)
    assert sum(games for games, _ in learner.values()) == report["episode_return"]["episodes"]
    played, _ = _actors_account(run_dir)
    assert all(games <= played[tile][0] for tile, (games, _) in learner.items())
    missing = sum(games for games, _ in played.values()) - report["episode_return"]["episodes"]
    assert 0 <= missing <= 2 * 8  # at most the games of two messages

    evaluated = herd("evaluate", run_dir, "--episodes", "20", "--json")
    assert evaluated.returncode == 0, evaluated.stderr


def test_a_stopped_or_killed_bandit_delays_actors_for_a_bounded_time(tmp_path: Path) -> None:
    run_dir = tmp_path / "dice"
    recurrent = ("--network.core", "lstm", "--network.core.size", "16", "--algorithm.burn_in", "10", "--learner.sample_reuse", "2")
    with Run(run_dir, *QUICK, *recurrent, "--env.frame_height", "40", file=DICE) as run:
        run.until_more_frames(5_000)
        first = run.signal("bandit-0", signal.SIGSTOP)
        run.until_more_frames(20_000)  # games begin under their last temperatures
        run.signal("bandit-0", signal.SIGKILL)
        run.until_replaced("bandit-0", first)
        reused = "herd_bandit_reused_temperatures_total"
        run.until(lambda: total(metrics(run_dir, "bandit-0"), reused) > 0, "it counts the games that were played without it")
        run.until_more_frames(5_000)
        assert run.stop() == 0, run.output

    bandits = _bandits_account(run_dir)
    actors, _ = _actors_account(run_dir)
    # Counts since the last snapshot are lost with the process, and nothing is counted twice.
    assert all(games <= actors[tile][0] for tile, (games, _) in bandits.items())
    assert sum(games for games, _ in bandits.values()) > 0
    # With burn-in and reuse frames are counted once. A batch has 32 unrolls of 20 new rows, and 39 in 40 rows are steps: a game has 39.
    report = read_report(run_dir)
    assert report["env_frames"] / (report["learner_updates"] / 2) == pytest.approx(32 * 20 * 39 / 40, rel=0.02)
