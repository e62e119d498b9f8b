"""The files of a run directory and who reads them; and the judgement of what a reader did with a damaged one."""

from __future__ import annotations

import random
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from tests.damage.damages import CHANGED, PLACES, REPLACED, TORN, UNREADABLE
from tests.damage.readers import READERS, Said


@dataclass(frozen=True)
class Row:
    """Files of one kind."""

    readers: tuple[str, ...]
    """Those that read the contents, and say so if they cannot."""
    is_digested: bool = False
    """Whether a digest, or a check of every byte, notices any change."""
    opened_by: tuple[str, ...] = ()
    """Those that open the file, whatever is in it, and may refuse what stands in its place."""


SHOWN = ("status", "status --json")
PLAYED = ("evaluate", "watch", "load_policy")
WITHOUT_SETTINGS = ("plot --bandit", "plot --population")
"""Those that need no more of a run's settings than that the file is there."""
_CHECKPOINT = (*SHOWN, "report", "learner", "train")
ROWS: dict[str, Row] = {
    "config.yaml": Row(tuple(name for name in READERS if name not in WITHOUT_SETTINGS), opened_by=WITHOUT_SETTINGS),
    "starts.jsonl": Row((), opened_by=("train",)),
    "session.json": Row((*SHOWN, "report")),
    "processes/*.json": Row(SHOWN),
    "agents/?/metrics.jsonl": Row((*SHOWN, "report", "plot", "plot --population", "load_run", "train")),
    "agents/?/report.json": Row(("report", "load_run", "train")),
    "agents/?/evaluation.jsonl": Row(("report", "plot", "evaluator", "train")),
    "agents/?/lineage.json": Row(("learner", "evaluator")),
    "agents/0/checkpoints/newest/*": Row((*_CHECKPOINT, *PLAYED), is_digested=True),
    "agents/1/checkpoints/newest/*": Row(_CHECKPOINT, is_digested=True),
    "agents/?/checkpoints/older/*": Row((), is_digested=True),
    "bandit/state.json": Row(("bandit", *PLAYED), is_digested=True),
    "bandit/state.previous.json": Row((), is_digested=True),
    "bandit/history.jsonl": Row(("plot --bandit",)),
    "bandit/actors/*.json": Row(()),
    "population/journal.jsonl": Row(("population", "plot --population")),
    "replay/0/*": Row(("replay",), is_digested=True),
    "keys/*": Row(("keys", "train")),
    "logs/*.log": Row(()),
    "*.png": Row(()),
    ".lock": Row((), opened_by=("train",)),
}
LOUD = frozenset({*UNREADABLE, *PLACES})
"""Damage that every reader of the file must name."""


def name_of(run_dir: Path, file: Path) -> str:
    """Return a file's name in the table: checkpoints are newest or older."""
    name = file.relative_to(run_dir).as_posix()
    if "/checkpoints/" in name:
        newest = max(path.name for path in file.parents[1].iterdir())
        name = name.replace(file.parent.name, "newest" if file.parent.name == newest else "older")
    return name


def row_of(run_dir: Path, file: Path) -> Row:
    """Return the row of a file.

    Raises:
        KeyError: there is none.

    """
    name = name_of(run_dir, file)
    try:
        return next(row for pattern, row in ROWS.items() if fnmatch(name, pattern))
    except StopIteration:
        raise KeyError(f"no row of the table is for {name}") from None


def kinds_of(file: Path) -> list[str]:
    """Return the kinds of damage that a file can have."""
    return [*UNREADABLE, *PLACES, *REPLACED, *TORN, *(CHANGED if file.suffix in {".json", ".jsonl", ".yaml"} else ())]


def damage(file: Path, kind: str, seed: str) -> bool:
    """Damage a file; returns whether anything changed."""
    before = file.read_bytes()
    if place := (PLACES | REPLACED).get(kind):
        place(file)
        return kind in PLACES or not file.exists() or file.read_bytes() != before
    after = {**UNREADABLE, **TORN, **CHANGED}[kind](random.Random(seed), before)
    file.write_bytes(after)
    return after != before


def judged(row: Row, file: Path, kind: str, reader: str, said: Said, intact: Said) -> str:
    """Return how a reader took a damaged file: refused, said or in range. ``intact`` is what it says about the intact run.

    Raises:
        AssertionError: it did what it must not do.

    """
    names = (file.name, file.parent.name) if "checkpoints" in file.parts else (file.name,)
    new = "\n".join(set(said.text.splitlines()).difference(intact.text.splitlines()))
    is_named = any(name in new for name in names)
    assert "Traceback" not in said.text, said.err
    assert len(said.err) < 20_000, "too many words"
    if said.code:
        lines = [line for line in said.err.splitlines() if line.startswith("herd: ") and "resumes from" not in line]
        assert len(lines) == 1, f"not one line: {said.err}"
        assert any(name in lines[0] for name in names), f"the file is not named: {lines[0]}"
        may_refuse = reader in row.readers or (reader in row.opened_by and kind in PLACES)
        assert may_refuse, f"refused because of a file that it does not need: {lines[0]}"
        return "refused"
    # As that of a run that has just begun, or that lost power while the first line was being written.
    may_be_new = file.suffix == ".jsonl" and kind in {"empty", "zeros"}
    if reader in row.readers and not may_be_new and (kind in LOUD or row.is_digested):
        assert is_named, f"the file is not named: {said.text[-500:]}"
    return "said" if is_named else "in range"
