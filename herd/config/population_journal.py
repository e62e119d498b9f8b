"""RUN/population/journal.jsonl: the events of a population in order, one per line. They contain the whole lineage of every member."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from herd.config.draws import Value
from herd.config.foreign_files import MAX_JSON_BYTES, read_file

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

POPULATION = "population"
JOURNAL = "journal.jsonl"
Settings = dict[str, Value]
"""Values of settings, by dotted key."""


class JournalError(Exception):
    """A journal exists but cannot be read; one line."""


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Began(_Record):
    """The population started."""

    event: Literal["began"] = "began"
    run: str
    members: tuple[Settings, ...]
    """Initial settings of each member."""


class Copy(_Record):
    """A copy of weights from one member to another. In an ancestry it links a generation to the previous one."""

    number: int
    """Number of the order."""
    receiver: int
    donor: int
    donor_applied: int
    """Number of the newest order that the donor had carried out; 0 for none. Together with the next field it identifies a checkpoint."""
    donor_updates: int
    donor_env_frames: int
    learner_updates: int
    """The receiver's own count when it copied."""
    env_frames: int


class Decided(_Record):
    """A decision about a member that has played enough games. If it contains a copy or new settings, it is an order to the member."""

    event: Literal["decided"] = "decided"
    number: int
    member: int
    env_frames: int
    num_episodes: int
    fitness: float
    partner: int
    partner_fitness: float | None
    """None: it had no fitness yet."""
    donor: int | None
    donor_applied: int | None
    donor_updates: int | None
    donor_env_frames: int | None
    before: Settings
    settings: Settings

    @property
    def is_order(self) -> bool:
        """Whether the member must do something."""
        return self.donor is not None or self.before != self.settings

    def copy_at(self, *, learner_updates: int, env_frames: int) -> Copy | None:
        """The copy, carried out at these counts of the member; None if no copy was ordered."""
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
    """The member has carried out an order, and its checkpoint records this."""

    event: Literal["done"] = "done"
    number: int
    member: int
    env_frames: int
    learner_updates: int


class Failed(_Record):
    """The member could not carry out an order; no part of it was done."""

    event: Literal["failed"] = "failed"
    number: int
    member: int
    reason: str


class Returned(_Record):
    """The member continued from an older checkpoint: all orders above this number are undone."""

    event: Literal["returned"] = "returned"
    member: int
    number: int


Record = Annotated[Began | Decided | Done | Failed | Returned, Field(discriminator="event")]
_RECORD: TypeAdapter[Began | Decided | Done | Failed | Returned] = TypeAdapter(Record)


def journal_file(run_dir: Path) -> Path:
    """Return the path of a run's journal."""
    return run_dir / POPULATION / JOURNAL


def read_journal(path: Path) -> list[Began | Decided | Done | Failed | Returned]:
    """Return all events in order; none if there is no journal. An incomplete last line of a killed writer is ignored.

    Raises:
        JournalError: the journal cannot be read, or a line is damaged.
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


def copies_of(records: Sequence[BaseModel]) -> list[Copy]:
    """Return the copies that were carried out and not undone, in order."""
    decided = {record.number: record for record in records if isinstance(record, Decided)}
    copies: list[Copy] = []
    for record in records:
        if isinstance(record, Returned):
            copies = [copy for copy in copies if copy.receiver != record.member or copy.number <= record.number]
        if not isinstance(record, Done) or (order := decided.get(record.number)) is None:
            continue
        if (copy := order.copy_at(learner_updates=record.learner_updates, env_frames=record.env_frames)) is not None:
            copies.append(copy)
    return copies


def ancestry(copies: Sequence[Copy], member: int) -> list[Copy]:
    """Return the copies that led to a member's final weights, oldest first."""
    line: list[Copy] = []
    holder, applied = member, max((copy.number for copy in copies), default=0)
    for copy in sorted(copies, key=lambda copy: -copy.number):
        # The holder's newest copy that its weights already contained when they were taken.
        if copy.receiver == holder and copy.number <= applied:
            line.append(copy)
            holder, applied = copy.donor, copy.donor_applied
    return line[::-1]
