"""A population of real processes; controller, members and parameter server are killed while copies are made."""

from __future__ import annotations

import json
import signal
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from herd.protocols.population.journal import Copy, Decided, Done, Failed, Lineages, journal_file, read_journal
from tests.system.whole_runs import Run, env_frames, read_points, read_report

SWEEP = {
    "optimizer.learning_rate": {"draw": "log_uniform", "low": 1e-6, "high": 1e-2},
    "loss.entropy_cost": {"draw": "log_uniform", "low": 1e-3, "high": 1e-2},
}
WORDS = (
    *("--sweep", json.dumps(SWEEP), "--optimizer.schedule", "constant"),
    # This number always differs between members. Returns would not: all members soon play perfectly, and nothing would be copied.
    *("--population.strategy", "pbt", "--population.fitness", "frames_per_second", "--population.fitness_episodes", "100"),
    *("--population.burn_in_env_frames", "2000", "--population.threshold", "0.01", "--population.report_interval_seconds", "0.2"),
    *("--learner.checkpoint_interval_seconds", "1", "--learner.log_interval_seconds", "1"),
)


def _copies(run: Run) -> list[Copy]:
    return Lineages(read_journal(journal_file(run.run_dir))).copies


def _kill(run: Run, process: str) -> None:
    """Kill a process and wait for its successor."""
    run.until_replaced(process, run.signal(process, signal.SIGKILL))


def _members(number: int) -> tuple[str, ...]:
    return (*WORDS, "--agents", str(number), "--actor.count", str(number))


def _frames(run: Run) -> list[int]:
    return [env_frames(member) for member in sorted((run.run_dir / "agents").iterdir())]


def _has_more_copies(run: Run, known: int) -> bool:
    return len(_copies(run)) > known


def _all_train_on(run: Run, frames: list[int]) -> bool:
    return all(now > before for now, before in zip(_frames(run), frames, strict=True))


@pytest.mark.timeout(600)
def test_copying_continues_after_any_process_is_killed(tmp_path: Path) -> None:
    with Run(tmp_path / "run", *_members(3)) as run:
        run.until(lambda: len(_copies(run)) >= 2, "two copies")
        newest = _copies(run)[-1]
        for process in ("population-0", f"learner-{newest.receiver}", f"learner-{newest.donor}", "paramserver-0"):
            _kill(run, process)
            known, frames = len(_copies(run)), _frames(run)
            run.until(partial(_has_more_copies, run, known), f"a copy after {process} was killed")
            run.until(partial(_all_train_on, run, frames), "all train on")
        assert run.stop() == 0, run.output
        _check(run.run_dir)


@pytest.mark.timeout(600)
def test_all_shards_of_a_member_copy_together(tmp_path: Path) -> None:
    with Run(tmp_path / "run", *_members(2), "--learner.shards", "2", "--value_scaling.kind", "popart") as run:
        run.until(lambda: len(_copies(run)) >= 2, "two copies")
        frames = _frames(run)
        run.until(partial(_all_train_on, run, frames), "all train on")
        assert run.stop() == 0, run.output
        _check(run.run_dir)


def _check(run_dir: Path) -> None:
    events = list(read_journal(journal_file(run_dir)))
    decided = [event.number for event in events if isinstance(event, Decided)]
    ended = [event.number for event in events if isinstance(event, Done | Failed)]
    assert decided == sorted(set(decided))
    assert len(set(ended)) == len(ended)
    assert set(ended) <= set(decided)
    lineages = Lineages(events)
    for member in (run_dir / "agents").iterdir():
        report: dict[str, Any] = read_report(member)  # ``read_report`` also checks the ledger
        recorded = [Copy(**copy) for copy in report["population"]["ancestry"]]
        assert recorded == lineages.ancestry(int(member.name))
        settings = report["population"]["settings"]
        assert settings.keys() == SWEEP.keys()
        assert "sweep" not in report  # they change during the run
        applied = report["population"]["applied"]
        if applied is not None:
            (order,) = [event for event in events if isinstance(event, Decided) and event.number == applied["number"]]
            assert settings == order.settings
            assert read_points(member)[-1]["population"]["number"] == applied["number"]
