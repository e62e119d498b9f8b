"""The state on disk: RUN/bandit/state.json, and the previous state next to it.

Snapshots are written atomically, and a digest detects later damage. Ensembles and the window of counted requests are in one file, so that
they always match.
"""

from __future__ import annotations

import hashlib
import re
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from pydantic import ValidationError

from herd.files import MAX_JSON_BYTES, make_folder, read_file, replace_file
from herd_bandit.saved_state import SavedState, state_text
from herd_bandit.task_bandit import CENTRAL

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from herd.protocols.bandit.tiling import Tiling
    from herd_bandit.task_bandit import Groups, TaskBandit
    from herd_bandit.window import RememberedClient

DIRECTORY = "bandit"
STATE = "state.json"
PREVIOUS = "state.previous.json"
_FILE = re.compile(rb'\{"sha256":"([0-9a-f]{64})","state":(.*)\}\n', re.DOTALL)


class SnapshotError(Exception):
    """A snapshot cannot be used; one line that names the file."""


class ForeignSnapshotError(SnapshotError):
    """An intact snapshot of other settings. Whether to continue without it is the operator's decision."""


class Restored(NamedTuple):
    """The contents of a snapshot."""

    path: Path
    bandits: dict[tuple[int, str], TaskBandit]
    """By (agent, task name). Task ids are not used, because they are positions in ``env.tasks``, which may grow."""
    clients: tuple[RememberedClient, ...]


def save(
    directory: Path,
    *,
    run: str,
    tiling: Tiling,
    bandits: Iterable[TaskBandit],
    clients: Iterable[RememberedClient],
    groups: Groups = CENTRAL,
) -> None:
    """Write a snapshot; the last one becomes the previous one.

    Raises:
        SnapshotError: the disk is full or there is no permission; existing snapshots are unchanged.

    """
    content = file_text(state_text(run=run, tiling=tiling, groups=groups, bandits=bandits, clients=clients))
    newest, previous = directory / STATE, directory / PREVIOUS
    try:
        make_folder(directory)
        with suppress(FileNotFoundError):
            newest.replace(previous)
        replace_file(newest, content)
    except OSError as error:
        with suppress(OSError):  # for a moment there is no newest snapshot; readers handle this
            if not newest.exists():
                previous.replace(newest)
        raise SnapshotError(f"{newest}: cannot be written: {error.strerror or error}; the previous state is kept") from error


def file_text(state: str) -> str:
    """Return the contents of the file: a state's JSON with its digest."""
    return f'{{"sha256":"{hashlib.sha256(state.encode()).hexdigest()}","state":{state}}}\n'


def load(directory: Path, *, tiling: Tiling, num_bandits: int, groups: Groups = CENTRAL) -> tuple[Restored | None, list[str]]:
    """Return the newest intact snapshot, or None, and a line for each damaged snapshot that was skipped.

    Raises:
        ForeignSnapshotError: an intact snapshot has other tiles, another number of bandits, or ensembles of other environments.

    """
    damaged = []
    for path in (directory / STATE, directory / PREVIOUS):
        try:
            content = read_file(path, MAX_JSON_BYTES)
        except FileNotFoundError:
            continue
        except OSError as error:
            damaged.append(f"{path}: cannot be read: {error.strerror or error}")
            continue
        try:
            return _restored(path, content, tiling=tiling, num_bandits=num_bandits, groups=groups), damaged
        except ForeignSnapshotError:
            raise
        except SnapshotError as error:
            damaged.append(str(error))
    return None, damaged


def _restored(path: Path, content: bytearray, *, tiling: Tiling, num_bandits: int, groups: Groups) -> Restored:
    found = _FILE.fullmatch(content)
    if found is None:
        raise SnapshotError(f"{path}: is incomplete")
    if hashlib.sha256(found[2]).hexdigest().encode() != found[1]:
        raise SnapshotError(f"{path}: is damaged: its contents do not match their digest")
    try:
        state = SavedState.model_validate_json(found[2])
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        raise SnapshotError(f"{path}: is not a bandit's state: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    _check_fit(path, state, tiling=tiling, num_bandits=num_bandits, groups=groups)
    try:
        bandits = {(saved.agent, saved.task): saved.restore(tiling, groups) for saved in state.bandits}
        return Restored(path, bandits, tuple(client.restore() for client in state.clients))
    except (ArithmeticError, ValueError) as error:
        raise SnapshotError(f"{path}: is damaged: {error}") from error


def _check_fit(path: Path, state: SavedState, *, tiling: Tiling, num_bandits: int, groups: Groups) -> None:
    if state.groups.restore() != groups:
        raise ForeignSnapshotError(
            f"{path}: made with other bandit.ensembles, bandit.max_ensembles or actor.environments; resume with those, or remove "
            f"{path.parent} to start without a state"
        )
    if state.tiling.restore() != tiling or any(len(saved.modes) != num_bandits for saved in state.bandits):
        raise ForeignSnapshotError(
            f"{path}: made with other bandit.bandits, tile_accuracy, min_inverse_temperature or max_inverse_temperature; resume with "
            f"those, or remove {path.parent} to start without a state"
        )
