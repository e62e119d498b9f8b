from __future__ import annotations

import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from herd.cli.main import main
from herd.config.loading import dump_settings
from herd.config.run import RunSettings
from herd.view.report.page import Game, write_page
from tests.evaluation.conftest import CATCH


class Reader(HTMLParser):
    """Collects the elements and their attributes in order."""

    VOID = frozenset({"meta", "img", "br", "link", "input", "wbr"})

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += f" {data.strip()}"


def make_points(run_dir: Path, tasks: tuple[str, ...] = ("pong",), *, updates: int = 100) -> None:
    run_dir.mkdir(parents=True, exist_ok=True)
    points = [
        {
            "env_frames": 10_000 * step,
            "wall_seconds": 5.0 * step,
            "frames_per_second": 2_000.0,
            "learner_updates": updates * step,
            **({"loss_total": 1.0 / (step + 1), "entropy": 1.5, "health": {"update_kl": 1e-3 * (step + 1)}} if updates else {}),
            "episode_return_mean_100": -20.0 + step,
            "tasks": {task: {"episodes": 100 * step, "episode_return_mean_100": -20.0 + step, "human_normalised": 0.1} for task in tasks},
        }
        for step in range(6)
    ]
    (run_dir / "metrics.jsonl").write_text("".join(json.dumps(point) + "\n" for point in points))


def page_of(run_dir: Path, **options: Any) -> str:
    file = run_dir / "report.html"
    assert write_page(run_dir, file, game=None, no_game="nobody played", **options) == len(file.read_bytes())
    return file.read_text(encoding="utf-8")


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    (tmp_path / "config.yaml").write_text(dump_settings(RunSettings(name="pong7")))
    make_points(tmp_path)
    return tmp_path


def test_the_page_is_self_contained_and_well_formed(run_dir: Path) -> None:
    reader = Reader(page_of(run_dir, reference_scores=lambda *_: (-20.7, 14.6)))
    addresses = [value for _, attributes in reader.elements for name, value in attributes.items() if name in {"src", "href"}]
    assert all(value is not None and value.startswith("data:") for value in addresses)
    assert not {"script", "link", "iframe", "object"} & {tag for tag, _ in reader.elements}
    html = (run_dir / "report.html").read_text()
    assert not re.search(r"@import|url\(", html)
    pictures = [attributes for tag, attributes in reader.elements if tag == "img"]
    assert [picture["alt"] for picture in pictures] == ["Returns and speed", "Losses and other numbers of learning"]
    assert all((picture["src"] or "").startswith("data:image/png;base64,iVBOR") for picture in pictures)


def test_the_page_has_all_its_parts(run_dir: Path) -> None:
    report = {"machine": {"processor": "A Processor"}, "frames_per_second": 1.0}
    (run_dir / "report.json").write_text(json.dumps(report))
    text = Reader(page_of(run_dir)).text
    for part in (
        "ended",
        "pong",
        "A Processor",
        "nobody played",
    ):
        assert part in text
    assert "all settings" in text.lower()
    assert "log_interval_seconds: 5.0" in text


def test_names_are_escaped_in_the_page(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("name: '<script>alert(1)</script>'\n")
    make_points(tmp_path, tasks=("<img src=x>",))
    reader = Reader(page_of(tmp_path))
    assert "script" not in {tag for tag, _ in reader.elements}
    assert all(attributes["src"] != "x" for tag, attributes in reader.elements if tag == "img")
    assert "<script>alert(1)</script>" in reader.text


def test_many_tasks_get_a_wide_picture_and_missing_losses_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(dump_settings(RunSettings()))
    make_points(tmp_path, tasks=tuple(f"game_{number}" for number in range(7)), updates=0)
    html = page_of(tmp_path)
    assert '<img class="curves wide"' in html
    assert "How it learns" not in html


def test_a_recorded_game_is_embedded_in_the_page(run_dir: Path) -> None:
    write_page(run_dir, run_dir / "out" / "page.html", game=Game(b"GIF89a", "pong: return 21"), no_game=None)
    _, image, _ = [attributes for tag, attributes in Reader((run_dir / "out" / "page.html").read_text()).elements if tag == "img"]
    assert image == {"alt": "A recorded game. pong: return 21", "src": "data:image/gif;base64,R0lGODlh"}


def test_the_command_records_a_game_of_the_newest_checkpoint(
    make_run: Callable[..., Path], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    run_dir = make_run(CATCH)
    assert main(["report", str(run_dir)]) == 2
    assert "metrics.jsonl" in capsys.readouterr().err
    make_points(run_dir, tasks=("catch",))
    assert main(["report", str(run_dir)]) == 0
    assert str(run_dir / "report.html") in capsys.readouterr().out
    html = (run_dir / "report.html").read_text()
    # games are played for a second, or until there is something to show
    assert re.search(r"catch: mean return -?[01]\.\d\d of \d+ games", html)
    assert "data:image/gif;base64,R0lGOD" in html
    assert main(["report", str(run_dir), "--no_game", "--output", str(tmp_path / "plain.html")]) == 0
    assert "(--no_game)" in (tmp_path / "plain.html").read_text()
    for folder in (run_dir / "checkpoints").iterdir():
        folder.rename(folder.with_name("gone"))
    assert main(["report", str(run_dir)]) == 0
    assert "No game: " in capsys.readouterr().out
    assert main(["report", str(run_dir), "--output", str(tmp_path / "page.pdf")]) == 2
    assert "the name of a report must end in .html" in capsys.readouterr().err
