"""Every edge of durability that the processes of a run reach. `test_failpoints_*.py` compares those of bandit, replay, population and of
the files' writer with what is recorded; a campaign names those of the others that are missing here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

When = Literal["first", "start", "run", "end", "after"]
"""first: at the first start of a run. start: at every start. run: again and again. end: when the process is asked to stop. after: in the
process that follows, or when something rare happens."""

CREATE = ("before create", "half written", "before fsync", "after fsync")
RENAME = ("before rename", "after rename")
FLUSH = ("before fsync of folder", "after fsync of folder")
REPLACE = (*CREATE, *RENAME, *FLUSH)
"""The edges of ``herd.files.replace_file``."""
APPEND = ("before append", "half appended", "after append")
REMOVE = ("before removal", "before rmdir")
SEND = ("before send", "after send")
SAME = frozenset({"after fsync", "before rename", "before fsync of folder", "after fsync of folder"})
"""Edges at which the files are as at another edge. Only a failing machine could tell them apart; CI leaves them out."""


@dataclass(frozen=True, slots=True)
class Row:
    """The edges at one kind of file, or around one type of message."""

    service: str
    kind: str
    edges: tuple[str, ...]
    when: When = "run"

    @property
    def points(self) -> list[str]:
        """The names of the points, as `tests.failpoints.child` records them."""
        return [f"{self.kind}: {edge}" for edge in self.edges]


WRITING = "checkpoints/N.writing"
ANNOUNCEMENT = (("processes", ("before mkdir",)), ("processes/*", REPLACE))
CHECKPOINT = (
    ("checkpoints", ("before mkdir",)),
    (".", FLUSH),
    (WRITING, ("before mkdir", *FLUSH)),
    (f"{WRITING}/*.safetensors", CREATE),
    (f"{WRITING}/state.json", CREATE),
    (f"{WRITING}/manifest.json", CREATE),
    ("checkpoints/N", (*RENAME, *FLUSH)),
    ("checkpoints/N.removing", (*RENAME, *REMOVE)),
)
_REACHED: dict[tuple[str, When], tuple[tuple[str, tuple[str, ...]], ...]] = {
    ("bandit", "start"): ANNOUNCEMENT,
    ("bandit", "run"): (
        ("bandit", ("before mkdir",)),
        (".", FLUSH),
        ("bandit/state.previous.json", RENAME),
        ("bandit/state.json", REPLACE),
        ("bandit/history.jsonl", APPEND),
        ("temperatures", SEND),
    ),
    ("population", "first"): (("population", ("before mkdir",)), (".", FLUSH)),
    ("population", "start"): (*ANNOUNCEMENT, ("population", FLUSH)),
    ("population", "run"): (("population/journal.jsonl", (*APPEND, "before fsync", "after fsync")), ("member_answer", SEND)),
    ("replay", "first"): (("replay", ("before mkdir",)), (".", FLUSH)),
    ("replay", "start"): ANNOUNCEMENT,
    ("replay", "run"): (
        ("replay", FLUSH),
        ("replay/N", ("before mkdir",)),
        ("replay/N/block-N-N.bin", (*REPLACE, "before remove")),
        ("replay/N/state.json", REPLACE),
        ("inserted", SEND),
    ),
    ("replay", "end"): (("replay/N/open-N.bin", REPLACE),),
    ("replay", "after"): (("replay/N/open-N.bin", ("before remove",)),),
    ("learner", "first"): (("agents", ("before mkdir",)),),
    ("learner", "start"): (*ANNOUNCEMENT, (".", ("before mkdir",)), ("agents", FLUSH), ("lineage.json", REPLACE)),
    ("learner", "run"): (
        ("metrics.jsonl", APPEND),
        *CHECKPOINT,
        ("publish_slice", SEND),
        ("ack", SEND),
        ("insert_pieces", SEND),
        ("member_report", SEND),
    ),
    ("learner", "end"): (("report.json", REPLACE),),
    ("learner", "after"): (
        ("checkpoints/N.replaced", (*RENAME, *REMOVE)),
        ("checkpoints/N.replaced.removing", (*RENAME, *REMOVE)),
        (WRITING, REMOVE),
    ),
    ("actor", "start"): ANNOUNCEMENT,
    ("actor", "after"): (("bandit/actors", ("before mkdir",)), ("bandit/actors/N-N.json", REPLACE)),
    ("inference", "start"): ANNOUNCEMENT,
    ("paramserver", "start"): ANNOUNCEMENT,
    ("paramserver", "run"): (("published", SEND),),
    # What a learner and ``herd train`` write, also rarely (tests.failpoints.writer).
    ("writer", "run"): (
        *ANNOUNCEMENT,
        ("session.json", REPLACE),
        ("config.yaml", REPLACE),
        ("starts.jsonl", APPEND),
        ("lineage.json", REPLACE),
        *CHECKPOINT,
        ("checkpoints/N.replaced", (*RENAME, *REMOVE)),
        ("checkpoints/N.replaced.removing", (*RENAME, *REMOVE)),
        (WRITING, REMOVE),
        ("metrics.jsonl", (*APPEND, *REPLACE)),
        ("report.json", REPLACE),
    ),
}
TABLE = tuple(Row(service, kind, edges, when) for (service, when), kinds in _REACHED.items() for kind, edges in kinds)


def rows(service: str, *when: When) -> list[Row]:
    """Return the rows of a service, at these times or at all."""
    return [row for row in TABLE if row.service == service and (not when or row.when in when)]
