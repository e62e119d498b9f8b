"""Checkpoints on disk: a folder per checkpoint, which is either complete or ignored. Needs no torch.

``<directory>/<learner updates, 12 digits>/`` holds ``<key>.safetensors`` for every group of tensors, ``state.json`` and, written last,
``manifest.json`` with the size and SHA-256 of all the others. A folder is written under a name that no reader looks at, flushed to the
disk, and renamed. One process writes a directory at a time.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import logging
import os
import re
import shutil
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from herd.files import MAX_JSON_BYTES, FileError, flush_directory, make_folder, mapping, parse_json, read_file

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

FORMAT_VERSION = 1
MAX_MANIFEST_BYTES = 1 << 20
"""Size limit of the manifest, which lists a few files."""
MAX_FILE_BYTES = 8 << 30
"""Size limit of a file of tensors: two moments of 1 G parameters in float32."""
MANIFEST = "manifest.json"
STATE = "state.json"
REPLACED = ".replaced"
"""Suffix of a folder that is being replaced. Readers use it only if the folder without the suffix is missing or incomplete."""
NAME = re.compile(rf"(\d{{12}})({re.escape(REPLACED)})?")


class CheckpointError(FileError):
    """Weights or a checkpoint cannot be written, read or used."""


class NotFiniteError(CheckpointError):
    """A checkpoint was not written, because one of its tensors is not finite."""


class TornCheckpointError(CheckpointError):
    """A checkpoint is incomplete or damaged; an older one may be intact."""


class ForeignCheckpointError(CheckpointError):
    """An intact checkpoint belongs to another run, network or environment; an older one may belong to this run."""


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    bytes: Annotated[int, Field(ge=0)]
    sha256: str


class Manifest(BaseModel):
    """manifest.json."""

    model_config = ConfigDict(extra="forbid")

    format: Literal["herd-checkpoint"]
    version: Literal[1]
    learner_updates: int
    files: dict[Annotated[str, StringConstraints(pattern=r"^[a-z0-9_]+\.(safetensors|json)$")], _File]


def verified_contents(path: Path) -> tuple[Manifest, dict[str, bytearray]]:
    """Return the manifest and all files that it lists, after verifying their sizes and digests.

    Raises ``TornCheckpointError`` if something is missing or damaged, ``CheckpointError`` if it cannot be read.
    """
    manifest = read_manifest(path)
    match = NAME.fullmatch(path.name)
    if match is not None and int(match[1]) != manifest.learner_updates:
        raise TornCheckpointError(f"{path}: its {MANIFEST} belongs to the checkpoint of {manifest.learner_updates} updates")
    return manifest, {name: _verified(path / name, expected) for name, expected in manifest.files.items()}


def read_state(path: Path) -> dict[str, Any]:
    """Return the verified state of a checkpoint, without its tensors.

    Raises:
        CheckpointError: as `verified_contents`; or the state is not a mapping.

    """
    expected = read_manifest(path).files.get(STATE)
    if expected is None:
        raise TornCheckpointError(f"{path}: its {MANIFEST} lists no {STATE}")
    try:
        return mapping(parse_json(_verified(path / STATE, expected)))
    except ValueError as error:
        raise ForeignCheckpointError(f"{path}: {STATE} is not that of a checkpoint: {error}") from error


def _verified(file: Path, expected: _File) -> bytearray:
    data = _read(file, MAX_JSON_BYTES if file.name == STATE else MAX_FILE_BYTES)
    if len(data) != expected.bytes:
        raise TornCheckpointError(f"{file.parent}: {file.name} has {len(data)} bytes, expected {expected.bytes}")
    if hashlib.sha256(data).hexdigest() != expected.sha256:
        raise TornCheckpointError(f"{file.parent}: {file.name} is damaged (SHA-256 differs)")
    return data


def read_manifest(path: Path) -> Manifest:
    """Return the manifest of a checkpoint's folder; for errors see `verified_contents`."""
    data = _read(path / MANIFEST, MAX_MANIFEST_BYTES)
    try:
        fields = parse_json(data)
    except ValueError as error:
        raise TornCheckpointError(f"{path}: {MANIFEST} is damaged") from error
    if isinstance(fields, dict) and fields.get("format") == "herd-checkpoint" and fields.get("version") != FORMAT_VERSION:
        raise CheckpointError(f"{path}: format version {ascii(fields.get('version'))[:40]}; this program reads version {FORMAT_VERSION}")
    try:
        return Manifest.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part)[:64] for part in first["loc"])
        raise TornCheckpointError(f"{path}: {MANIFEST} is damaged or foreign: {where!a}: {first['msg']}") from error


def _read(path: Path, max_bytes: int) -> bytearray:
    try:
        return read_file(path, max_bytes)
    except MemoryError as error:
        raise CheckpointError(f"{path}: is larger than this machine's memory") from error
    except (FileNotFoundError, NotADirectoryError) as error:
        raise TornCheckpointError(f"{path.parent}: {path.name} is missing") from error
    except OSError as error:
        # A bad block does not recover. A missing permission may be restored, and nothing is lost until then.
        kind = TornCheckpointError if error.errno in {errno.EIO, errno.EINVAL, errno.EFBIG, errno.EISDIR} else CheckpointError
        raise kind(f"{path}: cannot be read: {error.strerror or error}") from error


WRITING, REMOVING = ".writing", ".removing"
"""Suffixes of folders being written or removed, which readers ignore."""

_T = TypeVar("_T")
_log = logging.getLogger(__name__)


def write_checkpoint(directory: Path, learner_updates: int, files: Mapping[str, bytes], keep: int) -> Path:
    """Write a checkpoint, then remove the oldest beyond ``keep``; returns its folder, which is safely on disk by then.

    ``files``: contents by name, without the manifest. A checkpoint of the same number is replaced. Raises ``CheckpointError`` when it
    cannot be written (disk full, no permission); then every earlier checkpoint is as it was.
    """
    final = directory / f"{learner_updates:012d}"
    listed = {name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in files.items()}
    manifest = {"format": "herd-checkpoint", "version": FORMAT_VERSION, "learner_updates": learner_updates, "files": listed}

    def fill(writing: Path) -> None:
        for name, data in {**files, MANIFEST: json.dumps(manifest, indent=1).encode()}.items():
            _write_durably(writing / name, data)

    place_checkpoint(final, fill)
    # The checkpoint is safe. What cannot be removed now is removed after the next one.
    with contextlib.suppress(OSError):
        _remove_old(directory, final, keep)
    return final


def place_checkpoint(final: Path, fill: Callable[[Path], None]) -> None:
    """Let ``fill`` write the files of a checkpoint to an empty folder, which then becomes ``final``; until then no reader finds it.

    Raises:
        CheckpointError: it cannot be written; earlier checkpoints are as they were. Errors of ``fill`` that are no OSError pass through.

    """
    writing = final.with_name(final.name + WRITING)
    try:
        make_folder(final.parent)
        _remove_leftovers(final.parent)
        writing.mkdir()
        fill(writing)
        flush_directory(writing)
        _move_into_place(writing, final)
    except Exception as error:
        shutil.rmtree(writing, ignore_errors=True)
        if not isinstance(error, OSError):
            raise
        raise CheckpointError(f"{final}: cannot be written: {error.strerror or error}; earlier checkpoints are kept") from error


def newest_checkpoint(directory: Path) -> Path | None:
    """Return the folder of the newest complete checkpoint; None if there are no checkpoints.

    Torn ones are passed over with a line in the log that names them and the one taken. Raises ``CheckpointError``, one line that says
    what is wrong with each, when every one is torn, and at once when one cannot be read (no permission, another format version):
    starting anew or going back without a word would lose the run.
    """
    return newest_accepted(directory, lambda path: (verified_contents(path), path)[1])


def newest_accepted(directory: Path, take: Callable[[Path], _T]) -> _T | None:
    """Return the result of ``take`` for the newest checkpoint that it does not refuse; None if there are no checkpoints.

    ``take`` raises ``TornCheckpointError`` or ``ForeignCheckpointError`` for a checkpoint that is passed over. Otherwise as
    `newest_checkpoint`.
    """
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


def _write_durably(path: Path, data: bytes) -> None:
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _move_into_place(writing: Path, final: Path) -> None:
    replaced = final.with_name(final.name + REPLACED)
    displaced = final.exists()
    if displaced:
        shutil.rmtree(replaced, ignore_errors=True)
        final.rename(replaced)
    try:
        writing.rename(final)
        flush_directory(final.parent)
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
