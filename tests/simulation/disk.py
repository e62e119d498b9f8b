"""Files in memory, with what a killed process and a power failure leave of them.

A write reaches the page cache, where it survives a kill. Only a flush makes data durable, and only a flush of its folder makes a name
durable. A power failure keeps a random prefix of everything else.
"""

from __future__ import annotations

import errno
import io
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import PurePosixPath
from random import Random
from types import SimpleNamespace
from typing import Any, ClassVar
from unittest.mock import patch

import herd_population.journal

import herd.files
import herd.run.checkpoints

PATCHED = (herd.files, herd.run.checkpoints, herd_population.journal)
"""The modules that call the system's functions for files."""


class Killed(BaseException):
    """The running process ends here, in the middle of whatever it does."""


class Inode:
    def __init__(self) -> None:
        self.data, self.durable = b"", b""


Names = dict[str, Inode | None]
"""Path -> file, or None for a folder."""


def _apply(names: Names, change: tuple[Any, ...]) -> None:
    match change:
        case "link", path, inode:
            names[path] = inode
        case "unlink", path:
            for name in _under(names, path):
                del names[name]
        case "rename", source, target:
            for name in _under(names, target):
                del names[name]
            for name in _under(names, source):
                names[target + name[len(source) :]] = names.pop(name)


def _under(names: Names, path: str) -> list[str]:
    return [name for name in names if name == path or name.startswith(path + "/")]


class Disk:
    """``before`` is called before each operation that changes something, with its name and path; it may raise `Killed` or OSError."""

    def __init__(self, before: Callable[[str, str], None], random: Random) -> None:
        self.names: Names = {"/run": None}
        self._durable: Names = {"/run": None}
        self._pending: list[tuple[Any, ...]] = []
        """Changes of names that are not durable yet, in order."""
        self._descriptors: dict[int, str | Inode] = {}
        self._next_descriptor = 1000
        self._before = before
        self._random = random

    def exists_already(self, folder: str) -> None:
        """Begin with a folder that no power failure removes."""
        self.names[folder] = self._durable[folder] = None

    def change(self, what: str, path: str, *rest: Any) -> None:
        self._before(what, path)
        _apply(self.names, (what, path, *rest))
        self._pending.append((what, path, *rest))

    def write(self, inode: Inode, data: bytes, path: str = "") -> int:
        try:
            self._before("write", path)
        except Killed:
            inode.data += data[: self._random.randint(0, len(data))]
            raise
        inode.data += data
        return len(data)

    def lose_power(self, folder: str) -> int:
        """Forget what is not durable under ``folder``, except for a random prefix; return how many changes and bytes were lost."""
        mine = [change for change in self._pending if change[1].startswith(folder)]
        kept = self._random.randint(0, len(mine))
        for change in mine[:kept]:
            _apply(self._durable, change)
        self._pending = [change for change in self._pending if not change[1].startswith(folder)]
        lost = len(mine) - kept
        for name in [name for name in self.names if name.startswith(folder)]:
            del self.names[name]
        for name in sorted(name for name in self._durable if name.startswith(folder)):
            if name.rpartition("/")[0] not in self.names and name.count("/") > 1:
                del self._durable[name]  # its folder is gone
                continue
            inode = self.names[name] = self._durable[name]
            if inode is not None:
                whole = inode.data
                length = len(inode.durable) if whole.startswith(inode.durable) else 0
                length = self._random.randint(length, len(whole))
                lost += len(whole) - length
                inode.data = inode.durable = whole[:length]
        return lost

    # The functions of ``os`` that the product calls.

    def open(self, path: SimPath, flags: int, _mode: int = 0o777) -> int:
        name = str(path)
        if name not in self.names:
            if not flags & os.O_CREAT:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
            self.change("link", name, Inode())
        self._next_descriptor += 1
        self._descriptors[self._next_descriptor] = self.names[name] or name
        return self._next_descriptor

    def close(self, descriptor: int) -> None:
        self._descriptors.pop(descriptor, None)

    def fsync(self, descriptor: int) -> None:
        what = self._descriptors[descriptor]
        self._before("fsync", what if isinstance(what, str) else "")
        if isinstance(what, Inode):
            what.durable = what.data
            return
        mine = [change for change in self._pending if change[1].rpartition("/")[0] == what.rstrip("/")]
        for change in mine:
            _apply(self._durable, change)
        self._pending = [change for change in self._pending if change not in mine]

    def fstat(self, descriptor: int) -> Any:
        what = self._descriptors[descriptor]
        if isinstance(what, Inode):
            return SimpleNamespace(st_mode=stat.S_IFREG, st_size=len(what.data))
        return SimpleNamespace(st_mode=stat.S_IFDIR, st_size=0)

    def ftruncate(self, descriptor: int, length: int) -> None:
        inode = self._descriptors[descriptor]
        inode.data = inode.data[:length]  # type: ignore[union-attr]

    def os_write(self, descriptor: int, data: bytes) -> int:
        return self.write(self._descriptors[descriptor], data)  # type: ignore[arg-type]

    def pread(self, descriptor: int, length: int, offset: int) -> bytes:
        return self._descriptors[descriptor].data[offset : offset + length]  # type: ignore[union-attr]

    def opened(self, descriptor: int, _mode: str) -> io.BytesIO:
        file = _Reader(self._descriptors[descriptor].data)  # type: ignore[union-attr]
        file.descriptor = descriptor
        return file

    def rmtree(self, path: SimPath, ignore_errors: bool = False) -> None:  # noqa: ARG002  as in `shutil`
        for name in sorted(_under(self.names, str(path)), reverse=True):
            self.change("unlink", name)

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Let the product's functions for files work on this disk."""
        system = SimpleNamespace(
            **{name: getattr(self, name) for name in ("open", "close", "fsync", "fstat", "ftruncate", "pread")},
            **{name: getattr(os, name) for name in dir(os) if name.startswith("O_")},
            write=self.os_write,
            strerror=os.strerror,
        )
        SimPath.disk = self
        with ExitStack() as patches:
            for module in PATCHED:
                for name, value in (("os", system), ("open", self.opened), ("shutil", SimpleNamespace(rmtree=self.rmtree))):
                    if hasattr(module, name) or (module is herd.files and name == "open"):
                        patches.enter_context(patch.object(module, name, value, create=True))
            yield


class _Reader(io.BytesIO):
    descriptor = 0

    def fileno(self) -> int:
        return self.descriptor


class _Writer:
    def __init__(self, disk: Disk, inode: Inode, path: str) -> None:
        self._disk, self._inode, self._path = disk, inode, path

    def write(self, data: bytes) -> int:
        return self._disk.write(self._inode, bytes(data), self._path)

    def writelines(self, parts: Iterable[bytes]) -> None:
        for part in parts:
            self.write(part)

    def flush(self) -> None: ...

    def fileno(self) -> int:
        return self._disk.open(SimPath(self._path), os.O_WRONLY)

    def __enter__(self) -> _Writer:
        return self

    def __exit__(self, *_: object) -> None: ...


class SimPath(PurePosixPath):
    """A path on the disk that is in use."""

    __slots__ = ()
    disk: ClassVar[Disk]

    def exists(self) -> bool:
        return str(self) in self.disk.names

    def is_symlink(self) -> bool:
        return False

    def is_dir(self) -> bool:
        return self.exists() and self.disk.names[str(self)] is None

    def mkdir(self, parents: bool = False, exist_ok: bool = False) -> None:
        if self.exists():
            if exist_ok:
                return
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(self))
        if parents and not self.parent.exists():
            self.parent.mkdir(parents=True, exist_ok=True)
        self.disk.change("link", str(self), None)

    def iterdir(self) -> Iterator[SimPath]:
        if not self.exists():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self))
        return iter([self / name.rpartition("/")[2] for name in list(self.disk.names) if name.rpartition("/")[0] == str(self)])

    def stat(self) -> Any:
        inode = self.disk.names.get(str(self))
        if inode is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self))
        return SimpleNamespace(st_size=len(inode.data))

    def open(self, mode: str) -> _Writer:
        assert mode == "xb"
        if self.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(self))
        inode = Inode()
        self.disk.change("link", str(self), inode)
        return _Writer(self.disk, inode, str(self))

    def unlink(self, missing_ok: bool = False) -> None:
        if self.exists():
            self.disk.change("unlink", str(self))
        elif not missing_ok:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self))

    def rename(self, target: SimPath) -> None:
        if not self.exists():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self))
        self.disk.change("rename", str(self), str(target))

    replace = rename
