"""A user's own code, named as ``module:name``: an environment, a torso, a loss or a hook in a file of the user's.

It runs in the processes that need it and nowhere else. Who only wants to know something about it, such as the spaces of an environment,
calls it in a process of its own (`call_apart`), because it may do anything to its process. Where it runs beside Herd, `Contained` undoes
what would harm Herd, and `leave` ends the process despite threads that never end.

``python -m herd.components.user_code ORDER`` is the process of `call_apart`.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from pkgutil import resolve_name
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
USER_CODE = rf"^{_NAME}(\.{_NAME})*:{_NAME}(\.{_NAME})*$"
"""Pattern of a name of user code; ``mine:make`` is ``make`` in mine.py."""
FAILURES = (Exception, SystemExit)
"""What user code may raise: also the end of the program, as argparse does if it is called at import."""
PYTHON = (sys.executable, "-P")
"""How processes of Herd are started: a ``queue.py`` in the current folder must not replace that of the standard library."""
SPACES_VARIABLE = "HERD_SPACES"
"""The environment variable in which ``herd train`` gives the spaces to the processes that play no games."""
START_SECONDS = 60.0
"""Longest time in which a process starts and imports an environment's packages, on a busy machine."""
_HANDLED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD, signal.SIGPIPE)
_TICK_SECONDS = 0.2
_SHOWN_OUTPUT = 80
_DONE = "done"


class UserCodeError(ValueError):
    """The code that a setting names cannot be used; one line."""


def load_user_code(name: str, setting: str) -> Any:
    """Return the object that ``module:name`` names. Its folder comes last on the module path, so that it replaces no other module.

    Raises:
        UserCodeError: the module cannot be imported or has no such attribute; the line begins with ``setting``.
    """
    module_name, _, attribute = name.partition(":")
    folder = os.getcwd()
    if folder not in sys.path:
        sys.path.append(folder)
    try:
        with Contained():
            found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module_name}.".startswith(f"{error.name}."):
            raise UserCodeError(f"{setting} {name}: module {error.name} is neither in {folder} nor installed") from error
        raise UserCodeError(f"{setting} {name}: {module_name} needs {error.name}, which is not installed") from error
    except FAILURES as error:
        raise UserCodeError(f"{setting} {name}: {module_name} cannot be imported: {failure(error)}") from error
    for part in attribute.split("."):
        if not hasattr(found, part):
            hidden = _hidden_file(folder, module_name, sys.modules[module_name])
            raise UserCodeError(f"{setting} {name}: {hidden or f'{module_name} has no {attribute}'}")
        found = getattr(found, part)
    return found


def _hidden_file(folder: str, module_name: str, found: Any) -> str | None:
    """Say that a module of another place was found instead of the file in the user's folder; None if that is not so."""
    top = module_name.partition(".")[0]
    place = getattr(found, "__file__", None) or "the standard library"
    if Path(place).is_relative_to(folder) or not any(Path(folder, each).exists() for each in (f"{top}.py", top)):
        return None
    return f"{top} in {folder} has the name of another module ({place}): rename it"


def failure(error: BaseException) -> str:
    """Describe in one line what a user's code raised, and where: ``TypeError: ... (mine.py, line 3)``."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {' '.join(str(error).split())} ({Path(place.filename).name}, line {place.lineno})"


class Contained:
    """Where user code may run: afterwards, what it changed of this process is undone, as far as it would harm Herd.

    That is: signal handlers (a stop would go unnoticed), the working directory, the command line (which is Herd's: ``parse_args()`` at
    import would read it), standard streams, the root logger (its handlers would repeat the log of all libraries), the time limit of new
    sockets, what numpy does about overflows, and torch's defaults. Environment variables stay as the code wants them, because its later
    calls may need them.
    """

    def __init__(self, folder: str | None = None) -> None:
        self.folder = folder
        """The working directory that the code wants, once it has changed it."""

    def __enter__(self) -> Self:
        self._before = os.getcwd(), sys.argv, (sys.stdout, sys.stderr), logging.root.level
        self._handlers = {number: signal.getsignal(number) for number in _HANDLED}
        self._log = list(logging.root.handlers)
        self._defaults = _torch_defaults()
        self._time_limit = socket.getdefaulttimeout()
        self._on_overflow = _numpy_errors()
        sys.argv = sys.argv[:1]
        if self.folder is not None:
            os.chdir(self.folder)
        return self

    def __exit__(self, *_: object) -> None:
        own, sys.argv, (sys.stdout, sys.stderr), level = self._before
        logging.root.handlers[:] = self._log
        logging.root.setLevel(level)
        socket.setdefaulttimeout(self._time_limit)
        if (numpy := sys.modules.get("numpy")) is not None and self._on_overflow is not None:
            numpy.seterr(**self._on_overflow)
        is_main = threading.current_thread() is threading.main_thread()
        for number, handler in self._handlers.items() if is_main else ():
            if handler is not None and signal.getsignal(number) != handler:
                signal.signal(number, handler)
        if (torch := sys.modules.get("torch")) is not None and _torch_defaults() != self._defaults:
            dtype, device, has_gradients, threads = self._defaults or (torch.float32, None, True, None)
            torch.set_default_dtype(dtype)
            torch.set_default_device(device)
            torch.set_grad_enabled(has_gradients)
            if threads is not None:
                torch.set_num_threads(threads)
        if (folder := os.getcwd()) != own:
            self.folder = folder
            os.chdir(own)


@contextmanager
def prints_to_stderr() -> Iterator[None]:
    """While it is entered, what user code prints goes to stderr, also from C: a command's stdout holds its results alone."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def _numpy_errors() -> dict[str, Any] | None:
    """Return numpy's settings for floating-point errors; None while it is not loaded."""
    numpy = sys.modules.get("numpy")
    return None if numpy is None or not hasattr(numpy, "geterr") else numpy.geterr()


@contextmanager
def prints_nothing() -> Iterator[None]:
    """While it is entered, what user code prints is lost, also from C."""
    kept = [os.dup(stream) for stream in (1, 2)]
    nothing = os.open(os.devnull, os.O_WRONLY)
    try:
        for stream in (1, 2):
            os.dup2(nothing, stream)
        with open(nothing, "w", closefd=False) as sink, redirect_stdout(sink), redirect_stderr(sink):
            yield
    finally:
        for stream, own in enumerate(kept, start=1):
            os.dup2(own, stream)
        for each in (nothing, *kept):
            os.close(each)


def _torch_defaults() -> tuple[Any, ...] | None:
    """Return the defaults of torch that all code of a process shares; None while it is not loaded."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "get_default_device"):
        return None
    return torch.get_default_dtype(), torch.get_default_device(), torch.is_grad_enabled(), torch.get_num_threads()


def leave(error: BaseException | None, code: int = 0) -> None:
    """End this process, which is over, if threads of user code would keep it; otherwise return.

    Python waits for such threads without bound. ``error``: what ended the process; None if it returned ``code``.
    """
    if not any(thread is not threading.main_thread() and not thread.daemon for thread in threading.enumerate()):
        return
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)
    elif error is not None:
        code = 1
        traceback.print_exception(error)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


class Answer(NamedTuple):
    """What a process of user code reported."""

    values: list[Any]
    problem: str | None
    """How it ended or hung before it had reported everything, such as ``its process was ended by SIGKILL``; None if it did not."""
    printed: str
    """How much it printed, and the end of that; empty if nothing."""


def call_apart(function: str, arguments: Sequence[Any], timeout_seconds: float, asked: Callable[[], bool] = lambda: False) -> Answer:
    """Call a function in a new process that gets this process's environment and folder; the wait is bounded.

    ``function``: ``module:name`` of a generator; ``arguments`` and what it yields are JSON. Each value is written to a file as it comes,
    so that the last one tells where the process ended or hung. ``asked``: whether to end the wait early.
    """
    with TemporaryDirectory(prefix="herd-apart-", ignore_cleanup_errors=True) as folder:
        report, output = Path(folder, "report"), Path(folder, "output")
        order = json.dumps({"call": [function, *arguments], "report": str(report), "timeout_seconds": timeout_seconds})
        with output.open("wb") as sink:
            process = subprocess.Popen(
                [*PYTHON, "-m", __name__ if __name__ != "__main__" else "herd.components.user_code", order],
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                process_group=0,  # with the children of the environment it can be killed
            )
        try:
            hung = not _ended(process, timeout_seconds, asked)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            code = process.wait()
        values = [json.loads(line) for line in report.read_text().splitlines()] if report.exists() else []
        printed = output.read_bytes()
    is_done = values[-1:] == [_DONE]
    problem = None
    if hung:
        problem = f"no answer within {timeout_seconds:g} s"
    elif not is_done:
        ended = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended itself with code {code}"
        problem = f"its process {ended}{_last_words(printed)}"
    return Answer(values[:-1] if is_done else values, problem, f"{len(printed):,} bytes{_last_words(printed)}" if printed else "")


def _ended(process: subprocess.Popen[bytes], timeout_seconds: float, asked: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + timeout_seconds
    while time.monotonic() < deadline and not asked():
        with suppress(subprocess.TimeoutExpired):
            process.wait(min(_TICK_SECONDS, max(0.0, deadline - time.monotonic())))
            return True
    return process.poll() is not None


def _last_words(printed: bytes) -> str:
    lines = printed.decode(errors="replace").split("\n")
    last = next((" ".join(line.split()) for line in reversed(lines) if line.strip()), "")
    return f", at last {last[:_SHOWN_OUTPUT]!r}" if last else ""


def main(order: dict[str, Any]) -> None:
    """Call the function, in the process of `call_apart`."""
    # If the process that waits is killed, nobody else would end this one.
    late = threading.Timer(order["timeout_seconds"] + START_SECONDS, os._exit, [1])
    late.daemon = True
    late.start()
    # Opened before any code of the user's, which may change the working directory. Each line is written at once.
    with Path(order["report"]).open("a", encoding="utf-8", buffering=1) as report:
        os.set_inheritable(report.fileno(), False)
        function, *arguments = order["call"]
        for value in resolve_name(function)(*arguments):
            print(json.dumps(value), file=report)
        print(json.dumps(_DONE), file=report)
    sys.stdout.flush()
    os._exit(0)  # threads that the environment left must not keep the process


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
