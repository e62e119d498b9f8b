"""Requests to stop, from the first moment of a process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from herd.service.allocator import ALLOCATOR_ENVIRONMENT
from herd.service.signals import STOPPING, StopRequest, hold_signals
from tests.patience import patient

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[2]
SECONDS = patient(60.0)


@pytest.fixture
def _signals() -> Iterator[None]:
    """Restore the handlers and the signal mask of the test runner."""
    # Pending signals must not end the test runner.
    before = {number: signal.signal(number, lambda *_: None) for number in STOPPING}
    yield
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("_signals")
@pytest.mark.parametrize("number", STOPPING)
def test_a_signal_sets_the_stop_request(number: signal.Signals) -> None:
    stop = StopRequest()
    assert not stop
    os.kill(os.getpid(), number)
    assert stop
    os.kill(os.getpid(), number)  # a second time, without harm
    assert stop


@pytest.mark.usefixtures("_signals")
def test_an_ignored_sighup_stays_ignored() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the state that nohup leaves
    stop = StopRequest()
    os.kill(os.getpid(), signal.SIGHUP)
    assert not stop
    os.kill(os.getpid(), signal.SIGTERM)
    assert stop


@pytest.mark.usefixtures("_signals")
def test_signals_sent_while_held_are_delivered_later() -> None:
    first = StopRequest()
    hold_signals()
    signal.raise_signal(signal.SIGTERM)  # sent to this thread, because another test may have left threads that do not block it
    assert not first
    second = StopRequest()
    assert second
    assert not first


def python(code: str, *words: str, tuned: bool = False) -> subprocess.Popen[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("HERD_", "MALLOC_", "OMP_"))}
    if tuned:
        environment |= ALLOCATOR_ENVIRONMENT
    return subprocess.Popen(
        [sys.executable, "-c", code, *words],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_stop_request_survives_the_restart_under_the_allocator() -> None:
    """The tuned allocator needs a second start of the program, which resets the handlers. The request must neither kill it nor be lost."""
    code = (
        "import os, signal, sys\n"
        "from herd.service import allocator\n"
        "from herd.service.signals import StopRequest\n"
        "stop = StopRequest()\n"
        # The next program gets the signal before it can install a handler, and sees the request once it does.
        "after = 'from herd.service.signals import StopRequest; print(bool(StopRequest()))'\n"
        "execve = os.execve\n"
        "def asked_just_before(program, arguments, environment):\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    execve(program, [program, '-c', after], environment)\n"
        "os.execve = asked_just_before\n"
        "allocator.ensure_tuned_allocator('herd_learner', stop)\n"
    )
    output, errors = python(code).communicate(timeout=SECONDS)
    assert (output, errors) == ("True\n", "")


def test_a_stop_request_before_the_restart_ends_the_process() -> None:
    code = (
        "import os, signal\n"
        "from herd.service.allocator import ensure_tuned_allocator\n"
        "from herd.service.signals import StopRequest\n"
        "stop = StopRequest()\n"
        "os.kill(os.getpid(), signal.SIGTERM)\n"
        "ensure_tuned_allocator('no.such.module', stop)\n"
    )
    process = python(code)
    assert process.communicate(timeout=SECONDS) == ("", "")
    assert process.returncode == 0


ASKED_DURING_AN_IMPORT = """
import os, runpy, sys
wanted, number = sys.argv[1], int(sys.argv[2])
class Asks:
    def find_spec(self, name, path=None, target=None):
        if name == wanted:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), number)
sys.meta_path.insert(0, Asks())
sys.argv = sys.argv[3:]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize(
    ("service", "imported", "number"),
    [
        ("actor", "pydantic", signal.SIGTERM),  # before the settings are read
        ("actor", "torch", signal.SIGTERM),
        ("learner", "pydantic", signal.SIGINT),
        ("learner", "torch", signal.SIGHUP),
        ("paramserver", "zmq", signal.SIGTERM),
    ],
)
def test_a_service_signalled_during_imports_exits_with_code_0(tmp_path: Path, service: str, imported: str, number: signal.Signals) -> None:
    asked = {"actor": ["learner", "paramserver"], "learner": ["paramserver"], "paramserver": []}[service]
    words = ["--run_dir", str(tmp_path / "run"), *(word for name in asked for word in (f"--{name}", "tcp://127.0.0.1:1"))]
    process = python(ASKED_DURING_AN_IMPORT, imported, str(int(number)), f"herd_{service}", *words, tuned=True)
    _, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, errors
    assert "Traceback" not in errors
    if service != "paramserver":
        assert not (tmp_path / "run").exists()  # the run was not started


def test_a_signal_during_pythons_shutdown_does_not_change_the_exit_code() -> None:
    code = (
        "import os, runpy, signal, sys\n"
        "class Late:\n"
        "    def __del__(self, kill=os.kill, pid=os.getpid(), number=signal.SIGTERM):\n"
        "        kill(pid, number)\n"
        "late = Late()  # deleted with this module, when Python has replaced the handlers of signals\n"
        "sys.argv = ['service', '--help']\n"
        "runpy.run_module('herd_bandit', run_name='__main__')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=SECONDS, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
