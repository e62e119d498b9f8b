"""Records games of a checkpoint's policy as a video at the speed of the console."""

from __future__ import annotations

from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np

from herd.components.suites import make_environments, suite_of
from herd.components.suites.api import UnknownTaskError
from herd.evaluation.play import drawn_from, start_play
from herd.evaluation.protocols import EvaluationError
from herd.evaluation.trained_run import best_temperatures, load_trained_run

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray
    from PIL.Image import Image

    from herd.acting.temperatures import Bounds
    from herd.components.suites import SuiteSettings
    from herd.components.suites.api import BatchedEnvironment, Observation
    from herd.evaluation.trained_run import TrainedRun

View = Literal["screen", "network"]

_PICTURE_HEIGHT = 420  # pixels; frames are enlarged by the largest integer factor that does not exceed this
_CAPTION_HEIGHT = 26
_MAX_RETURNS = 5  # told one by one
_SMALLEST_WIDTH = 280  # room for the caption


@dataclass(frozen=True, slots=True)
class Recording:
    """A recording."""

    output: Path
    task_name: str
    frames: int
    frames_per_second: float
    episode_returns: tuple[float, ...]
    """Raw return of each game that ended."""

    @property
    def seconds(self) -> float:
        """Length of the video."""
        return self.frames / self.frames_per_second

    @property
    def result(self) -> str:
        """The return of each game that ended, or the mean of many."""
        returns = self.episode_returns
        if not returns:
            return "no game ended"
        if len(returns) > _MAX_RETURNS:
            return f"mean return {sum(returns) / len(returns):.2f} of {len(returns)} games"
        return f"return {', '.join(f'{value:g}' for value in returns)}"


def record_episode(
    run_dir: Path,
    output: Path,
    *,
    checkpoint: Path | None = None,
    task: str | None = None,
    seed: int = 0,
    min_seconds: float = 0.0,
    max_seconds: float = 60.0,
    view: View = "screen",
    greedy: bool = False,
    on_progress: Callable[[float], None] | None = None,
) -> Recording:
    """Play and write ``output`` (.gif or .mp4) in real time: one video frame per agent step.

    Args:
        run_dir: run directory of ``herd train``.
        output: .gif or .mp4 file to write; an existing file is replaced.
        checkpoint: directory of a checkpoint; None: the newest.
        task: task of the run; None: its first task.
        seed: random seed of the game and of the policy's sampling.
        min_seconds: games are recorded until the video has this length; the last one is played to its end.
        max_seconds: largest length of the video.
        view: ``screen``: the game as people see it, if the suite can show it. ``network``: the newest frame that the network sees.
        greedy: take the most probable action instead of sampling.
        on_progress: called with the length so far in seconds, after every frame.

    Raises:
        EvaluationError: see `evaluate_runs`; one line.

    """
    run = load_trained_run(run_dir, checkpoint)
    names = run.spec.task_names
    if task is not None and task not in names:
        raise EvaluationError(f"{run_dir} plays {', '.join(names)}, not {task}")
    task_id = 0 if task is None else names.index(task)
    fps = suite_of(run.settings.env).frames_per_second(run.settings.env, names[task_id]) / run.spec.action_repeat
    pictures = _played(run, task_id, seed=seed, view=view, greedy=greedy, ranges=best_temperatures(run_dir, run))
    returns: list[float] = []
    frames = 0
    with _writer(output, fps) as video, closing(pictures):
        for moment in pictures:
            video.add(_drawn(moment, frames / fps))
            frames += 1
            if on_progress is not None:
                on_progress(frames / fps)
            if moment.finished_return is not None:
                returns.append(moment.finished_return)
            is_last = moment.finished_return is not None and frames >= min_seconds * fps
            if is_last or frames + 1 > max_seconds * fps:
                break
    return Recording(output, names[task_id], frames, fps, tuple(returns))


@dataclass(frozen=True, slots=True)
class _Moment:
    """One frame of the video."""

    picture: NDArray[np.uint8]
    """[H, W, 1 or 3]; the environment's memory, valid until the next moment."""
    return_so_far: float
    value: float | None
    """The policy's value; None on a game's last frame, which has no future reward."""
    finished_return: float | None
    """Return of the game that ends with this frame; None on any other frame."""


def _played(
    run: TrainedRun, task_id: int, *, seed: int, view: View, greedy: bool, ranges: Sequence[Bounds] | None = None
) -> Generator[_Moment]:
    """Play games without end; yields every row that is acted on and the last row of each game."""
    env = run.settings.env
    suite = suite_of(env)
    on_screen = suite.on_screen if view == "screen" else None
    picture_of = suite.picture if view == "screen" else None
    if on_screen is None and not run.spec.has_frames:
        raise EvaluationError(
            f"nothing can be recorded: the network sees no picture, and suite {env.suite} has no other picture for view {view}"
        )
    screen = env if on_screen is None else on_screen(env)
    environment = _one_environment(env if picture_of is None else screen, task_id, seed)
    # Unless the environment can draw itself, the same game is played twice: as the network sees it, and as people do.
    mirror = None if on_screen is None or picture_of is not None else _one_environment(screen, task_id, seed)
    try:
        temperatures = drawn_from(ranges, seed=seed)(environment.task_ids)
        play = start_play(run.agent, run.settings, environment, seed=seed, greedy=greedy, temperatures=temperatures)
        shown = None if mirror is None else mirror.reset()
        return_so_far = 0.0
        while True:
            drawn = None if picture_of is None else picture_of(environment)
            step = play.step()
            valid = bool(step.transition.valid[0])
            if drawn is not None:
                picture = drawn
            else:
                picture = _newest_frame(step.observation, run.spec.frame_shape[2]) if shown is None else _newest_frame(shown, 3)
            if valid:
                yield _Moment(picture, return_so_far, float(step.choice.values[0, task_id % step.choice.values.shape[1]]), None)
                return_so_far += float(step.transition.rewards[0])
            else:  # a game's last row, after which the next game starts
                yield _Moment(picture, return_so_far, None, return_so_far)
                return_so_far = 0.0
            if mirror is not None:
                mirrored = mirror.step(step.choice.actions)
                shown = mirrored.observation
                if mirrored.rewards[0] != step.transition.rewards[0] or mirrored.finished != step.transition.finished:
                    raise RuntimeError("the game on the screen differs from the game that the policy plays")
    finally:
        environment.close()
        if mirror is not None:
            mirror.close()


def _one_environment(env: SuiteSettings, task_id: int, seed: int) -> BatchedEnvironment:
    try:
        return make_environments(env, num_environments=1, first_slot=task_id, seed=seed, num_threads=1)
    except UnknownTaskError as error:  # such as one that cannot be drawn
        raise EvaluationError(str(error)) from error


def _newest_frame(observation: Observation, channels: int) -> NDArray[np.uint8]:
    """Return the newest frame, [H, W, C], of the only environment."""
    return observation.stack[0, -channels:].transpose(1, 2, 0)


def _drawn(moment: _Moment, seconds: float) -> Image:
    """Enlarge the frame without smoothing, below a caption. Both sides are even, as video codecs require."""
    from PIL import Image, ImageDraw, ImageFont  # noqa: PLC0415 (only whoever records needs it)

    height, _, channels = moment.picture.shape
    factor = max(1, _PICTURE_HEIGHT // height)
    enlarged = moment.picture.repeat(factor, axis=0).repeat(factor, axis=1)
    picture = Image.fromarray(np.ascontiguousarray(enlarged[..., 0] if channels == 1 else enlarged)).convert("RGB")
    canvas_width, canvas_height = max(picture.width, _SMALLEST_WIDTH), _CAPTION_HEIGHT + picture.height
    canvas = Image.new("RGB", (canvas_width + canvas_width % 2, canvas_height + canvas_height % 2), (24, 24, 24))
    canvas.paste(picture, ((canvas.width - picture.width) // 2, _CAPTION_HEIGHT))
    draw, font = ImageDraw.Draw(canvas), ImageFont.load_default(15)
    value = "" if moment.value is None else f"value {moment.value:.2f}"
    clock = f"{int(seconds) // 60}:{int(seconds) % 60:02}"
    for text, x, anchor in (
        (f"return {moment.return_so_far:g}", 8, "lm"),
        (value, canvas.width // 2, "mm"),
        (clock, canvas.width - 8, "rm"),
    ):
        draw.text((x, _CAPTION_HEIGHT // 2), text, fill=(235, 235, 235), font=font, anchor=anchor)
    return canvas


class _Video(Protocol):
    def add(self, frame: Image) -> None: ...


class _Gif:
    """Writes frames with 256 colours each, which is more than an Atari screen has."""

    def __init__(self, fps: float) -> None:
        self._fps = fps
        self._frames: list[Image] = []

    def add(self, frame: Image) -> None:
        self._frames.append(frame.quantize(256))

    def save(self, output: Path) -> None:
        # A GIF counts in hundredths of a second: frame n ends at the hundredth nearest to (n + 1) / fps, so that errors do not add up.
        ends = [10 * round(100 * (index + 1) / self._fps) for index in range(len(self._frames))]
        durations = [end - start for start, end in zip([0, *ends], ends, strict=False)]
        first, *rest = self._frames
        first.save(output, save_all=True, append_images=rest, duration=durations, loop=0)


class _Mp4:
    def __init__(self, output: Path, fps: float) -> None:
        import imageio.v2 as imageio  # noqa: PLC0415 (of the plot extra)

        self._writer = imageio.get_writer(str(output), format="FFMPEG", fps=fps, codec="libx264", macro_block_size=2, quality=8)

    def add(self, frame: Image) -> None:
        self._writer.append_data(np.asarray(frame))

    def close(self) -> None:
        self._writer.close()


@contextmanager
def _writer(output: Path, fps: float) -> Iterator[_Video]:
    """Yield a writer of frames. The file appears atomically, and only if no error ends the recording."""
    temporary = output.with_name(f".{output.stem}.partial{output.suffix}")
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        if output.suffix.lower() == ".gif":
            gif = _Gif(fps)
            yield gif
            gif.save(temporary)
        else:
            with closing(_Mp4(temporary, fps)) as mp4:
                yield mp4
        temporary.replace(output)
    except ImportError as error:
        raise EvaluationError(f"recording needs {error.name}: pip install 'herd-rl[all]'") from error
    except OSError as error:
        raise EvaluationError(f"cannot write {output}: {error.strerror or error}") from error
    finally:
        with suppress(OSError):
            temporary.unlink()
