"""The report says what happened: each fault under its kind, each broken promise by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.soak.faults import KINDS, Fault
from benchmarks.soak.memory import Sample
from benchmarks.soak.monitor import CurvePoint, Record
from benchmarks.soak.picture import draw
from benchmarks.soak.promises import LEDGER, RECOVERY, Breach
from benchmarks.soak.report import MOST_POINTS, Circumstances, as_text, exit_code, make_report, write_report
from benchmarks.soak.soak import Story, Survived

KILL, CUT, STOP = Fault("kill", "actor-0"), Fault("cut", "actor-0>learner-0", 2.0), Fault("stop", "learner-0", 1.0)
STORY = Story(
    [
        Survived(10.0, (KILL,), 6.0),
        Survived(20.0, (KILL,), 4.0),
        Survived(30.0, (KILL,), 11.0),
        Survived(40.0, (CUT, STOP), 30.0),
        Survived(50.0, (CUT,), None, ("actor-0 sent 0 unrolls",)),
    ]
)
FINAL = {
    "accounting": {"generated": 1000, "consumed": 900, "in_flight": 20, "dropped": {"learner_restart": 80}},
    "env_frames": 900,
    "episode_return": {"mean_last_100": 0.5},
}


def report(record: Record, *finals: dict[str, Any], story: Story = STORY) -> dict[str, Any]:
    circumstances = Circumstances("python -m benchmarks.soak", "2026-11-21", {"cpus": 2}, 1, ["catch.yaml"], 60.0, 0, interrupted=False)
    return make_report(circumstances, story, record, finals, num_snapshots=7)


def test_faults_are_counted_by_kind_and_timed_where_they_came_alone() -> None:
    made = report(Record())
    assert made["num_faults"] == 6
    assert {kind: row["faults"] for kind, row in made["by_kind"].items()} == {"kill": 3, "stop": 1, "cut": 2}
    kill, cut = made["by_kind"]["kill"], made["by_kind"]["cut"]
    assert (kill["median_seconds"], kill["worst_seconds"], kill["not_recovered"]) == (6.0, 11.0, 0)
    assert (cut["median_seconds"], cut["measured"], cut["not_recovered"]) == (None, 0, 1)
    assert (made["together"]["faults"], made["together"]["worst_seconds"]) == (1, 30.0)
    assert made["by_target"] == {"actor-0": {"kill": 3}, "actor-0>learner-0": {"cut": 2}, "learner-0": {"stop": 1}}


def test_a_run_that_kept_its_promises() -> None:
    made = report(Record(), FINAL)
    assert exit_code(made) == 0
    text = as_text(made)
    assert "every promise kept" in text
    assert "learner_restart 80 (8.00%)" in text
    assert "| kill | SIGKILL; the supervisor starts it again | 3 | 6.0 (11.0) |" in text


def test_accounts_of_several_agents_are_added_up() -> None:
    accounting = {"generated": 100, "consumed": 70, "in_flight": 10, "dropped": {"learner_restart": 5, "stale": 15}}
    made = report(Record(), FINAL, FINAL | {"accounting": accounting, "env_frames": 70})
    dropped = {"learner_restart": 85, "stale": 15}
    assert made["ledger"] == {"generated": 1100, "consumed": 970, "in_flight": 30, "dropped": dropped, "balanced_snapshots": 7}
    assert made["env_frames"] == 970
    assert made["mean_return_last_100"] == [0.5, 0.5]


def test_broken_promises_are_named_in_all_places(tmp_path: Path) -> None:
    record = Record(breaches=[(50.0, Breach(RECOVERY, "too late")), (51.0, Breach(LEDGER, "one frame"))], num_breaches=2)
    made = report(record)
    assert exit_code(made) == 1
    assert made["promises_broken"] == sorted([RECOVERY, LEDGER])
    text = as_text(made)
    assert f"**broken: {', '.join(made['promises_broken'])}**" in text
    assert f"- 50 s: {RECOVERY}: too late" in text
    assert "left no report" in text
    write_report(tmp_path, made)
    assert json.loads((tmp_path / "soak.json").read_text()) == made


def test_long_series_and_every_kind_of_fault_are_drawn(tmp_path: Path) -> None:
    record = Record(
        memory={"actor-0": [Sample(float(at), at // 1000, float(at % 1000), 300 << 20) for at in range(3000)]},
        curve=[CurvePoint(float(at), at * 100, at / 3000) for at in range(3000)],
    )
    made = report(record, story=Story([Survived(10.0, (Fault(kind, "target"),), 6.0) for kind in KINDS]))
    assert 0 < len(made["curve"]) <= MOST_POINTS
    assert 0 < len(made["resident"]["actor-0"]) <= MOST_POINTS
    assert made["memory"]["actor-0"]["incarnations"] == 3
    draw(made, tmp_path / "soak.png")
    assert (tmp_path / "soak.png").read_bytes().startswith(b"\x89PNG")
