"""What the summary and the page say about a run's bandit, population, replay and evaluations."""

from __future__ import annotations

import json
import re
from io import StringIO
from pathlib import Path

from rich.console import Console

from herd.files import sealed
from herd.view.report.page import write_page
from herd.view.summary import Part, parts_of, print_summary
from tests.view.test_plot_bandit import make_run as make_bandit_run
from tests.view.test_plot_bandit import record
from tests.view.test_plot_population import RATE
from tests.view.test_plot_population import run_dir as population

__all__ = ["population"]


def test_a_population_names_copies_changes_and_its_best_member(population: Path) -> None:
    rows = (("copies", "3"), ("changes of settings", "4"), ("best member", f"2, fitness 2.00; {RATE} 3"))
    assert parts_of(population) == [Part("population", rows, "--population")]
    output = StringIO()
    print_summary(Console(file=output), population, None)
    assert f"population        best member: 2, fitness 2.00; {RATE} 3\n" in output.getvalue()
    assert f"population        picture: herd plot --population {population}\n" in output.getvalue()
    page = write_page(population, population / "page.html", game=None, no_game="")
    html = page.file.read_text()
    assert "<h2>Population</h2>" in html
    assert re.search(r'alt="population ".*src="data:image/png;base64,iVBOR', html)
    (population / "population" / "journal.jsonl").write_text('{"event": "decided"}\n')
    [damaged] = parts_of(population)
    assert "line 1, is not an event of a population" in damaged.rows[0][1]


def test_temperatures_replay_and_evaluations_have_a_section(tmp_path: Path) -> None:
    run_dir = make_bandit_run(tmp_path, *(record(games) for games in range(1, 4)))
    (run_dir / "metrics.jsonl").write_text('{"env_frames": 9, "wall_seconds": 1.0, "frames_per_second": 9.0, "tasks": {"pong": {}}}\n')
    assert parts_of(run_dir) == []  # no state, no report, no evaluation
    best = [{"agent": 0, "task": "pong", "best_inverse_temperatures": [1.0, 3.0]}]
    best += [{"agent": 0, "task": "young", "best_inverse_temperatures": None}]
    (run_dir / "bandit" / "state.json").write_text(sealed(json.dumps({"bandits": best})))
    (run_dir / "report.json").write_text(json.dumps({"replay": {"unrolls_stored": 4096, "share": 0.875, "by_kind": {}}}))
    evaluation = {"lineage": 1, "learner_updates": 1500, "tasks": {"pong": {"mean": 18.25, "standard_error": 0.5}}}
    (run_dir / "evaluation.jsonl").write_text(json.dumps(evaluation) + "\n")
    assert parts_of(run_dir) == [
        Part("temperatures", (("pong", "best 1/tau 1 to 3"),), "--bandit"),
        Part("replay", (("unrolls stored", "4,096"), ("share", "0.875"))),
        Part("evaluation", (("pong", "18.25 +- 0.50 (after 1,500 updates)"),)),
    ]
    html = write_page(run_dir, run_dir / "page.html", game=None, no_game="").file.read_text()
    assert [html.count(f"<h2>{title}</h2>") for title in ("Temperatures", "Replay", "Evaluation")] == [1, 1, 1]
    assert re.search(r'alt="temperatures pong" src="data:image/png;base64,iVBOR', html)
