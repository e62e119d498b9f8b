"""The plot of a population: lines of descent through copies, and the message if there is nothing to draw."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from herd.cli.main import main
from herd.files import FileError
from herd.view.plots.population import along, read_population

RATE = "optimizer.learning_rate"


def _decided(number: int, member: int, donor: int | None, applied: int, frames: int) -> dict[str, Any]:
    return {
        "event": "decided",
        "number": number,
        "member": member,
        "env_frames": 0,
        "num_episodes": 0,
        "fitness": 0.0,
        "partner": 0,
        "partner_fitness": None,
        "donor": donor,
        "donor_applied": None if donor is None else applied,
        "donor_updates": None if donor is None else frames // 10,
        "donor_env_frames": None if donor is None else frames,
        "before": {RATE: 1.0},
        "settings": {RATE: 2.0},
    }


def _done(number: int, member: int, frames: int) -> dict[str, Any]:
    return {"event": "done", "number": number, "member": member, "env_frames": frames, "learner_updates": frames // 10}


EVENTS = [
    {"event": "began", "run": "run", "members": [{RATE: 1.0}] * 3},
    _decided(1, 1, 0, 0, 400),  # member 1 copies member 0 as of frame 400
    _done(1, 1, 300),
    _decided(2, 0, 2, 0, 450),  # member 0 copies member 2 afterwards, which does not affect member 1
    _done(2, 0, 500),
    _decided(3, 2, 1, 1, 700),  # member 2 copies member 1
    _done(3, 2, 600),
    _decided(4, 2, None, 0, 0),  # and then changes only its rate
    _done(4, 2, 800),
    _decided(5, 1, 0, 2, 900),
    {"event": "failed", "number": 5, "member": 1, "reason": "no disk"},
    _decided(6, 1, 2, 4, 900),  # never carried out
]


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    run = tmp_path / "run"
    (run / "population").mkdir(parents=True)
    (run / "config.yaml").write_text("name: run\nseed: 1\n")
    (run / "population" / "journal.jsonl").write_text("".join(json.dumps(event) + "\n" for event in EVENTS))
    for agent in range(3):
        (run / "agents" / str(agent)).mkdir(parents=True)
        points = [
            {
                "env_frames": frames,
                "wall_seconds": frames / 100,
                "learner_updates": frames // 10,
                "episode_return_mean_100": 1000.0 * agent + frames,
                "population": {
                    "number": 0,
                    "copied": 0,
                    "fitness": float(agent) if frames > 900 else None,
                    "settings": {RATE: 1.0 + agent},
                },
            }
            for frames in range(100, 1001, 100)
        ]
        (run / "agents" / str(agent) / "metrics.jsonl").write_text("".join(json.dumps(point) + "\n" for point in points))
    return run


def test_the_line_of_the_best_member_follows_its_ancestors(run_dir: Path) -> None:
    """The line is 0 until 400, then 1 from its 300 to 700, then 2 from its 600: 400 + 400 + 400 frames led to the weights of 2."""
    history = read_population(run_dir)
    assert history.best.number == 2
    assert [tuple(segment) for segment in history.descent(2)] == [(0, 0.0, 400, 0.0), (1, 300.0, 700, 400.0), (2, 600.0, np.inf, 800.0)]
    ages, scores = along(history.members, history.descent(2), [member.score for member in history.members])
    assert ages.tolist() == [100, 200, 300, 400, 500, 600, 700, 800, 900, 1000, 1100, 1200]
    assert scores.tolist() == [100, 200, 300, 400, 1400, 1500, 1600, 1700, 2700, 2800, 2900, 3000]
    _, rates = along(history.members, history.descent(2), history.setting(RATE))
    assert rates.tolist() == [1.0] * 4 + [2.0] * 4 + [3.0] * 4


def test_a_member_without_copies_is_its_own_line(run_dir: Path) -> None:
    journal = run_dir / "population" / "journal.jsonl"
    journal.write_text(json.dumps(EVENTS[0]) + "\n" + '{"event": "decided", "num')  # the last line is incomplete
    assert [tuple(segment) for segment in read_population(run_dir).descent(1)] == [(1, 0.0, np.inf, 0.0)]


def test_discarded_copies_are_not_ancestors(run_dir: Path) -> None:
    with (run_dir / "population" / "journal.jsonl").open("a") as file:
        file.write(json.dumps({"event": "returned", "member": 2, "number": 0}) + "\n")
    assert [segment.member for segment in read_population(run_dir).descent(2)] == [2]


def test_the_command_draws(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plot", "--population", str(run_dir)]) == 0
    assert capsys.readouterr().out.strip() == str(run_dir / "population.png")
    assert (run_dir / "population.png").stat().st_size > 20_000


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda path: path.unlink(), "not a population"),
        (lambda path: path.write_text('{"event": "decided"}\n'), "line 1, is not an event of a population"),
        (lambda path: shutil.rmtree(path.parents[1] / "agents" / "1"), "agents/1/metrics.jsonl"),
    ],
)
def test_a_run_that_cannot_be_drawn_is_refused_in_one_line(run_dir: Path, harm: Any, said: str) -> None:
    harm(run_dir / "population" / "journal.jsonl")
    with pytest.raises(FileError, match=said) as refusal:
        read_population(run_dir)
    assert "\n" not in str(refusal.value)
