"""Verifies a checkpoint's folder: compares manifest.json with the files that it lists. Needs no torch."""

from __future__ import annotations

import errno
import hashlib
import re
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from herd.files import MAX_JSON_BYTES, parse_json, read_file

if TYPE_CHECKING:
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


class CheckpointError(Exception):
    """Weights or a checkpoint cannot be written, read or used."""


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
    contents: dict[str, bytearray] = {}
    for name, expected in manifest.files.items():
        data = _read(path / name, MAX_JSON_BYTES if name == STATE else MAX_FILE_BYTES)
        if len(data) != expected.bytes:
            raise TornCheckpointError(f"{path}: {name} has {len(data)} bytes, expected {expected.bytes}")
        if hashlib.sha256(data).hexdigest() != expected.sha256:
            raise TornCheckpointError(f"{path}: {name} is damaged (SHA-256 differs)")
        contents[name] = data
    return manifest, contents


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
