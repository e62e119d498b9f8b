"""A copy of a run in object storage, at any address that fsspec understands, such as ``s3://bucket/runs/pong``.

The copy has the layout of the run directory, without logs, processes and the contents of replay. A checkpoint's manifest is written last
and removed first, so that a checkpoint without one is never looked at; objects themselves are replaced atomically by the storage. Sizes and
digests are verified as for local files, and nothing is unpickled. Each folder of a copy has one writer.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from herd.files import MAX_JSON_BYTES, FileError, make_folder, read_file, replace_file
from herd.run.checkpoints import (
    MANIFEST,
    MAX_FILE_BYTES,
    MAX_MANIFEST_BYTES,
    WRITING,
    CheckpointError,
    TornCheckpointError,
    newest_checkpoint,
    place_checkpoint,
    read_manifest,
    verified_contents,
)
from herd.run.journals import BANDIT_STATES, EVALUATIONS, METRICS
from herd.run.paths import AGENTS, CHECKPOINTS, CONFIG, CURVE, LEARNING, LINEAGE, REPORT, STARTS, checkpoint_folders
from herd.run.processes import SESSION
from herd.telemetry.logs import get_logger, warn_limited

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

AGENT_FILES = (METRICS, EVALUATIONS, REPORT, CURVE, LEARNING)
"""Files of an agent, besides its checkpoints."""
START_FILES = (CONFIG, STARTS)
"""Files of a whole run that the first agent's learner writes if there is no ``herd train``."""
RUN_FILES = (*START_FILES, SESSION, *BANDIT_STATES, "bandit/history.jsonl", "population/journal.jsonl")
"""All files of a whole run."""
FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 2.0, 300.0
"""Pauses between attempts while the storage fails; each is twice the one before."""
END_SECONDS = 600.0
"""Longest wait for the last copy at the end of a run: 10 GB at 17 MB/s."""
STOP_SECONDS = 30.0
"""Longest wait for it after a signal. The checkpoint on the local disk is complete by then, and ``herd train`` allows 60 s for both."""
_ROUNDS = 3
"""Attempts to copy a checkpoint that is replaced or removed while it is copied. By default one exists for ten minutes."""
_WHOLE = re.compile(rf"(\d{{12}})/{re.escape(MANIFEST)}")
_OPTIONS: dict[str, dict[str, Any]] = {
    "file": {"auto_mkdir": True},
    # A server that does not answer is given up after seconds rather than minutes, because a learner that starts waits for it.
    "s3": {"skip_instance_cache": True, "config_kwargs": {"connect_timeout": 5, "read_timeout": 20, "retries": {"max_attempts": 2}}},
}


class StorageError(FileError):
    """The storage cannot be reached or used, or does not contain what it should; one line that begins with the address."""


class Storage:
    """Objects below an address, by relative key. Calls wait for the network, and raise `StorageError`."""

    def __init__(self, address: str) -> None:
        """Needs the package for the address's scheme; checks neither the connection nor the credentials."""
        self.address = address.rstrip("/")
        with self._one_line():
            from fsspec.core import url_to_fs  # noqa: PLC0415  only for runs that have a copy

            self._fs, root = url_to_fs(self.address, **_OPTIONS.get(address.partition(":")[0], {}))
        self._root = str(root).rstrip("/")

    def sizes(self, folder: str = "") -> dict[str, int]:
        """Return the sizes of all objects below ``folder``, in bytes, by key relative to it."""
        path = self._path(folder)
        with self._one_line():
            self._fs.invalidate_cache()
            found: Mapping[str, Mapping[str, Any]] = self._fs.find(path, detail=True)
        return {key.removeprefix(path).lstrip("/"): int(info["size"]) for key, info in found.items()}

    def read(self, key: str, num_bytes: int, max_bytes: int) -> bytes:
        """Return an object that is ``num_bytes`` long according to `sizes`; ``FileNotFoundError`` if it has been removed since."""
        if num_bytes > max_bytes:
            raise StorageError(f"{self.address}/{key}: larger than {max_bytes} bytes")
        with self._one_line(may_be_missing=True):
            return bytes(self._fs.cat_file(self._path(key)))

    def download(self, key: str, file: Path) -> None:
        """Write an object to a file; ``FileNotFoundError`` if there is none."""
        with self._one_line(may_be_missing=True):
            self._fs.get_file(self._path(key), str(file))

    def write(self, key: str, data: bytes) -> None:
        """Create or replace an object."""
        with self._one_line():
            self._fs.pipe_file(self._path(key), data)

    def upload(self, file: Path, key: str) -> None:
        """Create or replace an object with the contents of a file; ``FileNotFoundError`` if the file has been removed."""
        with self._one_line(may_be_missing=not file.exists()):
            self._fs.put_file(str(file), self._path(key))

    def remove(self, key: str) -> None:
        """Remove an object, if it exists."""
        with suppress(FileNotFoundError), self._one_line(may_be_missing=True):
            self._fs.rm_file(self._path(key))

    def _path(self, key: str) -> str:
        return f"{self._root}/{key}".rstrip("/")

    @contextmanager
    def _one_line(self, *, may_be_missing: bool = False) -> Iterator[None]:
        try:
            yield
        except ImportError as error:
            raise StorageError(f"{self.address}: {_reason(error)}: pip install 'herd-rl[storage]'") from error
        except Exception as error:  # any error of a foreign package
            if may_be_missing and isinstance(error, FileNotFoundError):
                raise
            raise StorageError(f"{self.address}: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split())[:200]
    return text if isinstance(error, ImportError) and text else f"{type(error).__name__}: {text}".removesuffix(": ")


class Copier:
    """Brings the copy of one folder up to date. A pass costs what has changed since the last one."""

    def __init__(self, storage: Storage, directory: Path, files: Sequence[str], *, folder: str = "", keep: int = 1) -> None:
        """``directory``: of the run or an agent; ``folder``: its key; ``keep``: number of checkpoints to keep."""
        self._storage = storage
        self._directory = directory
        self._files = files
        self._folder = f"{folder}/" if folder else ""
        self._keep = keep
        self._stamps: dict[str, tuple[int, int]] = {}
        self._newest: tuple[str, bytes] | None = None
        """Name and manifest of the newest checkpoint known to be in the copy."""

    def update(self) -> int | None:
        """Copy what has changed; returns the learner updates of the newest checkpoint in the copy, None if the run has none yet.

        Raises:
            StorageError: something was not copied; the next pass tries it again.

        """
        copied = self._copy_checkpoint()
        for name in self._files:
            file = self._directory / name
            try:
                found = file.stat()
                stamp = (found.st_mtime_ns, found.st_size)
                if self._stamps.get(name) == stamp:
                    continue
                data = bytes(read_file(file, MAX_JSON_BYTES))
            except FileNotFoundError:
                continue
            except OSError as error:
                raise StorageError(f"{self._storage.address}: {file} cannot be read: {error.strerror or error}") from error
            self._storage.write(f"{self._folder}{name}", data)
            self._stamps[name] = stamp
        return copied

    def _copy_checkpoint(self) -> int | None:
        for _ in range(_ROUNDS):
            found = self._newest_on_disk()
            if found is None:
                return None
            path, manifest = found
            if self._newest == (path.name, manifest):
                return int(path.name)
            try:
                self._copy(path, manifest)
            except (FileNotFoundError, TornCheckpointError):
                continue
            self._newest = (path.name, manifest)
            return int(path.name)
        raise StorageError(f"{self._storage.address}: checkpoints are removed before they are copied: raise learner.keep_checkpoints")

    def _newest_on_disk(self) -> tuple[Path, bytes] | None:
        for path in reversed(checkpoint_folders(self._directory)):
            with suppress(OSError, CheckpointError):
                read_manifest(path)
                return path, bytes(read_file(path / MANIFEST, MAX_MANIFEST_BYTES))
        return None

    def _copy(self, path: Path, manifest: bytes) -> None:
        checkpoints = f"{self._folder}{CHECKPOINTS}"
        present = self._storage.sizes(checkpoints)
        own = f"{path.name}/{MANIFEST}"
        is_there = own in present and self._storage.read(f"{checkpoints}/{own}", present[own], MAX_MANIFEST_BYTES) == manifest
        if not is_there:
            self._storage.remove(f"{checkpoints}/{own}")
            for name in read_manifest(path).files:
                self._storage.upload(path / name, f"{checkpoints}/{path.name}/{name}")
            # A member of a population may have replaced the checkpoint by one of the same number meanwhile.
            if read_file(path / MANIFEST, MAX_MANIFEST_BYTES) != manifest:
                raise TornCheckpointError(f"{path}: was replaced")
            self._storage.write(f"{checkpoints}/{own}", manifest)
        older = [name for name in _whole(present) if name < path.name]
        kept = {path.name, *older[: self._keep - 1]}
        # Newer ones came from elsewhere, and incomplete ones above the newest may be another writer's: both are left alone.
        old = [key for key in present if (name := key.partition("/")[0]) < path.name and name not in kept]
        for key in sorted(old, key=lambda key: not key.endswith(MANIFEST)):
            self._storage.remove(f"{checkpoints}/{key}")


def _whole(sizes: Mapping[str, int]) -> list[str]:
    """Return the names of the checkpoints that have a manifest, newest first."""
    return sorted((match[1] for key in sizes if (match := _WHOLE.fullmatch(key))), reverse=True)


class RunCopy:
    """Keeps a copy up to date from a thread of its own, so that nobody waits for the storage.

    ``wake`` only sets a flag: the thread then copies what the disk holds, so nothing queues up while the storage is slow or away, and the
    newest checkpoint is the one that is copied.
    """

    def __init__(
        self, make: Callable[[], Callable[[], int | None]], on_copied: Callable[[int | None], None], on_failure: Callable[[], None]
    ) -> None:
        """``make`` returns a pass like `Copier.update`. All three are called in the thread; ``on_failure`` for each failed pass."""
        self._make = make
        self._on_copied = on_copied
        self._on_failure = on_failure
        self._wanted = threading.Event()
        self._closing = threading.Event()
        self._is_complete = False
        self._thread = threading.Thread(target=self._run, name="copy", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Copy what has changed."""
        self._wanted.set()

    def begin_close(self) -> None:
        """Begin the last pass."""
        self._closing.set()
        self._wanted.set()

    def close(self, go_on: Callable[[], bool]) -> bool:
        """Wait for the last pass, for `END_SECONDS`, or for `STOP_SECONDS` once ``go_on`` is false; returns whether it has succeeded."""
        self.begin_close()
        deadline = time.monotonic() + END_SECONDS
        while self._thread.is_alive() and time.monotonic() < deadline:
            self._thread.join(0.2)
            if not go_on():
                deadline = min(deadline, time.monotonic() + STOP_SECONDS)
                go_on = bool  # do not extend the wait
        return self._is_complete

    def _run(self) -> None:
        update: Callable[[], int | None] | None = None
        pause = FIRST_PAUSE_SECONDS
        while True:
            self._wanted.wait()
            self._wanted.clear()
            is_last = self._closing.is_set()
            try:
                update = update or self._make()
                self._on_copied(update())
                self._is_complete = is_last
                pause = FIRST_PAUSE_SECONDS
            except StorageError as error:
                self._on_failure()
                warn_limited("copy", "cannot copy the run", reason=str(error))
                self._wanted.set()
                if not is_last:
                    self._closing.wait(pause)
                    pause = min(2 * pause, MAX_PAUSE_SECONDS)
            if is_last:
                return


def copy_run(address: str, run_dir: Path, agents: Sequence[Path], keep: int) -> None:
    """Bring the whole copy of a run up to date, once.

    Raises:
        StorageError: something could not be copied.

    """
    storage = Storage(address)
    for directory in agents:
        if directory != run_dir:
            Copier(storage, directory, AGENT_FILES, folder=folder_of(directory, run_dir), keep=keep).update()
    files = (*RUN_FILES, *(AGENT_FILES if run_dir in agents else ()))
    Copier(storage, run_dir, files, keep=keep).update()


def folder_of(directory: Path, run_dir: Path) -> str:
    """Return the key of an agent's directory in the copy; empty for the run directory itself."""
    return "" if directory == run_dir else f"{AGENTS}/{directory.name}"


def check_unused(storage: Storage, folder: str = "") -> None:
    """Raise `StorageError` if the address holds the checkpoints of a run, or cannot be listed."""
    if any(key == CONFIG or key.startswith(f"{CHECKPOINTS}/") for key in storage.sizes(folder)):
        raise StorageError(f"{storage.address}: holds a run already: add --resume to continue it, or choose another copy_to")


def restore(storage: Storage, directory: Path, files: Sequence[str], *, folder: str = "", extra: Sequence[str] = ()) -> Path | None:
    """Fetch an agent's newest whole checkpoint with its ``files``, unless one in ``directory`` is as new; returns its folder, or None.

    ``extra``: files that are fetched only where they are missing.

    Raises:
        StorageError: the storage cannot be used.
        CheckpointError: no checkpoint of the copy is whole, or it cannot be written.

    """
    try:
        own = newest_checkpoint(directory / CHECKPOINTS)
    except CheckpointError:
        own = None
    sizes = storage.sizes(folder)
    below = {key: size for key, size in _below(sizes).items() if own is None or key > f"{own.name}/~"}
    try:
        _fetch(storage, folder, {name: sizes[name] for name in extra if name in sizes and not (directory / name).exists()}, directory)
        fetched = _fetch_newest(storage, folder, below, directory)
        if fetched is not None:
            # The lost disk may have published under later lineages than the checkpoint's. Without the file, a far higher one is opened.
            (directory / LINEAGE).unlink(missing_ok=True)
            _fetch(storage, folder, {name: sizes[name] for name in files if name in sizes}, directory)
    except TornCheckpointError as error:
        if own is None:
            raise
        get_logger().warning("checkpoint skipped", reason=str(error), taken=own.name)
        return None
    except OSError as error:
        raise StorageError(f"{storage.address}: {error.filename or directory}: {error.strerror or error}") from error
    return fetched


def fetch_run(address: str, *, has_checkpoints: bool = True) -> Path:
    """Fetch a run, or one agent of it, to a folder of the user's cache; returns the directory. What is there already is kept.

    Raises:
        StorageError: the storage cannot be used, or the address holds no run.
        CheckpointError: no checkpoint of an agent is whole.

    """
    address, agent = address.rstrip("/"), ""
    storage = Storage(address)
    sizes = storage.sizes()
    found = re.fullmatch(rf"(.+://.+)/({AGENTS}/\d+)", address)
    if CONFIG not in sizes and found is not None:
        address, agent = found[1], found[2]
        storage = Storage(address)
        sizes = storage.sizes()
    if CONFIG not in sizes:
        raise StorageError(f"{address}: not a run: it contains no {CONFIG}")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "herd" / "runs"
    directory = cache / f"{address.rpartition('/')[2]}-{hashlib.sha256(address.encode()).hexdigest()[:12]}"
    folders = sorted({match[0] for key in sizes if (match := re.match(rf"{AGENTS}/\d+(?=/)", key))})
    wanted = [folder for folder in folders if agent in {"", folder}] or [""]
    try:
        make_folder(directory)
        with _locked(directory):
            _fetch(storage, "", {name: sizes[name] for name in RUN_FILES if name in sizes}, directory)
            for folder in wanted:
                of_agent = {key.removeprefix(f"{folder}/"): size for key, size in sizes.items() if key.startswith(f"{folder}/")} or sizes
                _fetch(storage, folder, {name: of_agent[name] for name in AGENT_FILES if name in of_agent}, directory / folder)
                if has_checkpoints:
                    _fetch_newest(storage, folder, _below(of_agent), directory / folder)
    except OSError as error:
        raise StorageError(f"{address}: {error.filename or directory}: {error.strerror or error}") from error
    return directory / agent


def _below(sizes: Mapping[str, int]) -> dict[str, int]:
    """Return the sizes of the checkpoints' objects, by key relative to the folder of checkpoints."""
    prefix = f"{CHECKPOINTS}/"
    return {key.removeprefix(prefix): size for key, size in sizes.items() if key.startswith(prefix)}


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Let one command at a time fetch to a folder."""
    with directory.with_name(f"{directory.name}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetch(storage: Storage, folder: str, sizes: Mapping[str, int], directory: Path) -> None:
    """Fetch small files, each whole or not at all. One that has been removed since it was listed is left out."""
    for name, num_bytes in sizes.items():
        with suppress(FileNotFoundError):
            data = storage.read(f"{folder}/{name}".lstrip("/"), num_bytes, MAX_JSON_BYTES)
            make_folder((directory / name).parent)
            replace_file(directory / name, [data])


def _fetch_newest(storage: Storage, folder: str, sizes: Mapping[str, int], directory: Path) -> Path | None:
    """Fetch the newest whole checkpoint, passing over damaged ones with a line in the log; None if there is none."""
    refused: list[str] = []
    for name in _whole(sizes):
        final = directory / CHECKPOINTS / name
        source = f"{folder}/{CHECKPOINTS}/{name}".lstrip("/")
        try:
            manifest = storage.read(f"{source}/{MANIFEST}", sizes[f"{name}/{MANIFEST}"], MAX_MANIFEST_BYTES)
            if not _has(final, manifest):
                place_checkpoint(final, lambda writing, source=source, manifest=manifest: _download(storage, source, manifest, writing))  # type: ignore[misc]
        except (TornCheckpointError, FileNotFoundError) as error:
            refused.append(f"{source}: {str(error).replace(f'{final}{WRITING}: ', '')}")
            continue
        if refused:
            get_logger().warning("checkpoint skipped", reason="; ".join(refused), taken=name)
        return final
    if refused:
        raise TornCheckpointError(f"{storage.address}: no checkpoint can be used: {'; '.join(refused)}")
    return None


def _has(path: Path, manifest: bytes) -> bool:
    try:
        return read_file(path / MANIFEST, MAX_MANIFEST_BYTES) == manifest and verified_contents(path)[0] is not None
    except (OSError, CheckpointError):
        return False


def _download(storage: Storage, source: str, manifest: bytes, writing: Path) -> None:
    (writing / MANIFEST).write_bytes(manifest)
    listed = read_manifest(writing)
    if listed.learner_updates != int(source.rpartition("/")[2]):
        raise TornCheckpointError(f"its {MANIFEST} belongs to the checkpoint of {listed.learner_updates} updates")
    for name, expected in listed.files.items():
        if expected.bytes > MAX_FILE_BYTES:
            raise TornCheckpointError(f"{name} would be larger than {MAX_FILE_BYTES} bytes")
        try:
            storage.download(f"{source}/{name}", writing / name)
        except FileNotFoundError as error:
            raise TornCheckpointError(f"{name} is missing") from error
    verified_contents(writing)
