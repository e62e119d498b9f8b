from __future__ import annotations

import re
from pathlib import Path

from herd.view.plots.scores import Bar, draw_scores


def texts(picture: Path) -> list[str]:
    """The texts of an .svg in drawing order; matplotlib leaves each text as a comment beside its outlines."""
    return re.findall(r"<!-- (.*?) -->", picture.read_text())


def test_every_task_has_a_bar_sorted_by_score(tmp_path: Path) -> None:
    bars = [Bar(f"game_{k}", 10.0 ** (k / 12 - 1.5), None) for k in range(56)] + [Bar("skiing", -1.2, (-1.5, -1.0))]
    picture = tmp_path / "pictures" / "scores.svg"
    draw_scores(bars, picture, title="57 games", lines={"median": 0.85})
    said = texts(picture)
    names = [text for text in said if text.startswith(("game ", "skiing"))]
    assert names == ["skiing", *(f"game {k}" for k in range(56))]  # from bottom to top
    assert "\N{MINUS SIGN}120 %" in said
    assert "100,000 %" in said  # the axis is logarithmic
    assert "median 85 %" in said
    assert "57 games" in said


def test_scores_of_similar_size_use_a_linear_axis(tmp_path: Path) -> None:
    picture = tmp_path / "scores.svg"
    draw_scores([Bar("pong", 1.1, (1.0, 1.2)), Bar("boxing", 0.004, (-0.1, 0.1))], picture, title="two", lines={})
    said = texts(picture)
    assert {"110 %", "0.4 %"} <= set(said)
    assert not {"1,000 %", "10 %"} & set(said)
