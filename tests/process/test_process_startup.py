from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from herd.process import allocator
from herd.process.startup import StopRequest, announce_process, parse_settings


@pytest.fixture
def _signals() -> Iterator[None]:
    """Leave the handlers of the test runner as they were."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("_signals")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_sets_the_stop_request(number: signal.Signals) -> None:
    stop = StopRequest()
    assert not stop
    os.kill(os.getpid(), number)
    assert stop
    os.kill(os.getpid(), number)  # again, without harm
    assert stop


def test_settings_come_from_files_environment_and_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = tmp_path / "a.yaml", tmp_path / "b.yaml"
    first.write_text("seed: 5\nlearner: {batch_size: 40, queue_batches: 3}\n")
    second.write_text("learner: {batch_size: 48}\n")
    monkeypatch.setenv("HERD_LEARNER__QUEUE_BATCHES", "4")
    settings = parse_settings("learner", ["--config", str(first), "--config", str(second), "--actor.index", "7"])
    assert (settings.seed, settings.learner.batch_size, settings.learner.queue_batches, settings.actor.index) == (5, 48, 4, 7)


@pytest.mark.parametrize(
    "arguments", [["--config", "missing.yaml"], ["--learner.batch_sise", "3"], ["--learner.batch_size", "many"], ["stray"], ["--config"]]
)
def test_settings_that_cannot_work_end_with_one_line_and_code_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse_settings("learner", arguments)
    assert ended.value.code == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("learner: ")
    assert output.err.count("\n") == 1


def test_help_is_answered_with_code_0(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse_settings("actor", ["--config", "x.yaml", "--help"])
    assert ended.value.code == 0
    assert "python -m services.actor" in capsys.readouterr().out


@pytest.mark.parametrize("service", ["actor", "learner"])
def test_bad_settings_are_answered_before_torch_loads(service: str) -> None:
    """In a fresh process: the answer must not wait for seconds of imports."""
    code = (
        f"import sys, services.{service}.__main__ as service\n"
        "sys.argv = ['service', '--seed', 'minus']\n"
        "try:\n    service.main()\nfinally:\n    print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, "False\n")
    assert done.stderr.startswith(f"{service}: ")
    assert done.stderr.count("\n") == 1


def test_a_process_announces_itself(tmp_path: Path) -> None:
    announce_process(tmp_path / "run", "actor", 3, metrics_port=9_100)
    announce_process(tmp_path / "run", "actor", 3, metrics_port=9_200)  # restarted
    (path,) = (tmp_path / "run" / "processes").iterdir()
    assert path.name == "actor-3.json"
    assert json.loads(path.read_text()) == {"pid": os.getpid(), "metrics_port": 9_200}


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, list[str], dict[str, str]]]:
    """What would replace this process."""
    calls: list[tuple[str, list[str], dict[str, str]]] = []
    monkeypatch.setattr(os, "execve", lambda *call: calls.append(call))
    monkeypatch.setattr(sys, "argv", ["/somewhere/__main__.py", "--seed", "3"])
    for name in allocator.ALLOCATOR_ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)
    return calls


def test_a_process_starts_again_under_the_tuned_allocator_once(started: list[tuple[str, list[str], dict[str, str]]]) -> None:
    allocator.ensure_tuned_allocator("services.actor")
    ((program, arguments, environment),) = started
    assert (program, arguments) == (sys.executable, [sys.executable, "-m", "services.actor", "--seed", "3"])
    assert environment.items() >= allocator.ALLOCATOR_ENVIRONMENT.items()
    assert environment["PATH"] == os.environ["PATH"]


def test_the_operators_own_values_stay(started: list[tuple[str, list[str], dict[str, str]]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLOC_MMAP_MAX_", "9")
    allocator.ensure_tuned_allocator("services.actor")
    assert started[0][2]["MALLOC_MMAP_MAX_"] == "9"
    for name in allocator.ALLOCATOR_ENVIRONMENT:
        monkeypatch.setenv(name, "0")
    allocator.ensure_tuned_allocator("services.actor")
    assert len(started) == 1
