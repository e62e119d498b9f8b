from __future__ import annotations

import json
import logging
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from herd.run.processes import announce_process
from herd.service import allocator
from herd.service.identity import Identity
from herd.service.startup import MAX_DESCRIPTORS, BadInputError, ensure_descriptors, let_go_of_output, parse_command_line
from tests.patience import patient


def test_settings_come_from_files_environment_and_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = tmp_path / "a.yaml", tmp_path / "b.yaml"
    first.write_text("seed: 5\nlearner: {batch_size: 40, queue_batches: 3}\n")
    second.write_text("learner: {batch_size: 48}\n")
    monkeypatch.setenv("HERD_LEARNER__QUEUE_BATCHES", "4")
    words = ["--config", str(first), "--config", str(second), "--actor.count", "7", "--paramserver", "tcp://root:7200"]
    settings, identity = parse_command_line("learner", words)
    assert (settings.seed, settings.learner.batch_size, settings.learner.queue_batches, settings.actor.count) == (5, 48, 4, 7)
    assert identity == Identity(addresses={"paramserver": ("tcp://root:7200",)})


@pytest.mark.processes
@pytest.mark.parametrize("service", ["actor", "learner"])
def test_invalid_settings_are_refused_before_torch_is_imported(service: str) -> None:
    """This needs a fresh process: the answer must not wait for seconds of imports."""
    code = (
        "import os, runpy, sys\n"
        "end = os._exit  # a learner calls it\n"
        "os._exit = lambda code: (print('torch' in sys.modules, flush=True), end(code))\n"
        "sys.argv = ['service', '--seed', 'minus']\n"
        f"try:\n    runpy.run_module('herd_{service}', run_name='__main__')\nfinally:\n    print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=patient(60), check=False)
    assert (done.returncode, done.stdout) == (2, "False\n")
    assert done.stderr.startswith(f"{service}: ")
    assert done.stderr.count("\n") == 1


def test_a_process_writes_its_announcement_file(tmp_path: Path) -> None:
    announce_process(tmp_path / "run", "actor", 3, metrics_host="*", metrics_port=9_100)
    announce_process(tmp_path / "run", "actor", 3, metrics_host="*", metrics_port=9_200)  # the process restarted
    (path,) = (tmp_path / "run" / "processes").iterdir()
    assert path.name == "actor-3.json"
    assert json.loads(path.read_text()) == {"pid": os.getpid(), "metrics_host": "127.0.0.1", "metrics_port": 9_200}


def test_a_process_that_cannot_announce_itself_continues(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "processes").write_text("a file in the way of the folder")
    with caplog.at_level(logging.WARNING):
        announce_process(tmp_path, "actor", 3, metrics_host="*", metrics_port=9_100)
    (record,) = caplog.records
    assert record.getMessage().startswith(f"cannot announce this process: {tmp_path / 'processes' / 'actor-3.json'}: ")


FULL = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full, where every write finds a full disk")


@pytest.mark.processes
@FULL
@pytest.mark.parametrize(("words", "code"), [("", 0), ("raise BadInputError('no such thing')", 2)])
def test_a_full_disk_under_the_log_does_not_change_the_exit_code(words: str, code: int) -> None:
    """Python itself would exit with 120, because its last flush of standard output fails."""
    program = (
        "import sys\n"
        "from herd.service.signals import StopRequest\n"
        "from herd.service.startup import BadInputError, run_service\n"
        f"def run(settings, identity, stop):\n    print('lost')\n    {words or 'pass'}\n"
        "sys.exit(run_service('bandit', run, StopRequest()))\n"
    )
    with open("/dev/full", "w") as full:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
        done = subprocess.run([sys.executable, "-c", program], env=environment, stdout=full, stderr=full, timeout=patient(60), check=False)
    assert done.returncode == code


@FULL
def test_let_go_of_output_flushes_what_can_be_written(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as log, open("/dev/full", "w") as full:
        log.write("kept")
        full.write("lost")
        let_go_of_output(full, log)
        assert (tmp_path / "log").read_text() == "kept"


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, list[str], dict[str, str]]]:
    """Records the calls that would replace this process."""
    calls: list[tuple[str, list[str], dict[str, str]]] = []
    monkeypatch.setattr(os, "execve", lambda *call: calls.append(call))
    monkeypatch.setattr(sys, "argv", ["/somewhere/__main__.py", "--seed", "3"])
    for name in allocator.ALLOCATOR_ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)
    return calls


def test_a_process_restarts_once_with_the_tuned_allocator(started: list[tuple[str, list[str], dict[str, str]]]) -> None:
    allocator.ensure_tuned_allocator("herd_actor")
    ((program, arguments, environment),) = started
    assert (program, arguments) == (sys.executable, [sys.executable, "-P", "-m", "herd_actor", "--seed", "3"])
    assert environment.items() >= allocator.ALLOCATOR_ENVIRONMENT.items()
    assert environment["PATH"] == os.environ["PATH"]


def test_allocator_values_set_by_the_operator_are_kept(
    started: list[tuple[str, list[str], dict[str, str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MALLOC_MMAP_MAX_", "9")
    allocator.ensure_tuned_allocator("herd_actor")
    assert started[0][2]["MALLOC_MMAP_MAX_"] == "9"
    for name in allocator.ALLOCATOR_ENVIRONMENT:
        monkeypatch.setenv(name, "0")
    allocator.ensure_tuned_allocator("herd_actor")
    assert len(started) == 1


@pytest.mark.parametrize(("limits", "after"), [((300, 1000), 1000), ((300, 10**6), MAX_DESCRIPTORS), ((300, 300), 300)])
def test_the_limit_of_open_files_is_raised_to_the_maximum(monkeypatch: pytest.MonkeyPatch, limits: tuple[int, int], after: int) -> None:
    held = [limits]
    monkeypatch.setattr(resource, "getrlimit", lambda _: held[0])
    monkeypatch.setattr(resource, "setrlimit", lambda _, now: held.append(now) or held.pop(0))  # type: ignore[func-returns-value]
    ensure_descriptors()
    assert held == [(after, limits[1])]


def test_too_low_a_limit_of_open_files_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (20, 20))
    with pytest.raises(BadInputError, match=r"the limit of open files is 20, but a process needs 256: increase it \(ulimit -n\)"):
        ensure_descriptors()


def test_help_lists_the_settings_that_the_process_reads(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        parse_command_line("learner", ["--help"])
    assert end.value.code == 0
    output = capsys.readouterr().out
    for option in ("--agent", "--paramserver", "--learner.batch_size", "--env.tasks"):
        assert f"{option} " in output
    assert not any(f"--{section}." in output.replace("--learner.", "") for section in ("actor", "bandit", "replay_service", "evaluation"))


@pytest.mark.processes
@pytest.mark.parametrize(("words", "exit_code", "stream"), [(["--help"], 0, "stdout"), (["--config", "nowhere.yaml"], 2, "stderr")])
def test_a_learner_skips_pythons_shutdown(words: list[str], exit_code: int, stream: str, tmp_path: Path) -> None:
    """During shutdown a thread of gloo may abort the process, although all work is done."""
    code = "import atexit, runpy; atexit.register(print, 'shutdown'); runpy.run_module('herd_learner', run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, cwd=tmp_path, timeout=patient(60.0), check=False
    )
    assert done.returncode == exit_code
    assert "herd_learner" in done.stdout if stream == "stdout" else done.stderr.startswith("learner: nowhere.yaml")
    assert "shutdown" not in done.stdout
