"""RUN/population/journal.jsonl: what happened in a population, one event a line, in order. Whoever reads it learns the whole lineage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from herd.config.draws import Value
from herd.config.foreign_files import MAX_JSON_BYTES, read_file

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

POPULATION = "population"
JOURNAL = "journal.jsonl"
Settings = dict[str, Value]
"""By dotted key."""


class JournalError(Exception):
    """A journal that is there and cannot be read; one line."""


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Began(_Record):
    """The population's first moment."""

    event: Literal["began"] = "began"
    run: str
    members: tuple[Settings, ...]
    """First settings of each."""


class Copy(_Record):
    """Where weights went from one member to another: also the link from a generation to the one before, in every ancestry."""

    number: int
    """Of the order."""
    receiver: int
    donor: int
    donor_applied: int
    """Number of the newest order that the donor had carried out; 0 for none. With the next, it names one of its checkpoints."""
    donor_updates: int
    donor_env_frames: int
    learner_updates: int
    """The receiver's own, when it copied."""
    env_frames: int


class Decided(_Record):
    """A member's games were enough. Where a copy or other settings follow from it, this is an order to the member."""

    event: Literal["decided"] = "decided"
    number: int
    member: int
    env_frames: int
    num_episodes: int
    fitness: float
    partner: int
    partner_fitness: float | None
    """None: it had none yet."""
    donor: int | None
    donor_applied: int | None
    donor_updates: int | None
    donor_env_frames: int | None
    before: Settings
    settings: Settings

    @property
    def is_order(self) -> bool:
        """Whether the member has anything to do."""
        return self.donor is not None or self.before != self.settings

    def copy_at(self, *, learner_updates: int, env_frames: int) -> Copy | None:
        """The copy that was carried out at these counts of the member's; None where none was ordered."""
        if self.donor is None or self.donor_applied is None or self.donor_updates is None or self.donor_env_frames is None:
            return None
        return Copy(
            number=self.number,
            receiver=self.member,
            donor=self.donor,
            donor_applied=self.donor_applied,
            donor_updates=self.donor_updates,
            donor_env_frames=self.donor_env_frames,
            learner_updates=learner_updates,
            env_frames=env_frames,
        )


class Done(_Record):
    """The member has carried an order out, and its checkpoint says so."""

    event: Literal["done"] = "done"
    number: int
    member: int
    env_frames: int
    learner_updates: int


class Failed(_Record):
    """The member could not, and nothing of the order was done."""

    event: Literal["failed"] = "failed"
    number: int
    member: int
    reason: str


class Returned(_Record):
    """The member went on from an older checkpoint: the orders above this number are behind its weights no more."""

    event: Literal["returned"] = "returned"
    member: int
    number: int


Record = Annotated[Began | Decided | Done | Failed | Returned, Field(discriminator="event")]
_RECORD: TypeAdapter[Began | Decided | Done | Failed | Returned] = TypeAdapter(Record)


def journal_file(run_dir: Path) -> Path:
    """Of a run."""
    return run_dir / POPULATION / JOURNAL


def read_journal(path: Path) -> list[Began | Decided | Done | Failed | Returned]:
    """All events, in order; none where there is no journal. What a killed writer left unfinished at the end is no event.

    Raises:
        JournalError: it cannot be read, or a line is damaged.
    """
    try:
        text = read_file(path, MAX_JSON_BYTES)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise JournalError(f"{path}: cannot be read: {error.strerror or error}") from error
    records = []
    for number, line in enumerate(text.split(b"\n")[:-1], start=1):
        try:
            records.append(_RECORD.validate_json(line))
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            raise JournalError(f"{path}: line {number} is damaged: {first['msg']}") from error
    return records


class Lineages:
    """Who descends from whom, as a journal has it."""

    def __init__(self, records: Iterable[BaseModel]) -> None:
        self.copies: list[Copy] = []
        """That happened, in order."""
        self._applied: dict[int, int] = {}
        """By member: number of the newest order behind its weights, 0 for none."""
        self._steps: dict[tuple[int, int], tuple[int, Copy | None]] = {}
        """By member and order that it carried out: the one before, and the copy that was ordered. Kept where the member went back on it:
        others may have copied the weights meanwhile."""
        decided: dict[int, Decided] = {}
        for record in records:
            if isinstance(record, Decided):
                decided[record.number] = record
            elif isinstance(record, Returned):
                self._applied[record.member] = record.number
            elif isinstance(record, Done) and (order := decided.get(record.number)) is not None:
                copy = order.copy_at(learner_updates=record.learner_updates, env_frames=record.env_frames)
                self._steps[record.member, record.number] = (self._applied.get(record.member, 0), copy)
                self._applied[record.member] = record.number
                if copy is not None:
                    self.copies.append(copy)

    def ancestry(self, member: int) -> list[Copy]:
        """The copies behind the weights that a member has in the end, oldest first."""
        line: list[Copy] = []
        weights = (member, self._applied.get(member, 0))
        for _ in self._steps:  # each is passed once at most
            if weights not in self._steps:
                break
            before, copy = self._steps[weights]
            if copy is None:
                weights = (weights[0], before)
            else:
                line.append(copy)
                weights = (copy.donor, copy.donor_applied)
        return line[::-1]
