"""A trained policy as one file: an uncompressed zip archive of those files of a run that are needed to play and to judge it.

It is a run directory when it is unzipped, and nothing in it is pickled. What unpacks it trusts neither names nor sizes, and refuses
settings that name code to run.
"""

from __future__ import annotations

import atexit
import io
import json
import re
import shutil
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from herd.files import FileError, replace_file
from herd.run.checkpoints import STATE, newest_checkpoint, read_state, verified_contents, write_checkpoint
from herd.run.journals import BANDIT_STATES
from herd.run.paths import AGENTS, CHECKPOINTS, CONFIG, REPORT, agent_directories, config_file, whole_run
from herd.run.settings import read_config

if TYPE_CHECKING:
    from collections.abc import Iterator

SUFFIX = ".herd"
GAME = "game.gif"
_PRIVATE = ("logging", "security", "placement", "run_dir", "resume")
"""Settings that playing does not need, and that may hold addresses or options with secrets."""
_FOR_TRAINING = frozenset({"optimizer", "random", "ledger", "replay_random", "population"})
"""Files and state of a checkpoint without which it can be played, but not trained further."""
_MAX_FILES = 64
_NAME = re.compile(
    r"config\.yaml|bandit/state(\.previous)?\.json"
    r"|(agents/\d{1,4}/)?(report\.json|game\.gif|evaluation[\w.-]*\.json|checkpoints/\d{12}/[a-z0-9_]+\.(safetensors|json))"
)
_CODE = re.compile(r"([A-Za-z_][\w.]*):(?!//)\S+")
"""A setting that makes Python import a module: ``walk:make``, or gymnasium's ``package:Name-v0``."""
_HARMLESS_MODULES = frozenset({"minigrid"})
"""Modules that only register environments, which shipped experiments name."""


class PackError(FileError):
    """A run cannot be packed, or a file is no usable pack; one line."""


def lay_out(run_dir: Path, folder: Path, checkpoint: Path | None = None) -> Path:
    """Copy what belongs into a pack to ``folder``; return the agent's directory in it, to which a game may be added.

    Raises:
        FileError: the run or its checkpoint cannot be read, or ``folder`` cannot be written.

    """
    whole = whole_run(run_dir)
    own = folder if whole == run_dir else folder / AGENTS / run_dir.resolve().name
    found = checkpoint if checkpoint is not None else newest_checkpoint(run_dir / CHECKPOINTS)
    if found is None:
        raise PackError(f"{run_dir} contains no checkpoint yet")
    manifest, contents = verified_contents(found)
    state = read_state(found)
    kept: dict[str, Any] = {name: value for name, value in state.items() if name not in _FOR_TRAINING}
    files = {name: bytes(data) for name, data in contents.items() if name.partition(".")[0] not in _FOR_TRAINING}
    _, settings = read_config(config_file(run_dir))
    try:
        own.mkdir(parents=True, exist_ok=True)
        shown = {key: value for key, value in settings.items() if key not in _PRIVATE}
        (folder / CONFIG).write_text(yaml.safe_dump(shown, sort_keys=False, allow_unicode=True), encoding="utf-8")
        write_checkpoint(own / CHECKPOINTS, manifest.learner_updates, files | {STATE: json.dumps(kept).encode()}, keep=1)
        scores = [run_dir / REPORT, *run_dir.glob(f"evaluation-{manifest.learner_updates}*.json")]
        for file, target in [(score, own) for score in scores] + [(whole / name, folder / "bandit") for name in BANDIT_STATES]:
            if file.is_file():
                target.mkdir(exist_ok=True)
                shutil.copy(file, target)
    except OSError as error:
        raise PackError(f"cannot write {error.filename or folder}: {error.strerror or error}") from error
    return own


def write_pack(folder: Path, output: Path) -> None:
    """Write the files of ``folder`` as a pack; ``output`` appears when it is complete. Raises PackError."""
    packed = io.BytesIO()
    try:
        with zipfile.ZipFile(packed, "w") as archive:
            for file in sorted(path for path in folder.rglob("*") if path.is_file()):
                # The date of the format's beginning, so that equal runs give equal packs.
                archive.writestr(zipfile.ZipInfo(file.relative_to(folder).as_posix()), file.read_bytes())
        replace_file(output, [packed.getbuffer()])
    except OSError as error:
        raise PackError(f"cannot write {output}: {error.strerror or error}") from error


def unpack(file: Path) -> Path:
    """Unpack to a folder that is removed when the process ends; return the directory of the run, or of its only packed agent.

    Raises:
        PackError: it is not a pack, is damaged, or its settings name code to run.

    """
    folder = Path(tempfile.mkdtemp(prefix="herd-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    try:
        with zipfile.ZipFile(file) as archive:
            entries = archive.infolist()
            if len(entries) > _MAX_FILES or len({entry.filename for entry in entries}) < len(entries):
                raise PackError(f"{file}: not a pack of herd pack: it has too many files, or one of them twice")
            for entry in entries:
                if not _NAME.fullmatch(entry.filename) or entry.compress_type != zipfile.ZIP_STORED:
                    raise PackError(f"{file}: not a pack of herd pack: it contains {entry.filename[:64]!a}")
                target = folder / entry.filename
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(archive.read(entry))
    except (EOFError, OSError, RuntimeError, ValueError, zipfile.BadZipFile) as error:
        raise PackError(f"{file}: cannot be unpacked: {' '.join(str(error).split())}") from error
    if not (folder / CONFIG).is_file():
        raise PackError(f"{file}: not a pack of herd pack: it contains no {CONFIG}")
    for key, value in _texts(read_config(folder / CONFIG)[1]):
        if (code := _CODE.fullmatch(value)) and code[1] not in _HARMLESS_MODULES:
            raise PackError(f"{file}: {key} names code to run, {value[:64]!a}: if you trust it, unzip the file and name the folder instead")
    return agent_directories(folder)[0]


def _texts(value: object, key: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _texts(str(name), f"{key}.{name}".lstrip("."))
            yield from _texts(inner, f"{key}.{name}".lstrip("."))
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner, key)
    elif isinstance(value, str):
        yield key, value
