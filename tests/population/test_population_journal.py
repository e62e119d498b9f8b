"""The journal's file: what a restart reads from it, and how much memory that takes."""

from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest
from herd_population.journal import Journal

from herd.files import FileError
from herd.protocols.population.journal import Decided, Done, journal_file, read_journal

if TYPE_CHECKING:
    from pathlib import Path

    from herd_population.controller import Event

    from herd.files import FileError
from herd.protocols.population.journal import Settings

RATE = "optimizer.learning_rate"
MEMBERS: tuple[Settings, ...] = ({RATE: 1e-3}, {RATE: 1e-4})


def journal_of(run_dir: Path, noted: list[Any] | None = None) -> Journal:
    """Open the journal; its events are appended to ``noted``."""
    return Journal(run_dir, run="pong", members=MEMBERS, note=(lambda _: None) if noted is None else noted.append)


def decision(number: int) -> Decided:
    """A decision with different settings for every number."""
    return Decided(
        number=number,
        member=number % 2,
        env_frames=100 * number,
        num_episodes=number,
        fitness=0.5,
        partner=1 - number % 2,
        partner_fitness=None,
        donor=None,
        donor_applied=None,
        donor_updates=None,
        donor_env_frames=None,
        before={RATE: 1e-3 / number},
        settings={RATE: 1e-3 / (number + 1)},
    )


def write(run_dir: Path, num_decisions: int) -> None:
    journal_of(run_dir)
    with journal_file(run_dir).open("a") as file:
        file.writelines(f"{decision(number).model_dump_json()}\n" for number in range(1, num_decisions + 1))


def test_a_restart_reads_all_events_and_ignores_an_incomplete_line(tmp_path: Path) -> None:
    journal = journal_of(tmp_path)
    assert journal.num_events == 1
    events: list[Event] = [decision(1), Done(number=1, member=1, env_frames=200, learner_updates=3), decision(2)]
    for event in events:
        journal.append(event)
    with journal_file(tmp_path).open("a") as file:
        file.write('{"event":"done","number":2')
    noted: list[Any] = []
    assert journal_of(tmp_path, noted).num_events == 4
    assert noted[1:] == events
    assert list(read_journal(journal_file(tmp_path))) == noted


def test_the_memory_of_a_restart_does_not_grow_with_the_journal(tmp_path: Path) -> None:
    peaks = []
    for num_decisions in (20, 4_000):
        run_dir = tmp_path / str(num_decisions)
        run_dir.mkdir()
        write(run_dir, num_decisions)
        journal_of(run_dir)  # whatever is loaded once
        tracemalloc.start()
        try:
            journal = journal_of(run_dir)
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
        assert journal.num_events == num_decisions + 1
    assert peaks[1] < peaks[0] + 64_000, "4,000 events take several megabytes"


def test_a_journal_of_another_run_is_refused_before_any_event_is_read(tmp_path: Path) -> None:
    write(tmp_path, 1)
    noted: list[Any] = []
    with pytest.raises(FileError, match="belongs to another run"):
        Journal(tmp_path, run="breakout", members=MEMBERS, note=noted.append)
    assert noted == []


@pytest.mark.parametrize("line", ["{}", "[1]", '{"event":"done","number":1}', '{"event":"sold"}', ""])
def test_a_damaged_line_is_an_error_with_its_number(tmp_path: Path, line: str) -> None:
    write(tmp_path, 1)
    with journal_file(tmp_path).open("a") as file:
        file.write(f"{line}\n")
    with pytest.raises(FileError, match="line 3, is not an event of a population"):
        journal_of(tmp_path)
