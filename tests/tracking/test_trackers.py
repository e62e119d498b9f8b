from __future__ import annotations

import io
import json
import math
import struct
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from herd.cli.options import CommandError
from herd.cli.preflight import check_installed
from herd.components.trackers import LoggingSettings, publishing
from herd.components.trackers.api import Run, Tracker, scalars
from herd.components.trackers.publishing import MAX_WAITING, Trackers, make_trackers, what_is_missing
from herd.components.trackers.wandb import is_logged_in
from herd.config.loading import load_settings
from herd.config.run import RunSettings
from tests.patience import patient

pytestmark = pytest.mark.usefixtures("log")


def point(frames: int, value: float) -> dict[str, Any]:
    return {"env_frames": frames, "wall_seconds": frames / 10, "entropy": value, "episode_return_mean_100": -value, "tasks": {"pong": {}}}


SESSIONS = [[(0, 1.0), (100, 0.9), (200, 0.8), (300, 0.7)], [(250, 0.75), (350, 0.65)]]
"""The second session resumes from a checkpoint at 200 frames; later points of the first one do not belong to any policy."""


def write(settings: RunSettings, run_dir: Path) -> None:
    for session in SESSIONS:
        viewers = make_trackers(settings.logging, Run(run_dir, settings.name, settings.model_dump(mode="json")))
        assert viewers is not None
        for frames, value in session:
            viewers.add(point(frames, value))
        viewers.close(patient(60))


@pytest.mark.filterwarnings("ignore")  # the reader's dependencies warn
def test_two_sessions_form_one_tensorboard_curve(tmp_path: Path) -> None:
    write(RunSettings(logging=LoggingSettings(tensorboard=True)), tmp_path)
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # noqa: PLC0415  warns as it loads

    reader = EventAccumulator(str(tmp_path / "tensorboard"))
    reader.Reload()
    assert sorted(reader.Tags()["scalars"]) == ["episode_return/mean", "learning/entropy", "run/env_frames", "run/wall_seconds"]
    for tag, sign in (("learning/entropy", 1), ("episode_return/mean", -1)):
        curve = [(event.step, event.value) for event in reader.Scalars(tag)]
        expected = [(0, 1.0), (100, 0.9), (200, 0.8), (250, 0.75), (350, 0.65)]
        assert [step for step, _ in curve] == [step for step, _ in expected]
        assert [value for _, value in curve] == pytest.approx([sign * value for _, value in expected])


@pytest.mark.processes
@pytest.mark.filterwarnings("ignore")  # a third-party package warns
def test_two_sessions_form_one_offline_wandb_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    settings = RunSettings(name="pong7", logging=LoggingSettings(wandb="offline", project="games"))
    write(settings, tmp_path)
    from wandb.proto.wandb_internal_pb2 import Record  # type: ignore[attr-defined]  # noqa: PLC0415  warns as it loads

    def recorded() -> list[list[Any]]:
        files = (tmp_path / "wandb").glob("offline-run-*/*.wandb")
        return [[Record.FromString(data) for data in records_of(file.read_bytes())] for file in files]

    # wandb's own process writes the files, and may still be writing when it has answered that the session has ended.
    limit = time.monotonic() + patient(60)
    while not all(records and records[-1].WhichOneof("record_type") == "exit" for records in recorded()) and time.monotonic() < limit:
        time.sleep(0.1)
    runs, curves = set(), []
    for records in recorded():
        [begun] = [record.run for record in records if record.WhichOneof("record_type") == "run"][:1]
        runs.add((begun.project, begun.display_name, begun.run_id))
        rows = [history_of(record) for record in records if record.WhichOneof("record_type") == "history"]
        assert all(row["episode_return/mean"] == -row["learning/entropy"] for row in rows)
        curves.append([(row["_step"], row["learning/entropy"]) for row in rows])
    assert runs == {("games", "pong7", (tmp_path / "wandb" / "id").read_text().strip())}
    assert sorted(curves) == SESSIONS


@pytest.mark.processes
@pytest.mark.filterwarnings("ignore")  # a third-party package warns
def test_two_sessions_form_one_mlflow_run_with_its_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: io.StringIO) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    uri = (tmp_path / "store").as_uri()
    settings = RunSettings(name="pong7", logging=LoggingSettings(mlflow=uri, project="games"))
    write(settings, tmp_path)
    assert log.getvalue() == ""
    client = mlflow.MlflowClient(uri)
    [run] = client.search_runs([client.get_experiment_by_name("games").experiment_id])
    assert (run.info.run_name, run.info.status, run.data.params["loss.kind"]) == ("pong7", "FINISHED", "impala")
    curve = [(metric.step, metric.value) for metric in client.get_metric_history(run.info.run_id, "episode_return/mean")]
    # MLflow cannot take points back: the second session goes on behind the newest point of the first.
    assert curve == [(0, -1.0), (100, -0.9), (200, -0.8), (300, -0.7), (350, -0.65)]


def records_of(data: bytes) -> Iterator[bytes]:
    """LevelDB's log format: blocks of 32 KiB with parts of records. A part's header has checksum, length and kind (1 whole, 2-4 parts)."""
    at, whole = 7, b""  # after wandb's own header
    while at + 7 <= len(data):
        if 32_768 - at % 32_768 < 7:
            at += 32_768 - at % 32_768
            continue
        _, length, kind = struct.unpack_from("<IHB", data, at)
        if kind == 0:
            return
        whole += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in {1, 4}:
            yield whole
            whole = b""


def history_of(record: Any) -> dict[str, float]:
    return {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}


class Stuck(Tracker):
    """A tracker that does not answer until it is released."""

    def __init__(self) -> None:
        self.entered, self.released = threading.Event(), threading.Event()
        self.taken: list[int] = []

    def on_point(self, point: Mapping[str, Any]) -> None:
        self.entered.set()
        assert self.released.wait(patient(30))
        self.taken.append(point["env_frames"])

    def on_end(self) -> None:
        raise RuntimeError("cannot close")


def test_a_hanging_tracker_delays_neither_the_learner_nor_another_tracker(log: io.StringIO) -> None:
    viewer, other = Stuck(), Stuck()
    other.released.set()
    viewers = Trackers({"stuck": lambda: viewer, "other": lambda: other})
    viewers.add(point(0, 0.0))
    assert viewer.entered.wait(patient(30))
    assert other.entered.wait(patient(30))
    for number in range(1, MAX_WAITING + 11):
        viewers.add(point(number, 0.0))
    viewer.released.set()
    viewers.close(patient(30))
    assert viewer.taken == list(range(MAX_WAITING + 1))
    assert "a tracker is too slow: a point was left out" in log.getvalue()
    assert "cannot close" in log.getvalue()
    viewers.close(patient(30))  # called again when the process ends, after the end of the run


def test_points_that_waited_are_sent_together_and_those_that_never_were_are_named(log: io.StringIO) -> None:
    class Slow(Stuck):
        def on_points(self, points: Sequence[Mapping[str, Any]]) -> None:
            self.entered.set()
            assert self.released.wait(patient(30))
            self.taken.append(len(points))

    viewer = Slow()
    viewers = Trackers({"slow": lambda: viewer})
    viewers.add(point(0, 0.0))
    assert viewer.entered.wait(patient(30))
    for number in range(1, 40):
        viewers.add(point(number, 0.0))
    viewers.close(0.0)
    assert "a tracker did not finish: the newest points are missing" in log.getvalue()
    viewer.released.set()
    viewers.close(patient(30))
    assert viewer.taken == [1, 39]


def test_a_failing_tracker_does_not_affect_the_others(log: io.StringIO, tmp_path: Path) -> None:
    class Breaks(Stuck):
        def on_point(self, point: Mapping[str, Any]) -> None:
            if point["env_frames"] == 1:
                raise OSError("no space left on device")
            self.taken.append(point["env_frames"])

    def unreachable() -> Stuck:
        raise ConnectionError("no answer\nand a page of text")

    viewer = Breaks()
    viewers = Trackers({"far": unreachable, "near": lambda: viewer})
    for number in range(3):
        viewers.add(point(number, 0.0))
    viewers.close(patient(30))
    assert viewer.taken == [0, 2]
    text = log.getvalue()
    assert "no space left on device" in text
    assert "no answer and a page of text" in text
    assert len(text.splitlines()) == 2


def test_by_default_there_is_no_tracker(tmp_path: Path) -> None:
    assert make_trackers(LoggingSettings(), Run(tmp_path, "run", {})) is None
    assert what_is_missing(LoggingSettings()) is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("chosen", "installed", "line"),
    [
        ({"tensorboard": True}, (), "logging.tensorboard: needs tensorboard: pip install 'herd-rl[tensorboard]'"),
        ({"wandb": "offline"}, ("tensorboard",), "logging.wandb: needs wandb: pip install 'herd-rl[wandb]'"),
        ({"mlflow": "http://localhost:5000"}, (), "logging.mlflow: needs mlflow: pip install 'herd-rl[mlflow]'"),
        (
            {"tensorboard": True, "wandb": "online"},
            (),
            "logging.tensorboard and logging.wandb: needs tensorboard, wandb: pip install 'herd-rl[tensorboard,wandb]'",
        ),
        ({"tensorboard": True, "wandb": "offline"}, ("tensorboard", "wandb"), None),
        (
            {"wandb": "online"},
            ("wandb",),
            "logging.wandb: online needs an account's key: run wandb login, set WANDB_API_KEY, or choose offline",
        ),
        (
            {"hooks": {"json:JSONDecoder": {"strict": False}}},
            (),
            "logging.hooks json:JSONDecoder: does not accept a run and these options: ",
        ),
        ({"hooks": {"json:Hook": None}}, (), "logging.hooks json:Hook: json has no Hook"),
        ({"hooks": {"no_such_file:Hook": None}}, (), "logging.hooks no_such_file:Hook: module no_such_file is neither in "),
    ],
)
def test_what_a_tracker_lacks_is_reported_before_the_start(
    monkeypatch: pytest.MonkeyPatch, chosen: dict[str, Any], installed: tuple[str, ...], line: str | None
) -> None:
    monkeypatch.setattr(publishing, "find_spec", lambda name: object() if name in installed else None)
    monkeypatch.setattr(publishing, "is_logged_in", lambda _environ: False)
    settings = RunSettings(logging=LoggingSettings(**chosen))
    if line is None:
        check_installed(settings)
        return
    found = what_is_missing(settings.logging)
    assert found is not None
    assert found.startswith(line)
    assert "\n" not in found
    if "hooks" not in chosen:  # a child of `herd train` checks these, and the learner
        with pytest.raises(CommandError) as caught:
            check_installed(settings)
        assert str(caught.value) == found


def test_is_logged_in_finds_keys_in_the_environment_and_netrc(tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path)}
    assert not is_logged_in({})
    assert not is_logged_in(home)
    assert is_logged_in({"WANDB_API_KEY": "0" * 40})
    # `wandb login` leaves such a file for a private server.
    (tmp_path / "elsewhere").write_text(f"machine wandb.example.org\n  login user\n  password {'0' * 40}\n")
    (tmp_path / "elsewhere").chmod(0o600)
    assert is_logged_in({**home, "NETRC": str(tmp_path / "elsewhere")})
    assert not is_logged_in(home)
    (tmp_path / ".netrc").write_text("machine git.example.org\n  login somebody\n  password secret\n")
    (tmp_path / ".netrc").chmod(0o600)
    assert not is_logged_in(home)
    (tmp_path / ".netrc").write_text("machine")
    assert not is_logged_in(home)


def test_numbers_are_named_by_group_with_the_returns_first() -> None:
    point = {
        "env_frames": 640,
        "entropy": 0.5,
        "loss_policy": 2.0,
        "loss_total": None,
        "gradient_norm": math.inf,
        "kind": "words",
        "is_new": True,
        "episode_return_mean_100": -1,
        "human_normalised_median": 0.1,
        "health": {"update_kl": 0.25, "layers": [{"kind": "filters", "dead": 3}, {"kind": "units", "dead": 0}]},
        "tasks": {"pong": {"episodes": 7, "episode_return_mean_100": math.nan}, "qbert": {"episode_return_mean_100": -1}},
    }
    found = scalars(point)
    assert found == {
        "episode_return/mean": -1.0,
        "episode_return/qbert": -1.0,
        "health/update_kl": 0.25,
        "health/layers/1/dead": 3.0,
        "health/layers/2/dead": 0.0,
        "human_normalised/median": 0.1,
        "learning/entropy": 0.5,
        "loss/policy": 2.0,
        "run/env_frames": 640.0,
        "tasks/pong/episodes": 7.0,
    }
    for names in (list(found), sorted(found)):  # as a user's own tracker gets them, and as viewers sort them
        assert names[:2] == ["episode_return/mean", "episode_return/qbert"]


HOOK = """
class Hook:
    def __init__(self, run, at=2, breaks=False):
        self.run, self.at, self.breaks = run, at, breaks
        self.file = (run.directory / "told").open("a")

    def on_point(self, point):
        print("point", point["env_frames"], file=self.file)
        if self.breaks:
            raise SystemExit(3)
        if point["env_frames"] >= self.at:
            self.run.stop("good\\nenough")

    def on_checkpoint(self, directory):
        print("checkpoint", directory.name, file=self.file)

    def on_end(self):
        print("end", file=self.file)
        self.file.close()

class Silent:
    def __init__(self, run):
        pass
"""


def test_hooks_of_the_user_receive_points_checkpoints_and_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: io.StringIO
) -> None:
    (tmp_path / "hooks_of_mine.py").write_text(HOOK)
    monkeypatch.syspath_prepend(str(tmp_path))
    for breaks, reason in ((False, "good enough"), (True, "")):
        (tmp_path / "told").write_text("")
        hooks = {"hooks_of_mine:Hook": {"breaks": breaks}, "hooks_of_mine:Silent": None}
        settings = load_settings([], ["--logging.hooks", json.dumps(hooks)], {}).logging
        run = Run(tmp_path, "run", {})
        assert what_is_missing(settings) is None
        trackers = make_trackers(settings, run)
        assert trackers is not None
        trackers.add(point(1, 0.0))
        trackers.add_checkpoint(tmp_path / "000000000007")
        trackers.add(point(2, 0.0))
        trackers.close(patient(30))
        assert (tmp_path / "told").read_text().splitlines() == ["point 1", "checkpoint 000000000007", "point 2", "end"]
        assert run.stop_reason == reason
        lines = log.getvalue().splitlines()
        assert len(lines) == breaks
        assert all("hooks_of_mine:Hook" in line and "SystemExit: 3 (hooks_of_mine.py, line 10)" in line for line in lines)
