from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from herd.cli import doctor
from herd.cli.main import COMMANDS, main
from herd.config.loading import dump_settings
from herd.config.loading.keys import setting_keys
from herd.config.run import RunSettings
from tests.patience import patient

pytestmark = pytest.mark.processes

HEAVY = ("torch", "matplotlib", "ale_py", "zmq", "gymnasium", "kubernetes")
REPOSITORY = Path(__file__).parents[2]
BREAKOUT = str(REPOSITORY / "experiments" / "breakout.yaml")


def herd(*words: str, folder: Path | None = None) -> tuple[int, str, str]:
    """Run ``herd`` in a fresh process that prints which heavy packages it imported; returns exit code, stdout and stderr."""
    code = (
        "import sys\nfrom herd.cli.main import main\ntry:\n    code = main(sys.argv[1:])\nexcept SystemExit as end:\n    code = end.code\n"
        f"print('imported:', *[name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)\nsys.exit(code)"
    )
    environ = {name: value for name, value in os.environ.items() if not name.startswith("HERD_")} | {"PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, cwd=folder, env=environ, timeout=patient(60), check=False
    )
    *errors, imported = done.stderr.splitlines()
    assert imported.strip() == "imported:", imported
    return done.returncode, done.stdout, "\n".join(errors)


def make_run(folder: Path, *, checkpoint: bool = False) -> Path:
    run_dir = folder / "run"
    run_dir.mkdir()
    (run_dir / "config.yaml").write_text(dump_settings(RunSettings(run_dir=run_dir)))
    if checkpoint:
        (run_dir / "checkpoints" / "000000000042").mkdir(parents=True)
    return run_dir


@pytest.mark.parametrize("words", [["--help"], ["help", "train"], *([name, "--help"] for name in COMMANDS)], ids=" ".join)
def test_help_is_printed_before_heavy_imports(words: list[str]) -> None:
    code, output, errors = herd(*words)
    assert (code, errors) == (0, "")
    assert "usage: herd" in output
    assert "(default: None)" not in output
    assert "(default: False)" not in output


def test_train_help_lists_every_setting_with_its_default() -> None:
    _, output, _ = herd("train", "--help")
    for key in setting_keys():
        assert f"--{key.dotted} (" in output
    assert "--learner.batch_size (integer > 0; default 32)" in output
    assert "\nlearner: The learner process." in output


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["trian"], ["trian", "did you mean train?"]),
        (["train", BREAKOUT, "--env.tasks", "brakout"], ["brakout", "did you mean breakout?"]),
        (["train", BREAKOUT, "--security.curve_keys", "empty"], ["empty/server.secret: no such file", "herd keys"]),
        (["evaluate", "run"], ["run: contains no checkpoint"]),
        (["watch", "nowhere"], ["nowhere: no such run"]),
        (["plot", "run", "empty"], ["empty: not a run"]),
        (["status", "nowhere"], ["nowhere: no such run"]),
    ],
    ids=lambda value: " ".join(Path(word).name for word in value) if isinstance(value, list) else None,
)
def test_bad_input_is_refused_before_heavy_imports(tmp_path: Path, words: list[str], parts: list[str]) -> None:
    make_run(tmp_path)
    (tmp_path / "empty").mkdir()
    code, output, errors = herd(*words, folder=tmp_path)
    assert code == 2, errors
    assert output == ""
    assert len(errors.splitlines()) == 1
    for part in parts:
        assert part in errors
    assert not (tmp_path / "runs").exists()  # a refused command leaves nothing behind


def test_a_port_in_use_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["train", BREAKOUT, "--placement.ports", json.dumps({"learner": port})]) == 2
    assert capsys.readouterr().err.startswith(f"herd: placement.ports learner: port {port}")
    assert not Path("runs").exists()


def test_status_has_a_line_for_each_member(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "80")  # no cell is broken across lines
    run_dir = make_run(tmp_path)
    for agent, fitness in ((0, 0.5), (1, None)):
        own = run_dir / "agents" / str(agent)
        own.mkdir(parents=True)
        settings = {"optimizer.learning_rate": 0.000123456, "loss.q_estimate": "value"}
        member = {"number": 3, "copied": 0, "fitness": fitness, "settings": settings}
        (own / "metrics.jsonl").write_text(json.dumps({"env_frames": 100, "wall_seconds": 1.0, "population": member}) + "\n")
    assert main(["status", str(run_dir)]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in printed if "100" in line.split()] == ["agents/0", "agents/1"]
    shown = "optimizer.learning_rate 0.000123, loss.q_estimate value"
    assert [line.partition(": agents/")[2] for line in printed if ": agents/" in line] == [
        f"0: fitness 0.50; {shown}",
        f"1: fitness not known yet; {shown}",
    ]


def test_status_shows_a_run_that_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "200")  # no cell is broken across lines
    run_dir = make_run(tmp_path, checkpoint=True)
    (run_dir / "processes").mkdir()
    (run_dir / "processes" / "learner-0.json").write_text(json.dumps({"pid": 2**22 + 1, "metrics_port": 1}))
    (run_dir / "metrics.jsonl").write_text(
        json.dumps(
            {
                "env_frames": 61_440,
                "wall_seconds": 1.0,
                "tasks": {"pong": {"episodes": 3, "episode_return_mean_100": 1.5}},
                "clipped_share": 1.0,
            }
        )
        + "\n"
    )
    assert main(["status", str(run_dir), "--json"]) == 0
    (status,) = json.loads(capsys.readouterr().out)
    (task,) = status.pop("tasks")
    assert (task["name"], task["episodes"], task["episode_return"]) == ("pong", 3, 1.5)
    assert status == {
        "run_dir": str(run_dir),
        "state": "killed",
        "running": False,
        "message": "no process is alive, and the learner left no report",
        "warnings": ["100% of updates are clipped"],
        "processes": {"learner-0": {"state": "gone", "pid": None, "reason": ""}},
        "env_frames": 61_440,
        "frames_per_second": None,
        "human_normalised_mean_capped": None,
        "checkpoint": "000000000042",
        "checkpoint_problem": f"{run_dir / 'checkpoints' / '000000000042'}: manifest.json is missing",
        "member": None,
        "agents": [],
    }
    assert main(["status", str(run_dir)]) == 0
    table = capsys.readouterr().out
    assert "killed" in table
    assert "000000000042 damaged" in table
    assert f"{run_dir}: no process is alive, and the learner left no report" in table
    assert "61 k" in table
    point = {"env_frames": 80_000, "wall_seconds": 2.0, "tasks": {"pong": {}, "boxing": {}}, "human_normalised_mean_capped": 0.234}
    with (run_dir / "metrics.jsonl").open("a") as points:
        points.write(json.dumps(point) + "\n")
    assert main(["status", str(run_dir)]) == 0
    assert "2 tasks, 23% of human (capped)" in " ".join(capsys.readouterr().out.split())


def test_status_shows_several_agents(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_dir = make_run(tmp_path)
    (run_dir / "processes").mkdir()
    for number in range(4):
        (run_dir / "processes" / f"learner-{number}.json").write_text(json.dumps({"pid": 2**22 + 1, "metrics_port": 1}))
    for agent in range(2):
        directory = run_dir / "agents" / str(agent)
        (directory / "checkpoints" / f"{agent:012}").mkdir(parents=True)
        point = {
            "env_frames": 10_000 + agent,
            "wall_seconds": 1.0,
            "tasks": {"pong": {"episodes": 1, "episode_return_mean_100": agent - 0.5}},
        }
        (directory / "metrics.jsonl").write_text(json.dumps(point) + "\n")
    assert main(["status", str(run_dir), "--json"]) == 0
    (status,) = json.loads(capsys.readouterr().out)
    assert (status["env_frames"], status["tasks"], len(status["processes"])) == (20_001, [], 4)
    assert [agent["tasks"][0]["episode_return"] for agent in status["agents"]] == [-0.5, 0.5]
    assert [list(agent["processes"]) for agent in status["agents"]] == [["learner-0", "learner-1"], ["learner-2", "learner-3"]]
    assert [agent["checkpoint"] for agent in status["agents"]] == ["0" * 12, "0" * 11 + "1"]
    assert main(["status", str(run_dir)]) == 0
    assert capsys.readouterr().out.count("  killed  ") == 3
    assert main(["evaluate", str(run_dir)]) == 2
    assert f"name one of them: {run_dir / 'agents' / '0'}" in capsys.readouterr().err


def test_status_distinguishes_a_process_from_an_old_one_with_its_pid(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_dir = make_run(tmp_path)
    (run_dir / "processes").mkdir()
    announcement = run_dir / "processes" / "actor-0.json"
    announcement.write_text(json.dumps({"pid": os.getpid(), "metrics_port": 1}))
    assert main(["status", str(run_dir), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["processes"]["actor-0"]["state"] == "hanging"  # nothing answers there
    os.utime(announcement, (1.0, 1.0))  # written before this process began
    assert main(["status", str(run_dir), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["processes"]["actor-0"]["state"] == "gone"


def test_doctor_reports_what_is_installed(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["doctor", "--json"])
    report = json.loads(capsys.readouterr().out)
    found = {check["name"]: check for check in report["checks"]}
    assert code == (0 if report["ok"] else 1)
    assert found["python"]["ok"]
    assert found["numpy"]["found"][0].isdigit()
    assert {"CPUs", "memory", "disk", "GPU", "torch", "suite atari", "suite gymnasium"} <= set(found)
    assert all(check["ok"] or check["advice"] for check in report["checks"])


def test_doctor_reports_what_is_missing_with_advice(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def version(package: str) -> str:
        if package == "torch":
            raise PackageNotFoundError(package)
        return "1.0"

    monkeypatch.setattr(doctor, "version", version)
    assert main(["doctor"]) == 1
    output = " ".join(capsys.readouterr().out.split())
    assert "MISSING torch not installed" in output
    assert "missing: torch" in output


def test_doctor_names_install_commands_that_contain_the_package() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    sources = {"herd-rl": project["dependencies"], **{f"herd-rl[{name}]": of for name, of in project["optional-dependencies"].items()}}
    names = {source: {re.split(r"[^\w.-]", each)[0] for each in requirements} for source, requirements in sources.items()}
    for package, (_, advice) in doctor._PACKAGES.items():
        source = advice.rpartition("pip install ")[2].strip("'")
        assert package in names[source], f"{package} is not part of {source}"


def test_the_version_option_prints_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("herd 0.")


@pytest.mark.parametrize("words", [("herd.cli.main", "train", "--help"), ("herd_actor", "--help")], ids=" ".join)
def test_a_closed_output_is_not_an_error(words: Sequence[str]) -> None:
    command = [sys.executable, "-m", *words]
    environ = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""


@pytest.mark.parametrize(
    ("redirected", "code", "output", "errors"),
    [
        ("", 0, "gr??e: no process is alive", ""),
        (">&-", 0, "", ""),
        ("<&- 2>&-", 0, "gr??e: no process is alive", ""),
        ("<&- >&- 2>&-", 0, "", ""),
        (">/dev/full", 1, "", "herd: cannot write the output: No space left on device\n"),
    ],
)
def test_a_terminal_without_utf_8_and_closed_or_full_outputs(tmp_path: Path, redirected: str, code: int, output: str, errors: str) -> None:
    make_run(tmp_path).rename(tmp_path / "größe")
    command = f'exec "$0" -m herd.cli.main status größe {redirected}'
    environ = os.environ | {"PYTHONPATH": str(REPOSITORY), "PYTHONIOENCODING": "ascii"}
    words = ["sh", "-c", command, sys.executable]
    done = subprocess.run(words, capture_output=True, cwd=tmp_path, env=environ, timeout=patient(60), check=False)
    assert (done.returncode, done.stderr.decode()) == (code, errors)
    assert output in done.stdout.decode()
    assert bool(output) == bool(done.stdout)


@pytest.mark.parametrize("words", [["train", "catch"], ["evaluate", "run"], ["doctor"]])
def test_an_interrupt_during_imports_gives_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    def interrupted(_name: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("herd.cli.main.importlib.import_module", interrupted)
    assert main(words) == 1
    assert capsys.readouterr().err == "herd: interrupted\n"


def test_the_main_module_imports_nothing_heavy() -> None:
    said = "import sys, herd.cli.main; print(*sorted(name for name in sys.modules if name.split('.')[0] in {'herd', 'pydantic', 'yaml'}))"
    done = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=True, timeout=patient(60.0))
    assert done.stdout.split() == ["herd", "herd.cli", "herd.cli.main"]
