"""Checkpoints on disk: a folder per checkpoint, complete or not there.

``<directory>/<learner updates, 12 digits>/`` holds ``<key>.safetensors`` for every group of tensors, ``state.json`` and, written last,
``manifest.json`` with the size and SHA-256 of all the others. A folder is written under a name that no reader looks at, flushed to the
disk, and renamed. One process writes a directory at a time. Random states are uint8 tensors and JSON; nothing is pickled.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from herd.checkpoints.errors import CheckpointError, ForeignCheckpointError, TornCheckpointError
from herd.checkpoints.manifest import FORMAT_VERSION, MANIFEST, NAME, REPLACED, STATE, read_manifest, verified_contents
from herd.checkpoints.weights import decode_weights, encode_weights
from herd.config.foreign_files import parse_json

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from torch import Tensor

__all__ = [
    "Checkpoint",
    "CheckpointError",
    "ForeignCheckpointError",
    "TornCheckpointError",
    "load_checkpoint",
    "load_newest",
    "newest_checkpoint",
    "save_checkpoint",
]

SUFFIX = ".safetensors"
WRITING, REMOVING = ".writing", ".removing"
"""Suffixes of folders being written or removed, which readers ignore."""

_T = TypeVar("_T")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One checkpoint in memory."""

    path: Path
    learner_updates: int
    tensors: dict[str, dict[str, Tensor]]
    """Tensors by file (model, optimizer, random), then by name; on the CPU."""
    state: dict[str, Any]


def save_checkpoint(
    directory: Path, learner_updates: int, tensors: Mapping[str, Mapping[str, Tensor]], state: Mapping[str, Any], keep: int
) -> Path:
    """Write a checkpoint, then remove the oldest beyond ``keep``; returns its folder, which is safely on disk by then.

    ``tensors``: one file per key. ``state``: anything JSON can hold. A checkpoint of the same number is replaced. Raises
    ``CheckpointError`` when it cannot be written (disk full, no permission); then every earlier checkpoint is as it was.
    """
    final = directory / f"{learner_updates:012d}"
    writing = final.with_name(final.name + WRITING)
    # Encode first: an error in the state must not leave a folder behind.
    contents = {f"{key}{SUFFIX}": encode_weights(group) for key, group in tensors.items()}
    contents[STATE] = json.dumps(state, indent=1).encode()
    files = {name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in contents.items()}
    manifest = {"format": "herd-checkpoint", "version": FORMAT_VERSION, "learner_updates": learner_updates, "files": files}
    contents[MANIFEST] = json.dumps(manifest, indent=1).encode()
    try:
        _make_durably(directory)
        _remove_leftovers(directory)
        writing.mkdir()
        for name, data in contents.items():
            _write_durably(writing / name, data)
        _flush_directory(writing)
        _move_into_place(writing, final)
    except OSError as error:
        shutil.rmtree(writing, ignore_errors=True)
        raise CheckpointError(f"{final}: cannot be written: {error.strerror or error}; earlier checkpoints are kept") from error
    # The checkpoint is safe. What cannot be removed now is removed after the next one.
    with contextlib.suppress(OSError):
        _remove_old(directory, final, keep)
    return final


def newest_checkpoint(directory: Path) -> Path | None:
    """Return the folder of the newest complete checkpoint; None if there are no checkpoints.

    Torn ones are passed over with a line in the log that names them and the one taken. Raises ``CheckpointError``, one line that says
    what is wrong with each, when every one is torn, and at once when one cannot be read (no permission, another format version):
    starting anew or going back without a word would lose the run.
    """
    return _newest(directory, lambda path: (verified_contents(path), path)[1])


def load_newest(directory: Path, accept: Callable[[Checkpoint], None]) -> Checkpoint | None:
    """Read the newest complete checkpoint that ``accept`` does not refuse; None if there are no checkpoints.

    ``accept`` raises ``ForeignCheckpointError`` for one that is not this run's; it is then passed over like a torn one.
    Otherwise as `newest_checkpoint`.
    """

    def load(path: Path) -> Checkpoint:
        checkpoint = load_checkpoint(path)
        accept(checkpoint)
        return checkpoint

    return _newest(directory, load)


def load_checkpoint(path: Path) -> Checkpoint:
    """Read one checkpoint and verify all of it.

    Raises ``TornCheckpointError`` if it is incomplete or damaged, and ``CheckpointError`` if it cannot be read or is not a checkpoint.
    """
    manifest, contents = verified_contents(path)
    try:
        state = parse_json(contents.pop(STATE))
        tensors = {name.removesuffix(SUFFIX): decode_weights(data) for name, data in contents.items()}
    except (CheckpointError, KeyError, ValueError) as error:
        raise ForeignCheckpointError(f"{path}: is intact, but not a checkpoint of this program: {error}") from error
    if not isinstance(state, dict):
        raise ForeignCheckpointError(f"{path}: is intact, but not a checkpoint of this program: {STATE} is not a mapping")
    return Checkpoint(path=path, learner_updates=manifest.learner_updates, tensors=tensors, state=state)


def _newest(directory: Path, take: Callable[[Path], _T]) -> _T | None:
    """Return the result of ``take`` for the newest checkpoint that it does not refuse."""
    refused: list[CheckpointError] = []
    for path in _checkpoints(directory):
        try:
            taken = take(path)
        except (TornCheckpointError, ForeignCheckpointError) as error:
            refused.append(error)
            continue
        if refused:
            _log.warning("checkpoint skipped: %s; continuing from %s", "; ".join(map(str, refused)), path)
        return taken
    if len(refused) == 1:
        raise refused[0]
    if refused:
        raise CheckpointError(f"{directory}: none of {len(refused)} checkpoints can be used: {'; '.join(map(str, refused))}")
    return None


def _checkpoints(directory: Path) -> list[Path]:
    """Return the folders that look like checkpoints, newest first; a replaced one follows the one that replaced it."""
    try:
        names = [match for entry in directory.iterdir() if (match := NAME.fullmatch(entry.name))]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise CheckpointError(f"{directory}: cannot be read: {error.strerror or error}") from error
    return [directory / match[0] for match in sorted(names, key=lambda match: (-int(match[1]), match[2] is not None))]


def _make_durably(directory: Path) -> None:
    """Create a folder, and make its name in the parent folder survive a power cut."""
    if not directory.is_dir():
        directory.mkdir(parents=True, exist_ok=True)
        _flush_directory(directory.parent)


def _write_durably(path: Path, data: bytes) -> None:
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _flush_directory(path: Path) -> None:
    """Make the names in a folder survive a power cut; flushing the files alone does not."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _move_into_place(writing: Path, final: Path) -> None:
    replaced = final.with_name(final.name + REPLACED)
    displaced = final.exists()
    if displaced:
        shutil.rmtree(replaced, ignore_errors=True)
        final.rename(replaced)
    try:
        writing.rename(final)
        _flush_directory(final.parent)
    except OSError:
        # The caller is told that the checkpoint does not exist, so it must not be found later either.
        if final.exists():
            final.rename(writing)
        if displaced:
            replaced.rename(final)
        raise
    shutil.rmtree(replaced, ignore_errors=True)


def _remove_leftovers(directory: Path) -> None:
    """Remove the remains of a killed process. Remains that cannot be removed do no harm; removal is tried again later."""
    for entry in directory.iterdir():
        if entry.name.endswith((WRITING, REMOVING)):
            shutil.rmtree(entry, ignore_errors=True)


def _remove_old(directory: Path, newest: Path, keep: int) -> None:
    others = [path for path in _checkpoints(directory) if path != newest]
    # Damaged ones do not count, so that they cannot displace the last intact one. What cannot be read is kept.
    judged = {path: _looks_whole(path) for path in others}
    # Folders above the newest one came from elsewhere. They were skipped, and must not be removed.
    whole = [path for path in others if judged[path] and path.name < newest.name and not _was_replaced(path, judged)]
    kept = [newest, *whole][: max(keep, 1)]
    for path in others:
        torn_and_of_no_use = judged[path] is False and len(kept) >= keep
        if path in whole[len(kept) - 1 :] or torn_and_of_no_use or _was_replaced(path, judged):
            removing = path.with_name(path.name + REMOVING)
            path.rename(removing)
            shutil.rmtree(removing)


def _was_replaced(path: Path, judged: Mapping[Path, bool | None]) -> bool:
    """Return whether this is a replaced folder whose successor is complete."""
    if not path.name.endswith(REPLACED):
        return False
    successor = path.with_name(path.name.removesuffix(REPLACED))
    return judged.get(successor, successor.exists()) is True


def _looks_whole(path: Path) -> bool | None:
    """Return whether all files exist with the right sizes, which is a cheap part of the verification; None if this is unknown."""
    try:
        return all((path / name).stat().st_size == file.bytes for name, file in read_manifest(path).files.items())
    except (TornCheckpointError, FileNotFoundError):
        return False
    except (CheckpointError, OSError):
        return None
