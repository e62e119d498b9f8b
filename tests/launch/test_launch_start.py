"""The supervisor's loop during a start: a request to stop while processes start, and when the wall clock starts to count."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path

import pytest

from herd.config.run import StopSettings
from herd.launch import supervisor
from herd.launch.plan import ChildPlan, Start
from herd.launch.readings import Readings
from herd.launch.shutdown import Grace
from herd.launch.supervisor import Supervisor
from herd.service.signals import SignalInbox
from tests.patience import patient

pytestmark = pytest.mark.processes

WAITS = [sys.executable, "-c", "import signal; signal.pause()"]
GRACE = Grace(patient(30.0), patient(30.0))


class SilentView:
    def show(self, children: object, readings: object, elapsed_seconds: float, trained_seconds: float) -> None:
        pass

    def note(self, message: str) -> None:
        pass


class ScriptedWatcher:
    """Reports at its seventh look, and not before, that the learner trains."""

    looks = 0

    def __init__(self, *_: object) -> None:
        pass

    @property
    def latest(self) -> Readings:
        ScriptedWatcher.looks += 1
        frames = 640.0 if ScriptedWatcher.looks > 6 else 0.0
        return Readings(ScriptedWatcher.looks, {"learner-0": {("herd_learner_env_frames_total", ()): frames}})

    def watch(self, pids: object) -> None:
        pass

    def most_work(self, _pid: int) -> float:
        return 0.0

    def close(self) -> None:
        pass


def test_a_stop_request_is_checked_between_process_starts(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    started: list[str] = []
    with SignalInbox() as inbox:

        def command(name: str, _start: Start) -> list[str]:
            started.append(name)
            inbox.asked = name == "actor-1"
            return WAITS

        plans = [ChildPlan("learner", 0, partial(command, "learner-0"), os.environ, agent=0)]
        plans += [ChildPlan("actor", number, partial(command, f"actor-{number}"), os.environ) for number in range(1000)]
        outcome = Supervisor(plans, tmp_path, StopSettings(), SilentView(), grace=GRACE).run(inbox)
    assert outcome.exit_code == 0
    assert started == ["learner-0", "actor-0", "actor-1"]


def test_the_wall_clock_limit_counts_from_the_first_update(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit of one millisecond does not end the run while processes load."""
    (tmp_path / "logs").mkdir()
    monkeypatch.setattr(supervisor, "Watcher", ScriptedWatcher)
    starts: list[Start] = []

    def command(start: Start) -> list[str]:
        starts.append(start)
        return WAITS

    plan, stop = ChildPlan("learner", 0, command, os.environ, agent=0), StopSettings(wall_seconds=0.001)
    outcome = Supervisor([plan], tmp_path, stop, SilentView(), started=0.0, grace=GRACE, most_start_seconds=1e12).run()
    assert outcome.exit_code == 0
    assert ScriptedWatcher.looks > 6
    assert starts == [Start(0, 0.0)]


@pytest.mark.parametrize("work", [0.0, 640.0])
def test_an_agent_whose_learning_diverges_is_given_up_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, work: float) -> None:
    """A learner that has trained and then finds its weights infinite exits as for bad input; before any work, the input of all is bad."""
    (tmp_path / "logs").mkdir()
    monkeypatch.setattr(supervisor, "Watcher", ScriptedWatcher)
    monkeypatch.setattr(ScriptedWatcher, "most_work", lambda _watcher, _pid: work)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)

    class View(SilentView):
        def note(self, message: str) -> None:
            if "agent 0 is given up" in message:
                fifo.write_text("")  # the other learner may end

    programs = ("import sys; print('learner: the weights are not finite'); sys.exit(2)", f"open({str(fifo)!r}).read()")

    def command(program: str, _start: Start) -> list[str]:
        return [sys.executable, "-c", program]

    plans = [
        ChildPlan("learner", number, partial(command, program), os.environ, agent=number, spare=1)
        for number, program in enumerate(programs)
    ]
    directories = [tmp_path / "0", tmp_path / "1"]
    outcome = Supervisor(plans, tmp_path, StopSettings(), View(), agent_directories=directories, grace=GRACE).run()
    if work:
        assert outcome.exit_code == 1
        assert outcome.message.startswith("agent 0 is given up: learner-0 ended (exit code 2): learner: the weights are not finite")
    else:
        assert (outcome.exit_code, outcome.message, outcome.given_up) == (2, "learner: the weights are not finite", ())
