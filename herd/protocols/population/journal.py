"""RUN/population/journal.jsonl: the events of a population in order, one per line. They contain the whole lineage of every member."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from herd.config.sweep import Value
from herd.files import read_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

POPULATION = "population"
JOURNAL = "journal.jsonl"
Settings = dict[str, Value]
"""Values of settings, by dotted key."""


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
    """The member continued from an older checkpoint: the orders above this number no longer affect its weights."""

    event: Literal["returned"] = "returned"
    member: int
    number: int


Record = Annotated[Began | Decided | Done | Failed | Returned, Field(discriminator="event")]
_RECORD: TypeAdapter[Began | Decided | Done | Failed | Returned] = TypeAdapter(Record)


def journal_file(run_dir: Path) -> Path:
    """Return the path of a run's journal."""
    return run_dir / POPULATION / JOURNAL


def read_journal(path: Path) -> Iterator[Began | Decided | Done | Failed | Returned]:
    """Yield all events in order, with one in memory at a time; none if there is no journal.

    Raises:
        FileError: the journal cannot be read, or a line is damaged.

    """
    if path.exists() or path.is_symlink():  # a link that leads nowhere is damage
        yield from read_lines(path, "an event of a population", _event)


def _event(value: object) -> Began | Decided | Done | Failed | Returned:
    try:
        return _RECORD.validate_python(value)
    except ValidationError as error:
        raise ValueError(error.errors(include_url=False, include_input=False)[0]["msg"]) from error


class Lineages:
    """The lineage of every member, as a journal records it."""

    def __init__(self, records: Iterable[BaseModel]) -> None:
        self.copies: list[Copy] = []
        """All copies that were carried out, in order."""
        self._applied: dict[int, int] = {}
        """Number of the newest order behind the weights of each member; 0 for none."""
        self._steps: dict[tuple[int, int], tuple[int, Copy | None]] = {}
        """For each member and each order that it carried out: the order before, and the copy, if one was ordered. Entries stay when the
        member returns to an older checkpoint, because other members may have copied the weights before."""
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
        """Return the copies that led to a member's final weights, oldest first."""
        line: list[Copy] = []
        weights = (member, self._applied.get(member, 0))
        for _ in self._steps:  # a lineage has at most as many steps
            if weights not in self._steps:
                break
            before, copy = self._steps[weights]
            if copy is None:
                weights = (weights[0], before)
            else:
                line.append(copy)
                weights = (copy.donor, copy.donor_applied)
        return line[::-1]
