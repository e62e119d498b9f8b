"""A service whose process dies exactly at an edge of durability: ``python -m tests.failpoints.child FOLDER NAME MODULE [ARGUMENT ...]``.

The program's own code is unchanged. Operations on files of the run directory and messages that promise something are wrapped, and each
edge has a name, a *point*: ``lineage.json: before rename``. Two files in FOLDER connect this process to the one that watches it:

- ``recorded`` gets a line ``NAME<TAB>point`` when this process reaches a point for the first time.
- ``order`` contains ``point<TAB>count<TAB>SERVICE``. The first process of the service that reaches the point for at least the count-th
  time renames the file to ``killed-NAME``, so that nobody else obeys it, and kills itself.
"""

from __future__ import annotations

import fcntl
import os
import re
import runpy
import signal
import stat
import sys
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from functools import wraps
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgpack

from herd.transport import tcp

RECORDED, ORDER, KILLED = "recorded", "order", "killed-"
_KINDS = ((r"\w+\.safetensors$", "*.safetensors"), (r"[0-9a-f]{16}|\d+", "N"), (r"processes/.*", "processes/*"))
PROMISES = frozenset({"publish_slice", "published", "ack", "temperatures", "insert_pieces", "inserted", "member_report", "member_answer"})
"""Types of messages after which somebody relies on something: a version, an unroll, a return, an episode, a copied member."""


class Failpoints:
    """Notices the points that this process reaches."""

    def __init__(self, folder: Path, name: str, run_dir: Path) -> None:
        self._order, self._recorded, self._killed = folder / ORDER, folder / RECORDED, folder / f"{KILLED}{name}"
        self._name = name
        self._run_dir = f"{run_dir.absolute()}/"
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()
        # The originals, for this object's own files.
        self._rename, self._write = os.rename, os.write
        self._renamed: dict[int, tuple[str, str]] = {}
        """By thread, the folder of the newest rename and what was renamed."""

    def reach(self, kind: str, edge: str, prepare: Callable[[], object] = lambda: None) -> None:
        """Record the point, or die at it if that is the order, after ``prepare``."""
        point = f"{kind}: {edge}"
        with self._lock:
            self._counts[point] += 1
            if self._counts[point] == 1:
                self._append(self._recorded, f"{self._name}\t{point}\n")
            try:
                wanted, count, service = self._order.read_text().split("\t")
            except FileNotFoundError:
                return
            if wanted != point or self._counts[point] < int(count) or not self._name.startswith(service):
                return
            try:
                self._rename(self._order, self._killed)
            except FileNotFoundError:
                return  # another process was first
            prepare()
            os.kill(os.getpid(), signal.SIGKILL)

    def kind(self, path: object) -> str | None:
        """Return what kind of file of the run directory this is, without numbers; None elsewhere."""
        if not isinstance(path, str | Path):
            return None
        found = os.path.abspath(os.fspath(path))
        if not f"{found}/".startswith(self._run_dir):
            return None
        name = re.sub(r"^agents/\d+(/|$)", "", found[len(self._run_dir) :].removesuffix(".tmp")) or "."
        for pattern, kind in _KINDS:
            name = re.sub(pattern, kind, name)
        return None if name.startswith("logs") else name

    def install(self) -> None:
        """Wrap the operations."""
        sys.addaudithook(self._audit)
        os.fsync = self._wrapped_fsync(os.fsync)  # type: ignore[assignment]  # whose argument has a name
        os.write = self._wrapped_write(os.write)
        os.rename, os.replace = self._wrapped_rename(os.rename), self._wrapped_rename(os.replace)
        tcp.Router.send = self._wrapped_send(tcp.Router.send, 2)  # type: ignore[method-assign]
        tcp.Dealer.send = self._wrapped_send(tcp.Dealer.send, 1)  # type: ignore[method-assign]

    def _append(self, path: Path, text: str) -> None:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._write(descriptor, text.encode())
        os.close(descriptor)

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Python reports these before it does them."""
        if event == "shutil.rmtree":
            edge = "before removal"
        elif event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("xw"):
            edge = "before create"
        elif event in {"os.mkdir", "os.rmdir"} or (event == "os.remove" and not str(arguments[0]).endswith(".tmp")):
            edge = f"before {event.removeprefix('os.')}"
        else:
            return
        if (kind := self.kind(arguments[0])) is not None:
            self.reach(kind, edge)

    def _wrapped_fsync(self, fsync: Callable[[Any], None]) -> Callable[[Any], None]:
        @wraps(fsync)
        def wrapped(descriptor: Any) -> None:
            path, what = os.readlink(f"/proc/self/fd/{descriptor}"), os.fstat(descriptor)
            kind, of = self.kind(path), "fsync"
            if kind is not None and stat.S_ISDIR(what.st_mode):
                # Flushing a folder belongs to the file that was put into it.
                folder, renamed = self._renamed.get(threading.get_ident(), ("", kind))
                kind, of = renamed if folder == path else kind, "fsync of folder"
            elif kind is not None and fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE:
                self.reach(kind, "half written", lambda: os.ftruncate(descriptor, what.st_size // 2))
            if kind is not None:
                self.reach(kind, f"before {of}")
            fsync(descriptor)
            if kind is not None:
                self.reach(kind, f"after {of}")

        return wrapped

    def _wrapped_write(self, write: Callable[[int, Any], int]) -> Callable[[int, Any], int]:
        @wraps(write)
        def wrapped(descriptor: int, data: Any) -> int:
            kind = self.kind(os.readlink(f"/proc/self/fd/{descriptor}"))
            if kind is None:
                return write(descriptor, data)
            self.reach(kind, "before append")
            self.reach(kind, "half appended", lambda: write(descriptor, data[: len(data) // 2]))
            written = write(descriptor, data)
            self.reach(kind, "after append")
            return written

        return wrapped

    def _wrapped_rename(self, rename: Callable[..., None]) -> Callable[..., None]:
        @wraps(rename)
        def wrapped(source: Any, target: Any, **options: Any) -> None:
            kind = self.kind(target)
            if kind is None:
                return rename(source, target, **options)
            self.reach(kind, "before rename")
            rename(source, target, **options)
            self._renamed[threading.get_ident()] = (str(Path(target).absolute().parent), kind)
            self.reach(kind, "after rename")
            return None

        return wrapped

    def _wrapped_send(self, send: Callable[..., bool], at: int) -> Callable[..., bool]:
        @wraps(send)
        def wrapped(*arguments: Any) -> bool:
            kind = msgpack.unpackb(arguments[at][0], strict_map_key=False).get("type")
            if kind not in PROMISES:
                return send(*arguments)
            self.reach(kind, "before send")
            is_sent = send(*arguments)
            self.reach(kind, "after send")
            return is_sent

        return wrapped


def main(argv: Sequence[str]) -> None:
    """Run the module in this process."""
    folder, name, module, *words = argv
    options = dict(pairwise(words))
    run_dir = Path(options["--run_dir"]) if "--run_dir" in options else Path(options["--config"]).parent
    Failpoints(Path(folder), name, run_dir).install()
    sys.argv = [module, *words]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv[1:])
