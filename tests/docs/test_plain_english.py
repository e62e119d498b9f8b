"""Descriptions are sentences: each first says what the thing is.

A program cannot judge prose. This test refuses known problems: descriptions that begin in the middle of a sentence, and idioms that a
reader whose first language is not English cannot look up.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
FRAGMENTS = re.compile(r"(Of|Between|That|Which|Whose|At the|Since|Waited|Spent|Likewise|As above)\b")
"""First words of a description whose subject is missing: "Of the request socket" instead of "Port of the request socket"."""
IDIOMS = (
    "who waits for whom",
    "will not do",
    "compare with nobody",
    "begin anew",
    "begins anew",
    "in the clear",
    "are dealt",
    "is dealt",
    "puts up with",
    "and the like",
    "lets in",
)
PAGES = sorted(
    [*(ROOT / "docs").glob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "helm" / "herd" / "values.yaml"],
    key=lambda path: path.name,
)


def descriptions(page: str) -> Iterator[tuple[str, str]]:
    """Name and description of each row of a generated page's tables."""
    for line in (ROOT / "docs" / page).read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("| `") and len(cells) >= 4:
            yield cells[0].strip("`"), cells[-1].removesuffix(" |")


def described() -> list[tuple[str, str]]:
    return [*descriptions("configuration.md"), *descriptions("metrics.md")]


def comments() -> list[str]:
    """First lines of the comments above the chart's values."""
    lines = (ROOT / "helm" / "herd" / "values.yaml").read_text(encoding="utf-8").splitlines()
    found = []
    for before, line in zip(["", *lines], lines, strict=False):
        if line.lstrip().startswith("# ") and not before.lstrip().startswith("#"):
            found.append(line.strip("# "))
    return found


def test_descriptions_and_comments_are_found() -> None:
    assert len(described()) > 300
    assert len(comments()) > 100
    assert dict(described())["learner.batch_size"].startswith("Number of unrolls")


def test_descriptions_are_sentences() -> None:
    for name, text in described():
        assert FRAGMENTS.match(text) is None, f"{name}: begin with the thing itself: {text}"
        assert text[0].isupper() or text[0] in "`0123456789" or text.startswith(("rho-bar", "c-bar")), f"{name}: {text}"
        assert text.endswith((".", "...")), f"{name}: {text}"


def test_comments_of_the_chart_are_sentences() -> None:
    assert [text for text in comments() if FRAGMENTS.match(text)] == []


def test_pages_contain_no_listed_idioms() -> None:
    for page in PAGES:
        prose = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        assert [idiom for idiom in IDIOMS if re.search(rf"\b{idiom}\b", prose)] == [], page.name
