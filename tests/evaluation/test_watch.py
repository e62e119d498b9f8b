import itertools
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import imageio_ffmpeg
import numpy as np
import pytest
from PIL import Image, ImageSequence

from herd.components.suites.api import BrokenEnvironmentError
from herd.evaluation import watch
from herd.evaluation.protocols import EvaluationError
from herd.evaluation.trained_run import load_trained_run
from herd.evaluation.watch import record_episode
from tests.evaluation.conftest import CATCH

GAMES = {
    "env": {
        "tasks": ["breakout", "pong"],
        "action_set": "full",
        "frame_height": 42,
        "frame_width": 42,
        "max_episode_frames": 200,
        "sticky_action_probability": 0.25,
    }
}


def test_a_game_of_catch_is_recorded_as_gif(make_run: Callable[..., Path], tmp_path: Path) -> None:
    output = tmp_path / "videos" / "catch.gif"
    recording = record_episode(make_run(CATCH), output, seed=4)
    # 5 steps lead from the first row of the board to the last, so there are 6 pictures.
    assert (recording.frames, recording.task_name) == (6, "catch")
    assert recording.result == f"return {recording.episode_returns[0]:g}"
    assert recording.episode_returns in {(1.0,), (-1.0,)}
    with Image.open(output) as image:
        pictures = [(frame.info["duration"], np.asarray(frame.convert("L"))) for frame in ImageSequence.Iterator(image)]
    assert sum(duration for duration, _ in pictures) == 1000 * 6 / 5
    assert len(pictures) == 6
    # The last picture shows where the ball was caught or missed; boards are enlarged without smoothing.
    for row, (_, picture) in enumerate(pictures):
        board = picture[26:, 35 : 35 + 350]  # below the caption; 70 pixels for each cell
        assert set(np.unique(board)) == {0, 255}
        assert board[35 + 70 * row].max() == 255
    caught = (pictures[-1][1][26 + 385, 35 : 35 + 350] == 255).sum() == 70
    assert recording.episode_returns == ((1.0,) if caught else (-1.0,))


def test_short_games_are_joined_up_to_the_minimum_length(make_run: Callable[..., Path], tmp_path: Path) -> None:
    # Games have 6 pictures at 5 a second, so the ninth game ends after 10 s.
    recording = record_episode(make_run(CATCH), tmp_path / "catch.gif", min_seconds=10.0)
    assert (recording.frames, len(recording.episode_returns)) == (54, 9)
    assert recording.result == f"mean return {sum(recording.episode_returns) / 9:.2f} of 9 games"
    longest = record_episode(make_run(CATCH), tmp_path / "short.gif", min_seconds=10.0, max_seconds=2.0)
    assert longest.seconds <= 2.0


def test_the_screen_view_shows_the_game_of_the_policy(make_run: Callable[..., Path]) -> None:
    run = load_trained_run(make_run(GAMES))
    seen = {}
    for view in ("screen", "network"):
        pictures = watch._played(run, 1, seed=3, view=view, greedy=False)
        seen[view] = [replace(moment, picture=moment.picture.copy()) for moment in itertools.islice(pictures, 40)]
        pictures.close()
    screen, network = seen["screen"], seen["network"]
    assert screen[0].picture.shape == (210, 160, 3)
    assert network[0].picture.shape == (42, 42, 1)
    assert [moment.value for moment in screen] == [moment.value for moment in network]
    # Shrinking the luminance of the colours by area gives what the network sees at every moment: each cell is 5 rows by 160/42 columns.
    edges = np.arange(43) * 160 / 42
    overlap = np.minimum(edges[1:], np.arange(1, 161)[:, None]) - np.maximum(edges[:-1], np.arange(160)[:, None])
    columns = overlap.clip(0) / (160 / 42)

    def shrunk(moment: watch._Moment) -> np.ndarray:
        luminance = moment.picture @ np.array([0.299, 0.587, 0.114])
        cells: np.ndarray = luminance.reshape(42, 5, 160).mean(axis=1) @ columns
        return cells

    def cells_apart(colour: watch._Moment, grey: watch._Moment) -> int:
        return int((np.abs(shrunk(colour) - grey.picture[..., 0]) > 15).sum())

    # They differ slightly: one takes the maximum over two frames of colours, the other of greys.
    assert max(cells_apart(*pair) for pair in zip(screen, network, strict=True)) == 0
    assert np.mean([cells_apart(*pair) for pair in zip(screen, network[1:], strict=False)]) > 4
    assert (screen[0].picture != screen[-1].picture).any()


@pytest.mark.processes
def test_several_games_are_recorded_as_mp4_in_real_time(make_run: Callable[..., Path], tmp_path: Path) -> None:
    output = tmp_path / "pong.mp4"
    recording = record_episode(make_run(GAMES), output, task="pong", min_seconds=4.0)
    assert (recording.task_name, len(recording.episode_returns)) == ("pong", 2)
    assert recording.frames_per_second == 15.0
    assert recording.seconds == pytest.approx(recording.frames / 15)
    frames, seconds = imageio_ffmpeg.count_frames_and_secs(str(output))
    assert (frames, seconds) == (recording.frames, pytest.approx(recording.seconds, abs=0.02))


def test_a_recording_ends_at_its_maximum_length(make_run: Callable[..., Path], tmp_path: Path) -> None:
    recording = record_episode(make_run(GAMES), tmp_path / "game.gif", max_seconds=1.0, view="network")
    assert (recording.frames, recording.episode_returns) == (15, ())
    with Image.open(tmp_path / "game.gif") as image:
        # 1/15 s is not a whole number of hundredths; the rounding errors must cancel over a second.
        assert sum(frame.info["duration"] for frame in ImageSequence.Iterator(image)) == 1000


CART_POLE = {"env": {"suite": "gymnasium", "tasks": ["CartPole-v1"]}, "network": {"torso": "mlp"}}


def test_a_vector_environment_is_recorded_from_its_rendering(make_run: Callable[..., Path], tmp_path: Path) -> None:
    run = load_trained_run(make_run(CART_POLE))
    first, *_, last = itertools.islice(watch._played(run, 0, seed=3, view="screen", greedy=False), 8)
    assert first.picture.shape == (400, 600, 3)
    assert (first.return_so_far, last.return_so_far) == (0.0, 7.0)
    assert len(np.unique(first.picture)) > 2
    seen: list[float] = []
    recording = record_episode(tmp_path / "run", tmp_path / "pole.gif", max_seconds=0.2, on_progress=seen.append)
    assert recording.frames_per_second == 50.0  # CartPole's own render_fps
    assert seen == [frame / 50 for frame in range(1, 11)]
    with pytest.raises(EvaluationError, match="the network sees no picture"):
        record_episode(tmp_path / "run", tmp_path / "a.gif", view="network")


UNSEEDED = """
import gymnasium, numpy as np
from gymnasium import spaces


class Unseeded(gymnasium.Env):
    # Draws from a generator that reset() does not seed. Its picture is the reward of the next step.
    observation_space, action_space = spaces.Box(0, 255, (1,), np.float32), spaces.Discrete(2)

    def __init__(self, picture="good", render_mode=None):
        self.picture, self.render_mode = picture, render_mode

    def draw(self):
        self.number = int(np.random.randint(256))
        return np.full(1, self.number, np.float32)

    def reset(self, *, seed=None, options=None):
        return self.draw(), {}

    def step(self, action):
        reward = float(self.number)
        return self.draw(), reward, np.random.rand() < 0.1, False, {}

    def render(self):
        good = np.full((8, 9, 3), self.number, np.uint8)
        return {"good": good, "rgba": good[..., [0, 1, 2, 2]], "grey": good[..., 0]}[self.picture]
"""


@pytest.fixture
def unseeded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "unseeded.py").write_text(UNSEEDED)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("")
    monkeypatch.delitem(sys.modules, "unseeded", raising=False)
    return "unseeded:Unseeded"


@pytest.mark.parametrize("picture", ["good", "rgba"])
def test_the_pictures_are_of_the_game_that_the_policy_plays_even_if_no_seed_repeats_it(
    make_run: Callable[..., Path], unseeded: str, picture: str
) -> None:
    run = load_trained_run(make_run({**CART_POLE, "env": {"suite": "gymnasium", "tasks": [unseeded], "kwargs": {"picture": picture}}}))
    moments = [
        (int(each.picture[0, 0, 0]), each) for each in itertools.islice(watch._played(run, 0, seed=3, view="screen", greedy=False), 60)
    ]
    assert moments[0][1].picture.shape == (8, 9, 3)
    assert any(moment.finished_return is not None for _, moment in moments)
    for (shown, moment), (_, after) in itertools.pairwise(moments):
        if moment.finished_return is None:
            assert after.return_so_far == moment.return_so_far + shown


@pytest.mark.parametrize(("picture", "said"), [("grey", r"returned an array of uint8 \(8, 9\), not"), ("none", "failed: KeyError: 'none'")])
def test_a_picture_that_cannot_be_drawn_is_named_in_one_line(make_run: Callable[..., Path], unseeded: str, picture: str, said: str) -> None:
    run_dir = make_run({**CART_POLE, "env": {"suite": "gymnasium", "tasks": [unseeded], "kwargs": {"picture": picture}}})
    with pytest.raises(BrokenEnvironmentError, match=rf"^unseeded:Unseeded: render\(\) {said}"):
        record_episode(run_dir, run_dir / "a.gif")


def test_a_failed_recording_keeps_the_old_file(make_run: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = tmp_path / "game.gif"
    output.write_bytes(b"before")

    def broken(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(watch, "_drawn", broken)
    with pytest.raises(EvaluationError, match="No space left"):
        record_episode(make_run(CATCH), output)
    assert output.read_bytes() == b"before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["game.gif", "run"]


def test_invalid_recordings_are_refused_in_one_line(make_run: Callable[..., Path], tmp_path: Path) -> None:
    run_dir = make_run(CATCH)
    for arguments, message in (
        ({"output": tmp_path / "a.gif", "task": "pong"}, "plays catch, not pong"),
        ({"output": run_dir / "config.yaml" / "a.gif"}, "cannot write"),
    ):
        with pytest.raises(EvaluationError, match=message) as caught:
            record_episode(run_dir, **arguments)
        assert "\n" not in str(caught.value)
