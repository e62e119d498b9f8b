"""The supervisor with real processes and real signals. Children connect to the test, so every wait is for an event."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from io import TextIOWrapper
from pathlib import Path

import psutil
import pytest

from herd.launch.child import Child
from tests.patience import patient
from tests.system.whole_runs import until

pytestmark = pytest.mark.processes

DUMMIES = Path(__file__).parent / "dummies"
SECONDS = patient(120.0)


@dataclass
class Connected:
    """The connection of one dummy child; closing it tells the child to continue."""

    name: str
    pid: int
    words: str
    connection: socket.socket
    stream: TextIOWrapper

    def line(self) -> str:
        """The child's next line; empty once the child is gone."""
        try:
            return self.stream.readline().strip()
        except ConnectionResetError:
            return ""

    def close(self) -> None:
        self.stream.close()
        self.connection.close()


class Supervised:
    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self.server = socket.create_server(("127.0.0.1", 0))
        self.server.settimeout(SECONDS)
        self.open: list[Connected] = []
        self.output = ""
        self.process: subprocess.Popen[str] | None = None

    def start(self, *children: str, wall_seconds: float = 0.0) -> None:
        command = [sys.executable, str(DUMMIES / "supervise.py"), str(self.run_dir), str(self.server.getsockname()[1]), str(wall_seconds)]
        self.process = subprocess.Popen([*command, *children], stdout=subprocess.PIPE, text=True)

    def accept(self) -> Connected:
        connection, _ = self.server.accept()
        connection.settimeout(SECONDS)
        stream = connection.makefile("r")
        name, pid, words = stream.readline().strip().split(maxsplit=2)
        child = Connected(name, int(pid), words, connection, stream)
        self.open.append(child)
        return child

    def accept_all(self, count: int) -> dict[str, Connected]:
        return {child.name: child for child in (self.accept() for _ in range(count))}

    def signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def read_until(self, *texts: str) -> None:
        """Read the supervisor's output until every one of ``texts`` has appeared."""
        assert self.process is not None
        assert self.process.stdout is not None
        while not all(text in self.output for text in texts):
            line = self.process.stdout.readline()
            assert line, self.output
            self.output += line

    def finish(self) -> tuple[int, str]:
        assert self.process is not None
        output, _ = self.process.communicate(timeout=SECONDS)
        return self.process.returncode, self.output + output

    def close(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            assert self.process.stdout is not None
            self.process.stdout.close()
        for child in self.open:
            child.close()
        self.server.close()


@pytest.fixture
def supervised(tmp_path: Path) -> Iterator[Supervised]:
    running = Supervised(tmp_path / "run")
    yield running
    running.close()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_on_a_signal_the_learner_stops_before_the_others(supervised: Supervised, number: int) -> None:
    supervised.start("paramserver-0:serve", "learner-0:slow", "actor-0:serve")
    children = supervised.accept_all(3)
    supervised.signal(number)
    assert children["learner-0"].line() == "term"
    children["actor-0"].connection.settimeout(0.7)  # longer than the supervisor's tick
    with pytest.raises(TimeoutError):
        children["actor-0"].connection.recv(1)
    children["learner-0"].close()  # its checkpoint is written
    code, output = supervised.finish()
    assert code == 0, output
    assert children["paramserver-0"].line() == "term"


def test_a_finished_learner_ends_the_run_and_stuck_actors_are_killed(supervised: Supervised) -> None:
    supervised.start("learner-0:until=0", "actor-0:stubborn", "actor-1:serve")
    children = supervised.accept_all(3)
    children["learner-0"].close()
    code, output = supervised.finish()
    assert code == 0, output
    assert children["actor-0"].line() == "term"
    assert children["actor-0"].line() == ""
    assert children["actor-1"].line() == "term"


def test_the_wall_clock_limit_ends_the_run(supervised: Supervised) -> None:
    supervised.start("learner-0:serve", "actor-0:serve", wall_seconds=1.0)
    children = supervised.accept_all(2)
    code, output = supervised.finish()
    assert code == 0, output
    assert children["learner-0"].line() == "term"


def test_a_killed_actor_and_a_killed_learner_are_replaced(supervised: Supervised) -> None:
    supervised.start("learner-0:serve", "actor-0:serve")
    children = supervised.accept_all(2)
    for child in children.values():
        assert os.getpgid(child.pid) == child.pid  # not the terminal's group
    os.kill(children["actor-0"].pid, signal.SIGKILL)
    replacement = supervised.accept()
    assert (replacement.name, replacement.words) == ("actor-0", "serve restarts=1")
    assert replacement.pid != children["actor-0"].pid
    assert psutil.pid_exists(children["learner-0"].pid)
    os.kill(children["learner-0"].pid, signal.SIGKILL)
    learner = supervised.accept()
    supervised.signal(signal.SIGTERM)
    assert learner.line() == "term"
    code, output = supervised.finish()
    assert code == 0, output
    assert "actor-0 ended (SIGKILL)" in output


@pytest.mark.parametrize(
    ("children", "code", "times"),
    [
        # In the note, in the outcome, and twice in the log.
        (("learner-0:serve", "actor-0:exit=7"), 1, {"actor-0 failed twice in the same way": 1, "actor-0 says hello and exit=7": 4}),
        (("learner-0:serve", "actor-0+1:exit=7", "actor-1+1:exit=7"), 1, {"outcome: 1 actor-": 1, "without: actor-": 1}),
        (("learner-0:exit=2", "actor-0:serve"), 2, {"outcome: 2 learner-0 ended (exit code 2): learner-0 says hello and exit=2": 1}),
        (("learner-0:exit=75", "learner-1:stubborn"), 1, {"3 times in a row": 1}),
        (("learner-0:serve", "actor-0:missing"), 1, {"actor-0 cannot be started: No such file or directory": 3}),
    ],
    ids=["twice alike", "the last actor", "bad input", "a group that keeps breaking", "no such program"],
)
def test_a_failure_that_repeats_ends_the_run(supervised: Supervised, children: tuple[str, ...], code: int, times: dict[str, int]) -> None:
    """Each text is in the supervisor's output as often as given."""
    supervised.start(*children)
    ended, output = supervised.finish()
    assert ended == code, output
    assert {text: output.count(text) for text in times} == times, output


def test_a_child_that_the_run_can_spare_is_given_up_alone(supervised: Supervised) -> None:
    supervised.start("learner-0:until=0", "actor-0+1:exit=7", "actor-1+1:serve", "evaluator-0+1:exit=1")
    children = [supervised.accept() for _ in range(6)]
    assert sorted(child.name for child in children) == ["actor-0", "actor-0", "actor-1", "evaluator-0", "evaluator-0", "learner-0"]
    supervised.read_until("actor-0 is given up", "evaluator-0 is given up")
    assert "actor-0 ended (exit code 7: actor-0 says hello and exit=7); it will be restarted" in supervised.output
    next(child for child in children if child.name == "learner-0").close()
    code, output = supervised.finish()
    assert code == 0, output
    assert "without: actor-0 is given up: it failed twice in the same way shortly after its start: actor-0 says hello and exit=7" in output
    assert "without: evaluator-0 is given up" in output


def test_an_agent_that_keeps_failing_is_given_up_alone(supervised: Supervised) -> None:
    """Its other shard ends with it, the other agent trains to its end, and the exit code says that a part is missing."""
    supervised.start("learner-0@0+1:serve", "learner-1@0+1:stubborn", "learner-2@1+1:until=0", "actor-0:serve")
    children = supervised.accept_all(4)
    for _ in range(2):
        os.kill(children["learner-0"].pid, signal.SIGKILL)
        children |= supervised.accept_all(2)
    os.kill(children["learner-0"].pid, signal.SIGKILL)
    supervised.read_until("agent 0 is given up")
    assert children["learner-1"].line() == ""
    assert psutil.pid_exists(children["learner-2"].pid)
    children["learner-2"].close()
    code, output = supervised.finish()
    assert code == 1, output
    assert "outcome: 1 agent 0 is given up: learner-0 ended (SIGKILL): it ended 3 times in a row without progress" in output


def all_ended(pids: list[int]) -> bool:
    return all(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE for pid in pids)


@pytest.mark.parametrize(("code", "message"), [(2, "learner-1 says hello and until=2"), (1, "learner-1 failed twice in the same way")])
def test_the_shard_that_failed_first_is_reported(supervised: Supervised, code: int, message: str) -> None:
    supervised.start("learner-0:until=75", f"learner-1:until={code}")
    for _ in range(1 if code == 2 else 2):
        shards = supervised.accept_all(2).values()
        supervised.signal(signal.SIGSTOP)  # so that the supervisor finds both ended when it resumes
        for shard in shards:
            shard.close()
        until(partial(all_ended, [shard.pid for shard in shards]), "both end")
        supervised.signal(signal.SIGCONT)
    ended, output = supervised.finish()
    assert ended == code, output
    assert message in output


def test_the_run_ends_with_its_last_agent(supervised: Supervised) -> None:
    supervised.start("learner-0@0:until=0", "learner-1@0:slow", "learner-2@1:until=0", "actor-0:serve")
    children = supervised.accept_all(4)
    children["learner-0"].close()
    assert children["learner-1"].line() == "term"  # its agent has ended, so the other shard is asked to end too
    children["learner-1"].close()
    until(lambda: not psutil.pid_exists(children["learner-1"].pid), "the agent's last shard is gone")
    said, _, _ = select.select([children["actor-0"].connection, children["learner-2"].connection], [], [], 0.7)  # more than a tick
    assert not said
    children["learner-2"].close()
    assert children["actor-0"].line() == "term"
    code, output = supervised.finish()
    assert code == 0, output
    assert "starts again" not in output


def test_a_lost_shard_does_not_affect_other_agents(supervised: Supervised) -> None:
    supervised.start("learner-0@0:serve", "learner-1@0:serve", "learner-2@1:serve")
    children = supervised.accept_all(3)
    os.kill(children["learner-0"].pid, signal.SIGKILL)
    again = supervised.accept_all(2)
    assert set(again) == {"learner-0", "learner-1"}
    assert children["learner-1"].line() == ""
    assert psutil.pid_exists(children["learner-2"].pid)
    supervised.signal(signal.SIGTERM)
    assert children["learner-2"].line() == "term"
    assert supervised.finish()[0] == 0


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_after_a_request_to_stop_kills_the_children(supervised: Supervised, first: int) -> None:
    supervised.start("learner-0:stubborn", "actor-0:stubborn")
    children = supervised.accept_all(2)
    supervised.signal(first)
    assert children["learner-0"].line() == "term"
    supervised.signal(signal.SIGINT)
    code, output = supervised.finish()
    assert code == 1
    assert "killed" in output
    assert children["learner-0"].line() == ""
    assert children["actor-0"].line() == ""


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's parent-death signal is Linux's own")
def test_children_die_with_a_killed_supervisor(supervised: Supervised) -> None:
    supervised.start("learner-0:stubborn", "actor-0:stubborn")
    children = supervised.accept_all(2)
    supervised.signal(signal.SIGKILL)
    assert children["learner-0"].line() == ""  # the kernel ended the child, which closed its connection
    assert children["actor-0"].line() == ""


def test_a_learner_that_fails_while_stopping_is_reported(supervised: Supervised) -> None:
    supervised.start("learner-0:slow=1", "actor-0:serve")
    children = supervised.accept_all(2)
    supervised.signal(signal.SIGTERM)
    assert children["learner-0"].line() == "term"
    children["learner-0"].close()
    code, output = supervised.finish()
    assert code == 1
    assert "learner-0 did not stop properly (exit code 1)" in output


@pytest.mark.parametrize("service", ["learner-0", "bandit-0"])
def test_files_lost_at_the_end_set_the_exit_code(supervised: Supervised, service: str) -> None:
    """The child ended cleanly, by itself or on request: it is not restarted, and the exit code is not 0."""
    supervised.start("learner-0:until=74" if service == "learner-0" else "learner-0:until=0", "bandit-0:slow=74", "actor-0:serve")
    children = supervised.accept_all(3)
    children["learner-0"].close()
    assert children["bandit-0"].line() == "term"
    children["bandit-0"].close()
    code, output = supervised.finish()
    assert code == 1, output
    assert f"outcome: 1 {service} could not write its last files" in output
    assert "starts again" not in output


def test_a_learner_stopped_during_its_restart_fails_the_run(supervised: Supervised) -> None:
    supervised.start("learner-0:early-later", "actor-0:serve")
    children = supervised.accept_all(2)
    os.kill(children["learner-0"].pid, signal.SIGKILL)
    supervised.accept()
    supervised.signal(signal.SIGTERM)
    code, output = supervised.finish()
    assert code == 1, output
    assert "outcome: 1 learner-0 was stopped while it was restarting" in output


def test_a_child_runs_at_its_niceness(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import os; print(os.getpriority(os.PRIO_PROCESS, 0))"]
    child = Child(command, dict(os.environ), tmp_path / "log", niceness=3)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert child.exit_code() == 0
    assert child.last_lines(1) == [str(os.getpriority(os.PRIO_PROCESS, 0) + 3)]


@pytest.mark.parametrize("again", [signal.SIGTERM, signal.SIGHUP])
def test_repeated_sighup_or_sigterm_does_not_kill(supervised: Supervised, again: int) -> None:
    """A closing terminal sends SIGHUP twice, and a platform may repeat its signal: the checkpoint is still written."""
    supervised.start("learner-0:slow", "actor-0:serve")
    children = supervised.accept_all(2)
    supervised.signal(signal.SIGHUP)
    assert children["learner-0"].line() == "term"
    supervised.signal(again)
    children["learner-0"].connection.settimeout(0.7)  # longer than the supervisor's tick
    with pytest.raises(TimeoutError):
        children["learner-0"].connection.recv(1)
    children["learner-0"].close()
    code, output = supervised.finish()
    assert code == 0, output


def test_a_run_under_nohup_ignores_sighup(supervised: Supervised) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # children inherit ignored signals
    try:
        supervised.start("learner-0:serve", "actor-0:serve")
    finally:
        signal.signal(signal.SIGHUP, before)
    children = supervised.accept_all(2)
    supervised.signal(signal.SIGHUP)
    children["learner-0"].connection.settimeout(0.7)
    with pytest.raises(TimeoutError):
        children["learner-0"].connection.recv(1)
    supervised.signal(signal.SIGTERM)
    assert supervised.finish()[0] == 0


def test_a_learner_signalled_during_its_start_stops_cleanly(supervised: Supervised) -> None:
    supervised.start("learner-0:early", "actor-0:serve")
    supervised.accept_all(2)
    supervised.signal(signal.SIGTERM)
    code, output = supervised.finish()
    assert code == 0, output


def test_a_child_whose_log_cannot_be_opened_runs_without_it(supervised: Supervised) -> None:
    (supervised.run_dir / "logs" / "actor-0.log").mkdir(parents=True)  # a folder in place of the log file
    supervised.start("learner-0:serve", "actor-0:serve")
    supervised.accept_all(2)
    supervised.signal(signal.SIGTERM)
    code, output = supervised.finish()
    assert code == 0, output
    assert f"actor-0 runs without a log: {supervised.run_dir / 'logs' / 'actor-0.log'}: Is a directory" in output
    assert "learner-0 says hello" in (supervised.run_dir / "logs" / "learner-0.log").read_text()


def test_a_log_is_bounded_while_its_child_prints(tmp_path: Path) -> None:
    """The child goes on appending to a log that was cut, and the end of the log stays available."""
    log, fifo = tmp_path / "actor-0.log", tmp_path / "fifo"
    log.write_text("of an earlier session\n")
    os.mkfifo(fifo)
    program = f"for n in range(10000): print(f'step {{n}}')\nopen({str(fifo)!r}).read()\nprint('the end')"
    child = Child([sys.executable, "-u", "-c", program], os.environ, log)
    with fifo.open("w"):  # returns when everything was printed
        child.bound_log(max_bytes=200_000)
        assert child.last_lines(1) == ["step 9999"]  # not long enough yet
        child.bound_log(max_bytes=80_000)
    assert child._process.wait(SECONDS) == 0
    kept = (tmp_path / "actor-0.log.1").read_text().splitlines()
    assert 39_000 < len("\n".join(kept)) <= 40_000
    assert kept[-1] == "step 9999"
    assert all(line.startswith("step ") for line in kept)
    assert log.read_text() == "the end\n"
    assert child.last_lines(5) == ["the end"]
