"""``herd sweep``: which runs it starts, which it skips, and which files it writes. All tests but one use simulated processes."""

from __future__ import annotations

import csv
import fcntl
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from herd.cli.main import main
from herd.cli.train import read_settings
from herd.components.losses.impala import ImpalaSettings
from herd.config.loading import dump_settings
from herd.run.paths import planned_agent_directories
from herd.sweeps.whole_runs import ClaimedError, Trial, WholeRun
from tests.system.whole_runs import herd, read_report

FRAMES = ["--stop.env_frames", "3200"]


class Process:
    """Ends at its third poll, or hangs until it is stopped."""

    def __init__(self, code: int, *, hangs: bool = False) -> None:
        self._code = code
        self._hangs = hangs
        self.looks = 0

    def stop(self) -> None:
        self._hangs, self.looks = False, 3

    def poll(self) -> int | None:
        self.looks += 1
        return self._code if self.is_over else None

    @property
    def is_over(self) -> bool:
        return self.looks >= 3 and not self._hangs


class Machine:
    """Stands in for ``herd train``: the return of each run is ``gain`` x entropy_cost + seed, unless it is to fail."""

    def __init__(self) -> None:
        self.trained: list[str] = []
        self.gain = 100.0
        self.fails: set[int] = set()
        self.lags: set[int] = set()
        """Seeds of runs without success and without end."""
        self.most_at_once = 0
        self._processes: list[Process] = []

    def __call__(self, words: list[str], **_: Any) -> Process:
        position = words.index("--run_dir")
        directory = Path(words[position + 1])
        settings = read_settings([*words[position + 2 :], "--run_dir", str(directory)], os.environ)
        self.trained.append(str(directory).removesuffix(".partial"))
        assert not directory.exists()
        directory.mkdir(parents=True)
        (directory / "config.yaml").write_text(dump_settings(settings))
        for agent, folder in enumerate(planned_agent_directories(settings)):
            folder.mkdir(parents=True, exist_ok=True)
            loss = settings.of_agent(agent).loss
            assert isinstance(loss, ImpalaSettings)
            reached = -1 if settings.seed in self.lags else self.gain * loss.entropy_cost + settings.seed
            points = [
                {"env_frames": frames, "wall_seconds": frames / 100, "tasks": {"catch": {"episode_return_mean_100": value}}}
                for frames, value in ((0, None), (1600, -1.0), (3200, reached))
            ]
            for point, value in zip(points, (None, -1.0, reached), strict=True):
                point["episode_return_mean_100"] = value
            (folder / "metrics.jsonl").write_text("".join(json.dumps(point) + "\n" for point in points))
        self._processes.append(Process(1 if settings.seed in self.fails else 0, hangs=settings.seed in self.lags))
        self.most_at_once = max(self.most_at_once, sum(not each.is_over for each in self._processes))
        return self._processes[-1]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Machine:
    found = Machine()
    monkeypatch.setattr("herd.sweeps.whole_runs.subprocess.Popen", found)
    monkeypatch.setattr("herd.sweeps.whole_runs.stop_training", Process.stop)
    monkeypatch.setattr("herd.cli.sweep.signal.signal", lambda *_: None)
    monkeypatch.chdir(tmp_path)
    return found


def test_a_grid_is_trained_once_and_can_be_continued(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    grid = ["sweep", "catch", *FRAMES, "--set", "loss.entropy_cost=0.01,0.03"]
    left = Path("runs/catch-sweep/entropy_cost=0.01/seed1.partial")
    left.mkdir(parents=True)  # the remains of an interrupted run
    assert main([*grid, "--seeds", "2", "--parallel", "2"]) == 0
    folders = [f"runs/catch-sweep/entropy_cost={cost}/seed{seed}" for seed in (1, 2) for cost in ("0.01", "0.03")]
    assert machine.trained == folders
    assert machine.most_at_once == 2
    output = capsys.readouterr().out
    assert "1 of 4: training runs/catch-sweep/entropy_cost=0.01/seed1" in output
    assert [Path(line).name for line in output.splitlines()[-3:]] == ["sweep.json", "sweep.csv", "sweep.png"]
    written = json.loads(Path("runs/catch-sweep/sweep.json").read_text())
    assert [each["values"] for each in written["combinations"]] == [{"loss.entropy_cost": "0.01"}, {"loss.entropy_cost": "0.03"}]
    estimate = written["combinations"][1]["estimates"]["catch"]
    assert (estimate["runs"], estimate["mean"], estimate["scores"]) == (2, 4.5, [4.0, 5.0])
    assert estimate["interval_95"] == [4.0, 5.0]

    # Another seed and another value leave the four runs as they are.
    assert main(["sweep", "catch", *FRAMES, "--set", "loss.entropy_cost=0.01,0.03,0.05", "--seeds", "3"]) == 0
    assert machine.trained[4:] == [
        "runs/catch-sweep/entropy_cost=0.05/seed1",
        "runs/catch-sweep/entropy_cost=0.05/seed2",
        *(f"runs/catch-sweep/entropy_cost={cost}/seed3" for cost in ("0.01", "0.03", "0.05")),
    ]
    assert "4 of 9 runs are finished" in capsys.readouterr().out
    with Path("runs/catch-sweep/sweep.csv").open() as lines:
        assert len(list(csv.DictReader(lines))) == 9

    # Ports do not matter. Otherwise finished runs are not mixed with runs of other settings.
    assert main([*grid, "--seeds", "2", "--placement.ports", '{"learner": 7123}']) == 0
    assert len(machine.trained) == 9
    assert main([*grid, "--seeds", "2", "--learner.max_policy_lag", "7"]) == 2
    assert "seed1: was trained with another learner.max_policy_lag: choose another --output" in capsys.readouterr().err
    assert len(machine.trained) == 9


def test_a_failed_run_does_not_stop_others_and_is_retried(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["sweep", "catch", *FRAMES, "--seeds", "3", "--output", "here"]
    machine.fails = {2}
    assert main(words) == 1
    said = capsys.readouterr()
    assert said.err == "herd: here/as-it-is/seed2 failed: see here/as-it-is/seed2.out\n"
    assert json.loads(Path("here/sweep.json").read_text())["combinations"][0]["estimates"]["catch"]["runs"] == 2
    machine.fails = set()
    assert main(words) == 0
    assert [Path(path).name for path in machine.trained] == ["seed1", "seed2", "seed3", "seed2"]


def test_a_second_sweep_leaves_the_runs_of_the_first_alone(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["sweep", "catch", *FRAMES, "--seeds", "1", "--output", "here"]
    directory = Path("here/as-it-is/seed1")
    first = WholeRun(Trial(directory, ("catch", *FRAMES, "--seed", "1")))
    file = directory.with_name("seed1.partial") / "config.yaml"
    assert file.is_file()
    assert main(words) == 2
    assert capsys.readouterr().err == f"herd: {directory} is being trained by another herd sweep (process {os.getpid()})\n"
    # As above, but the first sweep begins this run only after the second one has looked.
    with pytest.raises(ClaimedError):
        WholeRun(first.trial)
    assert file.is_file()
    assert machine.trained == [str(directory)]
    while first.exit_code() is None:
        pass
    assert main(words) == 0
    assert machine.trained == [str(directory)]


@pytest.mark.parametrize("resume", [False, True])
def test_an_interrupted_run_starts_again_or_continues(resume: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []
    monkeypatch.setattr("herd.sweeps.whole_runs.subprocess.Popen", lambda words, **_: asked.append(words))
    directory = tmp_path / "seed1"
    checkpoint = tmp_path / "seed1.partial/checkpoints/step-8"
    for exists in (False, True):
        if exists:
            checkpoint.mkdir(parents=True)
        run = WholeRun(Trial(directory, ("catch", *FRAMES)), resume=resume)
        run._output.close()
        assert checkpoint.is_dir() == (exists and resume)
        assert ("--resume" in asked[-1]) == (exists and resume)


def test_with_together_combinations_are_agents_of_one_run(machine: Machine) -> None:
    grid = ["--set", "loss.entropy_cost=0.01,0.02", "--set", "optimizer.learning_rate=1e-3,2e-3"]
    assert main(["sweep", "catch", *FRAMES, "--seeds", "2", *grid, "--together", "--actor.count", "4", "--output", "here"]) == 0
    assert machine.trained == ["here/together-seed1", "here/together-seed2"]
    written = json.loads(Path("here/sweep.json").read_text())
    assert [each["estimates"]["catch"]["mean"] for each in written["combinations"]] == [2.5, 2.5, 3.5, 3.5]
    assert [run["directory"] for run in written["combinations"][2]["runs"]] == [f"here/together-seed{seed}/agents/2" for seed in (1, 2)]


@pytest.mark.processes
def test_two_real_runs_train_in_parallel(tmp_path: Path) -> None:
    words = ["sweep", "catch", *FRAMES, "--seeds", "1", "--set", "loss.entropy_cost=0.01,0.02", "--parallel", "2", "--learner.threads", "1"]
    done = herd(*words, folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    for cost in ("0.01", "0.02"):
        assert read_report(tmp_path / f"runs/catch-sweep/entropy_cost={cost}/seed1")["env_frames"] >= 3200
    assert (tmp_path / "runs/catch-sweep/sweep.png").stat().st_size > 0
    again = herd(*words, folder=tmp_path)
    assert again.stdout.splitlines()[0] == "2 of 2 runs are finished"


SEARCH = ["sweep", "catch", *FRAMES, "--set", "loss.entropy_cost=0.001..0.1", "--set", "algorithm.unroll_length=10..40"]
SEARCH += ["--set", "value_scaling.kind=none,popart"]


@pytest.fixture
def optuna() -> Any:
    return pytest.importorskip("optuna")


def study_of(folder: Path = Path("runs/catch-sweep")) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "sweep.json").read_text())
    return found


@pytest.mark.usefixtures("optuna")
def test_a_search_begins_with_the_default_and_goes_on_where_it_ended(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("herd.sweeps.search._MIN_TRIALS", 7)  # complete runs, which are all here: none of them is pruned
    machine.fails = {3}
    assert main([*SEARCH, "--trials", "4", "--parallel", "2"]) == 0
    assert machine.most_at_once == 2
    assert main([*SEARCH, "--trials", "8"]) == 0
    assert machine.trained == [f"runs/catch-sweep/trial-{number:04d}" for number in range(8)]
    found = study_of()
    assert sorted(each["number"] for each in found["study"]) == list(range(8))
    default = read_settings(["catch"], {})
    first = next(each for each in found["study"] if each["number"] == 0)
    assert first["values"]["algorithm.unroll_length"] == str(default.algorithm.unroll_length)
    best = found["study"][0]
    assert (best["state"], best["value"]) == ("complete", max(each["value"] or 0.0 for each in found["study"]))
    for each in found["study"]:
        cost, seed = float(each["values"]["loss.entropy_cost"]), 1 + each["number"]
        assert 0.001 <= cost <= 0.1
        assert each["value"] is None if seed == 3 else each["value"] == pytest.approx(100 * cost + seed, rel=1e-4)
        assert each["state"] == ("failed" if seed == 3 else "complete")
    assert sum(found["importance"].values()) == pytest.approx(1.0)
    output = capsys.readouterr().out
    assert re.search(r"importance of loss.entropy_cost: \d+%", output)
    assert Path("runs/catch-sweep/sweep.png").is_file()


@pytest.mark.usefixtures("optuna")
def test_a_run_that_falls_behind_is_pruned(machine: Machine) -> None:
    machine.gain = 1.0  # each run is better than those before, whatever the search draws, except for the one that lags
    machine.lags = {6}
    assert main([*SEARCH, "--trials", "7"]) == 0
    states = {each["number"]: (each["state"], each["value"]) for each in study_of()["study"]}
    assert states.pop(5) == ("pruned", -1.0)
    assert {state for state, _ in states.values()} == {"complete"}
    assert (Path("runs/catch-sweep/trial-0005") / "metrics.jsonl").is_file()


@pytest.mark.usefixtures("optuna")
def test_settings_of_a_killed_process_are_tried_again(machine: Machine) -> None:
    from herd.sweeps import search  # noqa: PLC0415  needs optuna

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search.Study, "_has_ended", killed)
        patch.setattr(WholeRun, "stop", lambda run: run._output.close())  # a process that dies lets go of its locks
        assert main([*SEARCH, "--trials", "3", "--parallel", "3"]) == 1
    assert not list(Path("runs/catch-sweep").glob("trial-????"))
    Path("runs/catch-sweep/trial-0001.partial").rename("runs/catch-sweep/trial-0001")  # it was killed between the end and its record
    with Path("runs/catch-sweep/trial-0002.out").open() as of_another:  # which trains this one
        fcntl.flock(of_another, fcntl.LOCK_EX)
        assert main([*SEARCH, "--trials", "3"]) == 0
    study = {each["number"]: each for each in study_of()["study"]}
    assert {number: each["state"] for number, each in study.items()} == {1: "complete", 2: "running", 3: "complete"}
    default = read_settings(["catch"], {})
    assert study[3]["values"]["algorithm.unroll_length"] == str(default.algorithm.unroll_length)
    assert len(machine.trained) == 4


@pytest.mark.usefixtures("optuna", "machine")
@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--trials", "2", "--set", "loss.entropy_cost=0.1..0.01"], "the first number of a range should be the lower one"),
        (["--set", "loss.entropy_cost=0.01..0.1"], "--set loss.entropy_cost=0.01..0.1: a range needs --trials"),
        (["--trials", "2"], "--trials needs settings to search"),
        (["--trials", "2", "--seeds", "2", "--set", "loss.entropy_cost=0.01..0.1"], "--trials cannot be combined with --seeds"),
        (["--trials", "2", "--set", "loss.entropy_cost=-1.0..0.1"], "loss.entropy_cost"),
        (["--trials", "2", "--set", "loss.entropy_cost=0.01..0.2"], "this study was begun with another set.loss.entropy_cost"),
        (
            ["--trials", "2", "--set", "loss.entropy_cost=0.01..0.1", "--optimizer.learning_rate", "0.5"],
            "with another optimizer.learning_rate",
        ),
    ],
)
def test_what_cannot_be_searched_is_refused_in_one_line(words: list[str], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", "catch", *FRAMES, "--trials", "1", "--set", "loss.entropy_cost=0.01..0.1"]) == 0
    capsys.readouterr()
    assert main(["sweep", "catch", *FRAMES, *words]) == 2
    error = capsys.readouterr().err
    assert line in error
    assert len(error.splitlines()) == 1
