"""What a run directory promises, checked from outside while its processes are killed: what was on disk once is not lost."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from herd.protocols.population.journal import Decided, journal_file, read_journal
from herd.run.checkpoints import TornCheckpointError, verified_contents

JOURNALS = ("metrics.jsonl", "evaluation.jsonl", "history.jsonl", "journal.jsonl")
_SEALED = re.compile(rb'\{"sha256":"([0-9a-f]{64})","state":(.*)\}\n', re.DOTALL)
_COMPLAINTS = re.compile(r"Traceback|skipped a (part of the )?snapshot|skipped the snapshot|checkpoint skipped|is damaged|starting without")
_ATTEMPTS = 5
"""A reader may meet the moment between two operations of a writer; what is wrong in all of these is wrong."""


class BrokenPromiseError(AssertionError):
    """Something that was promised is not there; one line."""


class Durable:
    """Remembers what it saw in a run directory. Call `look` as often as you like."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._lines: dict[Path, tuple[int, str]] = {}
        self._numbers: dict[str, int] = {}
        self._seen: set[Path] = set()
        self.num_checked = 0
        """Files that were found in order."""

    def look(self) -> None:
        """Check every file that must have survived.

        Raises:
            BrokenPromiseError: one did not, or a process complains of damage in its log.
        """
        for path in sorted(self._run_dir.rglob("*.jsonl")):
            if path.name in JOURNALS:
                self._check_journal(path)
        for directory in {path.parent for path in self._run_dir.rglob("lineage.json")} | {self._run_dir}:
            self._check_learner(directory)
        if (directory := self._run_dir / "bandit").is_dir():
            self._settled(lambda: self._check_bandit(directory))
        for directory in (self._run_dir / "replay").glob("*"):
            self._settled(lambda: self._check_replay(directory))  # noqa: B023  called at once
        for log in (self._run_dir / "logs").glob("*.log"):
            if (found := _COMPLAINTS.search(log.read_text(errors="replace"))) is not None:
                raise BrokenPromiseError(f"{log.name}: {found[0]}")

    def _settled(self, check: Callable[[], None]) -> None:
        for attempt in range(_ATTEMPTS):
            try:
                check()
            except (BrokenPromiseError, OSError, TornCheckpointError) as error:
                if attempt == _ATTEMPTS - 1:
                    raise BrokenPromiseError(str(error)) from error
            else:
                return

    def _grows(self, what: str, number: int) -> None:
        if number < self._numbers.get(what, number):
            raise BrokenPromiseError(f"{what} was {self._numbers[what]}, and is {number}")
        self._numbers[what] = number
        self.num_checked += 1

    def _check_journal(self, path: Path) -> None:
        """Every line is JSON, and the lines that were complete once are still there."""
        content = path.read_bytes()
        content = content[: content.rfind(b"\n") + 1]
        size, digest = self._lines.get(path, (0, hashlib.sha256().hexdigest()))
        if hashlib.sha256(content[:size]).hexdigest() != digest or len(content) < size:
            raise BrokenPromiseError(f"{path} lost or changed a line among its first {size} bytes")
        for line in content[size:].splitlines():
            try:
                json.loads(line)
            except ValueError as error:
                raise BrokenPromiseError(f"{path}: {line[:80]!r} is no line of JSON") from error
        self._lines[path] = (len(content), hashlib.sha256(content).hexdigest())
        self.num_checked += 1

    def _check_learner(self, directory: Path) -> None:
        """Every folder with the name of a checkpoint is whole; numbers of checkpoints, lineages and orders do not go back."""
        if (path := directory / "lineage.json").exists():
            self._seen.add(path)
            self._grows(f"the lineage of {directory.name}", json.loads(path.read_text())["lineage"])
        elif path in self._seen:
            raise BrokenPromiseError(f"{path} has vanished")
        folder = directory / "checkpoints"
        if folder.is_dir():
            self._settled(lambda: self._check_checkpoints(directory, folder))

    def _check_checkpoints(self, directory: Path, folder: Path) -> None:
        for path in sorted(folder.glob("[0-9]" * 12), reverse=True)[:2]:
            try:
                manifest, contents = verified_contents(path)
            except TornCheckpointError:
                if path.exists():
                    raise
                continue  # removed meanwhile
            state = json.loads(contents["state.json"])
            self._grows(f"updates of the checkpoints of {directory.name}", manifest.learner_updates)
            self._grows(f"frames in the checkpoints of {directory.name}", state["statistics"]["env_frames"])
            if (member := state.get("population")) is not None:
                self._check_member(directory, member["membership"])
            return
        if folder in self._seen:
            raise BrokenPromiseError(f"{folder}: no checkpoint is left")
        self._seen.add(folder) if any(folder.glob("[0-9]" * 12)) else None

    def _check_member(self, directory: Path, membership: dict[str, Any]) -> None:
        """What a member is follows from orders that are in the journal."""
        orders = {event.number: event for event in read_journal(journal_file(self._run_dir)) if isinstance(event, Decided)}
        if (applied := membership["applied"]) is not None:
            self._grows(f"orders carried out by member {directory.name}", applied["number"])
            order = orders.get(applied["number"])
            if order is None or order.member != int(directory.name) or order.settings != membership["settings"]:
                raise BrokenPromiseError(f"member {directory.name} is not what order {applied['number']} of the journal says")
        for copy in membership["ancestry"]:
            order = orders.get(copy["number"])
            if order is None or (order.member, order.donor, order.donor_updates) != (
                copy["receiver"],
                copy["donor"],
                copy["donor_updates"],
            ):
                raise BrokenPromiseError(f"member {directory.name} has a copy that order {copy['number']} of the journal does not say")

    def _check_bandit(self, directory: Path) -> None:
        """The newest state is whole, in one of two files, and its games do not become fewer."""
        found = [unseal(path) for name in ("state.json", "state.previous.json") if (path := directory / name).exists()]
        if not found and directory not in self._seen:
            return
        if not found:
            raise BrokenPromiseError(f"{directory}: no state is left")
        self._seen.add(directory)
        self._grows("games counted by the bandit", sum(sum(bandit["reports"]) for bandit in found[0]["bandits"]))

    def _check_replay(self, directory: Path) -> None:
        """The snapshot is whole, with every block that it lists; what writers were told was inserted stays inserted."""
        path = directory / "state.json"
        if not path.exists() and path not in self._seen:
            return
        state = unseal(path)
        self._seen.add(path)
        for name, digest in _blocks(state):
            if hashlib.sha256((directory / name).read_bytes()).hexdigest() != digest:
                raise BrokenPromiseError(f"{directory / name} is not what state.json says")
        for writer, sequence in state["writers"]:
            self._grows(f"pieces of writer {writer} in replay {directory.name}", sequence)


def _blocks(state: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for block in state["blocks"]:
        yield f"block-{block['number']}-{block['used']}.bin", block["sha256"]
    if state["open"] is not None:
        yield f"open-{state['open'][:16]}.bin", state["open"]


def unseal(path: Path) -> dict[str, Any]:
    """Return a state that carries its digest."""
    found = _SEALED.fullmatch(path.read_bytes())
    if found is None or hashlib.sha256(found[2]).hexdigest().encode() != found[1]:
        raise BrokenPromiseError(f"{path} is damaged")
    state: dict[str, Any] = json.loads(found[2])
    return state
