from __future__ import annotations

import json
import os
import re
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from herd.config.run import StopSettings
from herd.launch.readings import Readings
from herd.run.processes import end_session
from herd.view.snapshot import ChildRow, RunSnapshot, TaskRow
from herd.view.summary import print_summary
from herd.view.terminal import RunConsole, TrainConsole, clock, count, make_view, one_line, panel


def snapshot(**changes: object) -> RunSnapshot:
    values: dict[str, object] = {
        "elapsed_seconds": 30.0,
        "env_frames": 461_000.0,
        "frames_per_second": 15_432.4,
        "learner_updates": 180,
        "policy_lag": 1.84,
        "queue_unrolls": 20.0,
        "queue_capacity": 64.0,
        "starved_share": 0.03,
        "blocked_share": 0.4,
        "weights_wait_share": None,
        "progress": 0.24,
        "eta_seconds": 95.0,
        "tasks": (TaskRow("breakout", 12, 3.2), TaskRow("pong", 0, None)),
        "children": (ChildRow("learner-0", "running", 0, 400e6, 1.5, 4321.0), ChildRow("actor-0", "restarting", 3, None, None)),
    }
    return RunSnapshot(**{**values, **changes})  # type: ignore[arg-type]


def drawn(picture: RunSnapshot, width: int = 150) -> str:
    console = Console(file=StringIO(), width=width)
    console.print(panel(picture, "many"))
    return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]


def test_one_line_shows_the_main_values() -> None:
    line = one_line(snapshot())
    assert line.startswith(
        "00:30  461 k frames (24%, 01:35 left)  15,432 frames/s  breakout return 3.20  pong return -  lag 1.8  queue 20/64"
    )
    assert line.endswith("learner starved 3%, actors blocked 40%  restarts 3")
    unknown = one_line(
        snapshot(frames_per_second=None, policy_lag=None, queue_unrolls=None, progress=None, eta_seconds=None, tasks=(), children=())
    )
    assert "00:30  461 k frames  - frames/s  lag -  queue -/64" in unknown


def test_one_line_is_short_during_the_start_and_full_afterwards() -> None:
    assert one_line(snapshot(phase="starting: actor-0 is loading", env_frames=0.0)) == "00:30  starting: actor-0 is loading"
    assert one_line(snapshot(phase="stopping: waiting for actor-0")).startswith("00:30  stopping: waiting for actor-0  461 k frames")
    starting = drawn(snapshot(phase="starting: actor-0 is loading", starved_share=None, blocked_share=None))
    assert "starting: actor-0 is loading" in starting
    assert "starved" not in starting  # nobody works yet


def test_warnings_and_troubles_are_shown() -> None:
    warned = snapshot(
        warnings=("7 of 16 filters of the first layer are never active",), troubles=("3 writes failed", "other programs use 1.9 of 2 cores")
    )
    assert one_line(warned).endswith("3 writes failed  other programs use 1.9 of 2 cores  " + warned.warnings[0])
    assert not any(word in one_line(snapshot()) for word in ("filters", "failed"))
    text = drawn(warned)
    assert "7 of 16 filters of the first layer are never active (docs/runbook.md, Is it learning well?)" in text
    assert "3 writes failed" in text


def test_several_agents_have_a_row_each() -> None:
    agents = (snapshot(env_frames=261_000.0), snapshot(env_frames=200_000.0, tasks=(TaskRow("breakout", 0, None),)))
    picture = snapshot(tasks=(), agents=agents)
    assert "agent 0: 261 k frames, return breakout 3.20, pong -" in one_line(picture)
    assert "agent 1: 200 k frames, return breakout -" in one_line(picture)
    text = drawn(picture, width=100)
    rows = [line.split() for line in text.splitlines() if "261 k" in line or "200 k" in line]
    assert [row[1:4] for row in rows] == [["0", "261", "k"], ["1", "200", "k"]]


def test_panel_shows_tasks_processes_and_the_bottleneck() -> None:
    text = drawn(snapshot(), width=100)
    for part in ("15,432", "actors wait for the learner", "breakout", "3.20", "actor-0", "restarting", "381 MiB", "4,321", "01:35 left"):
        assert part in text


def test_long_lists_are_truncated() -> None:
    picture = snapshot(tasks=tuple(TaskRow(f"game{n}", 1, 1.0) for n in range(57)))
    text = drawn(picture)
    assert "game11" in text
    assert "game12" not in text
    assert "and 45 more" in text
    assert "57 tasks" in one_line(picture)
    assert "game1 " not in one_line(picture)


def test_many_tasks_are_summarised_as_worst_median_and_best() -> None:
    # 20 unsorted games with scores from -0.1 to 1.8; one more game has not ended.
    scores = [((7 * n) % 20 - 1) / 10 for n in range(20)]
    rows = [TaskRow(f"game{score:g}", 3, score * 40, 1_200_000.0 + 10_000 * n, score) for n, score in enumerate(scores)]
    picture = snapshot(tasks=(*rows, TaskRow("open", 0, None, 1_000_000.0)), human_normalised=0.612)
    short = "21 tasks, 1.00 M to 1.39 M frames each, 1 without a finished game, human-normalised 61% (mean capped)  lag 1.8"
    assert short in one_line(picture)
    text = drawn(picture)
    games = [
        words[1] for words in map(str.split, text.splitlines()) if words[1:] and words[1].startswith("game") and words[-2].endswith("%")
    ]
    assert games == ["game-0.1", "game0", "game0.1", "game0.8", "game1.6", "game1.7", "game1.8"]
    assert "and 14 more" in text
    assert len(text.splitlines()) <= 24


def test_several_tasks_are_shown_with_frames_and_scores() -> None:
    text = drawn(snapshot(tasks=(TaskRow("boxing", 5, 12.0, 461_000.0, 0.99), TaskRow("mine", 2, 7.5, 455_000.0))))
    rows = [line.split()[1:-1] for line in text.splitlines() if "boxing" in line or "mine" in line]
    assert rows == [["boxing", "5", "461", "k", "12.00", "-", "99%"], ["mine", "2", "455", "k", "7.50", "-", "-"]]
    # The view of a run with one task has no additional columns.
    assert "human" not in drawn(snapshot(tasks=(TaskRow("mine", 2, 7.5, 455_000.0),)))
    assert "frames   " in drawn(snapshot())


def test_best_return_and_entropy_are_shown_if_known() -> None:
    learned = snapshot(tasks=(TaskRow("pong", 400, 18.25, best_return=19.5),), entropy=0.4321)
    row = next(line for line in drawn(learned).splitlines() if "pong" in line)
    assert row.split()[1:-1] == ["pong", "400", "18.25", "19.50"]
    assert "0.43" in drawn(learned)
    assert "pong return 18.25 (best 19.50)  entropy 0.43  lag" in one_line(learned)
    young = snapshot(tasks=(TaskRow("pong", 3, -20.0),))
    assert "best" not in one_line(young)


@pytest.mark.parametrize("no_color", [False, True])
def test_problems_are_coloured_unless_no_color_is_set(monkeypatch: pytest.MonkeyPatch, no_color: bool) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    if no_color:
        monkeypatch.setenv("NO_COLOR", "1")
    console = Console(file=StringIO(), width=120, force_terminal=True, color_system="standard")
    console.print(panel(snapshot(warnings=("values are worse than a constant",), troubles=("2 writes failed",)), "run"))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    red, yellow = r"\x1b\[1;31m *", r"\x1b\[33m *"
    marked = [f"{red}restarting", f"{yellow}3", f"{yellow}values are worse", f"{red}2 writes failed"]
    assert [re.search(part, text) is not None for part in marked] == [not no_color] * 4
    assert all(part in text for part in ("restarting", "values are worse", "2 writes failed"))
    assert "\x1b[3" not in text or not no_color


def test_a_file_gets_plain_lines_at_intervals() -> None:
    output = StringIO()
    view = make_view(Console(file=output), "x", StopSettings(), [], [])
    for _ in range(2):
        view.show([], Readings(point={"env_frames": 1234}), 30.0, 30.0)
    view.note("actor-0 ended [SIGKILL]")
    assert output.getvalue().count("frames/s") == 1
    assert output.getvalue().endswith("actor-0 ended [SIGKILL]\n")


def test_durations_and_large_counts_are_short() -> None:
    assert [clock(seconds) for seconds in (0, 125.9, 3725)] == ["00:00", "02:05", "1:02:05"]
    assert [count(number) for number in (950, 9_999, 61_400, 1_254_000, 2e9)] == ["950", "9999", "61 k", "1.25 M", "2.00 G"]


def test_the_summary_names_figures_and_paths(tmp_path: Path) -> None:
    output = StringIO()
    (tmp_path / "checkpoints" / "000000000420").mkdir(parents=True)
    (tmp_path / "checkpoints" / "000000000042").mkdir()
    (tmp_path / "report.json").write_text(
        json.dumps(
            {
                "env_frames": 1_254_000,
                "wall_seconds": 125.0,
                "frames_per_second": 15432.1,
                "learner_updates": 420,
                "policy_lag": {"mean": 1.84, "max": 5},
                "tasks": {
                    "pong": {
                        "episode_return": {"mean_last_100": -20.512, "episodes": 31},
                        "progress": {"games": 15, "mean_first": -20.5, "mean_last": -18.25, "random": -20.7},
                    }
                },
            }
        )
    )
    (tmp_path / "metrics.jsonl").write_text(
        '{"env_frames": 1, "wall_seconds": 1, "clipped_share": 0.95, "health": {"update_kl": 0.129, "layers": []}}\n'
    )
    evaluation = {"lineage": 1, "learner_updates": 1500, "tasks": {"pong": {"mean": 18.25, "standard_error": 0.5}}}
    (tmp_path / "evaluation.jsonl").write_text(json.dumps(evaluation) + "\n")
    print_summary(Console(file=output, width=60), tmp_path, None)
    text = output.getvalue()
    for part in (
        "progress          return -20.50 -> -18.25 (first and last 15 games; random play: -20.70)\n",
        "warning           one update moves the policy by 0.13 nats\n",
        "warning           95% of updates are clipped\n",
        "1.25 M in 02:05",
        "15,432 (420 updates)",
        "1.8 updates",
        "-20.51 (mean return of all 31 games)",
        "000000000420",
        "report.json",
        "curve.png",
        "evaluation        pong: 18.25 +- 0.50 (after 1,500 updates)\n",
    ):
        assert part in text
    assert "000000000042\n" not in text
    (tmp_path / "empty").mkdir()
    end_session(tmp_path / "empty", exit_code=0, was_asked=False, message="", warnings=["actor-1 is given up"])
    print_summary(Console(file=output), tmp_path / "empty", "nothing to plot")
    assert "warning           actor-1 is given up\n" in output.getvalue()
    assert "result            none: the run ended before its first update was saved" in output.getvalue()
    (tmp_path / "report.json").unlink()
    (tmp_path / "evaluation.jsonl").write_text("{}\n")
    print_summary(Console(file=output), tmp_path, "nothing to plot")
    assert "none: the learner did not reach its end" in output.getvalue()
    assert "none: nothing to plot" in output.getvalue()
    assert "evaluation.jsonl, line 1, is not an evaluation" in output.getvalue()


@pytest.mark.parametrize("terminal", [False, True])
def test_the_view_of_a_run_draws_what_the_supervisor_reads(tmp_path: Path, terminal: bool) -> None:
    output = StringIO()
    view = make_view(Console(file=output, force_terminal=terminal, width=100), "x", StopSettings(), [], [tmp_path])
    view.show([], Readings(point={"env_frames": 1234, "wall_seconds": 2.0}), 1.0, 1.0)
    view.note("said")
    view.close()
    assert "1234" in output.getvalue()
    assert "said\n" in output.getvalue()
    assert ("\x1b" in output.getvalue()) == terminal


@pytest.mark.parametrize("terminal", [False, True])
def test_nothing_is_written_after_the_output_has_failed(terminal: bool) -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:
        with pytest.raises(OSError, match="No space left"):
            RunConsole(file=full).print("a table")
        console = TrainConsole(file=full, force_terminal=terminal)
        view = make_view(console, "x", StopSettings(), [], [])
        view.note("said")
        view.show([], Readings(), 1.0, 1.0)
        view.close()
        assert console.quiet
        os.dup2(os.open(os.devnull, os.O_WRONLY), full.fileno())


def test_a_console_escapes_control_characters_of_what_it_shows() -> None:
    output = StringIO()
    console = RunConsole(file=output, force_terminal=True, width=100)
    console.print("\x1b[2Jred\x07", style="red", markup=False, highlight=False)
    console.print("\x1b]0;owned", markup=False, highlight=False)
    assert r"\x1b[2Jred" in output.getvalue()
    assert r"\x1b]0;owned" in output.getvalue()
    assert "\x1b[31m" in output.getvalue()  # its own colour
    assert not re.search(r"\x07|\x1b\[2J|\x1b\]", output.getvalue())
