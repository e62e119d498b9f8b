"""Fixtures for all tests: time-outs that even slow machines do not reach, and a guard on which tests start processes."""

from __future__ import annotations

import io
import logging
import signal
import sys
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
import structlog
from hypothesis import settings

from tests.patience import PATIENCE

if TYPE_CHECKING:
    from herd.transport.context import Context

settings.register_profile("herd", deadline=None)  # no property test may fail because the machine is slow
settings.load_profile("herd")

PROCESS_FOLDERS = ("cluster", "containers", "system", "wheel")
PROCESS_FIXTURES = {"herd_process"}
"""All tests in these folders, or with these fixtures, start processes; other tests say so with a mark or their module's ``pytestmark``."""
PROCESS_SECONDS = 900.0
"""Time-out of a test with processes. It is longer than the test's own deadlines, whose messages say what was waited for."""
STARTS = frozenset({"os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.system", "subprocess.Popen"})

_refused = threading.Event()


class UnmarkedProcessError(BaseException):
    """An unmarked test started a process. A BaseException, so that no code under test catches it."""


def _watch(event: str, _arguments: object) -> None:
    if _refused.is_set() and event in STARTS:
        raise UnmarkedProcessError("this test starts a process: mark it with pytest.mark.processes, which keeps it out of make check")


sys.addaudithook(_watch)

for _number, _default in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    # pytest was started in the background or by nohup; processes started by tests would inherit this
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _default)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests in folders with processes, and multiply every time-out by TEST_PATIENCE."""
    alone = float(config.getini("timeout"))
    skip_gpu = _no_gpu() if any(item.get_closest_marker("gpu") for item in items) else False
    for item in items:
        fixtures: list[str] = getattr(item, "fixturenames", [])
        if item.path.relative_to(config.rootpath).parts[1] in PROCESS_FOLDERS or PROCESS_FIXTURES.intersection(fixtures):
            item.add_marker("processes")
        if skip_gpu and item.get_closest_marker("gpu") is not None:
            item.add_marker(pytest.mark.skip(reason="torch finds no GPU here: run `make gpu` on a machine with one"))
        default = alone if item.get_closest_marker("processes") is None else PROCESS_SECONDS
        own = item.get_closest_marker("timeout")
        item.add_marker(pytest.mark.timeout(PATIENCE * (own.args[0] if own else default)), append=False)


def _no_gpu() -> bool:
    import torch  # noqa: PLC0415  most tests do without

    return not torch.cuda.is_available()


@pytest.fixture
def context() -> Iterator[Context]:
    """A ZeroMQ context; sockets that a failed test left open are closed with it."""
    from herd.transport.context import Context  # noqa: PLC0415  most tests do without

    made = Context()
    yield made
    made.destroy(linger=0)


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """The log lines of this test, in memory. Rate limits of earlier warnings are reset."""
    from herd.telemetry import logs  # noqa: PLC0415  most tests do without

    monkeypatch.setattr(logs, "_limited", logs.LimitedWarnings(logs.get_logger()))
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    stream = io.StringIO()
    logs.configure_logging("learner", stream=stream)
    yield stream
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Run PyTorch on one thread, since small networks are slower on more. Its random state is restored afterwards."""
    import torch  # noqa: PLC0415  most tests do without

    before, random_state = torch.get_num_threads(), torch.get_rng_state()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
    torch.set_rng_state(random_state)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Allow only marked tests and their fixtures to start processes."""
    if item.get_closest_marker("processes") is None:
        _refused.set()
    try:
        return (yield)
    finally:
        _refused.clear()
