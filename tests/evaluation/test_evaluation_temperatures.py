from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from herd.evaluation.evaluate import evaluate_runs
from herd.evaluation.report import EvaluationReport, print_report
from herd.files import sealed

DICE = {
    "env": {
        "suite": "catch",
        "tasks": ["catch", "catch_deceptive"],
        "frame_height": 6,
        "frame_width": 5,
        "frame_stack": 1,
        "action_repeat": 1,
    },
    "network": {"torso": "mlp"},
    "loss": {"kind": "dice"},
}


def leave_state(run_dir: Path, best: dict[str, list[float] | None]) -> None:
    bandits = [{"agent": 0, "task": task, "best_inverse_temperatures": bounds} for task, bounds in best.items()]
    (run_dir / "bandit").mkdir()
    (run_dir / "bandit" / "state.json").write_text(sealed(json.dumps({"bandits": bandits})))


def printed(report: EvaluationReport) -> str:
    file = io.StringIO()
    print_report(report, Console(file=file, width=80))
    return file.getvalue()


def test_the_table_names_the_temperatures_of_the_games(make_run: Callable[..., Path]) -> None:
    run_dir = make_run(DICE)
    leave_state(run_dir, {"catch_deceptive": [11.18249, 12.46374], "catch": None})
    report = evaluate_runs([run_dir], episodes=4)
    # catch has no returns yet, so its games are played with tau = 1.
    assert [task.inverse_temperatures for task in report.tasks] == [(1.0, 1.0), (11.18249, 12.46374)]
    text = printed(report)
    heading = next(line for line in text.splitlines() if line.lstrip().startswith("task "))
    assert heading.split()[-1] == "1/tau"
    assert "11.2-12.5" in text
    assert "drawn from the best-valued tile" in " ".join(text.split())


def test_without_drawn_temperatures_none_is_named(make_run: Callable[..., Path]) -> None:
    dice = make_run(DICE)
    leave_state(dice, {"catch": [8.0, 9.0], "catch_deceptive": [8.0, 9.0]})
    baseline = make_run({**DICE, "loss": {"kind": "dice", "ablation": "baseline"}}, name="baseline")
    for report in (evaluate_runs([dice], episodes=4, greedy=True), evaluate_runs([baseline], episodes=4)):
        assert [task.inverse_temperatures for task in report.tasks] == [None, None]
        assert "tau" not in printed(report)
