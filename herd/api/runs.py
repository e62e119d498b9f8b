"""A run as its directory tells it. Reads the files anew at each question, so that a run under way can be looked at. No torch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from herd.api.errors import RunError
from herd.config.foreign_files import read_json
from herd.config.loading import SettingsError, load_settings
from herd.config.run_files import agent_directories, config_file
from herd.plots.history import PlotError, read_points

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from herd.config.settings import RunSettings

RUNS = Path("runs")
"""Where ``herd train`` puts runs, and where those that are named by a bare word are looked for."""
CHECKPOINTS = "checkpoints"
_MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Run:
    """A run, or one agent of a run of several."""

    directory: Path

    @cached_property
    def settings(self) -> RunSettings:
        """What it is, or was, trained with: config.yaml.

        Raises:
            RunError: the file cannot be read.

        """
        try:
            return load_settings([config_file(self.directory)], [], {})
        except SettingsError as error:
            raise RunError(str(error)) from error

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """The points of the learning curve in time order, as metrics.jsonl has them (docs/metrics.md); empty before the first.

        Points that a resumed run went back on are left out.

        Raises:
            RunError: the file is damaged.

        """
        path = self.directory / "metrics.jsonl"
        if not path.is_file() or path.stat().st_size == 0:
            return []
        try:
            return read_points(self.directory)
        except PlotError as error:
            raise RunError(str(error)) from error

    def array(self, key: str) -> NDArray[np.float64]:
        """One number of every point, [P]; NaN where a point does not have it.

        ``key`` is dotted where the number is nested: ``env_frames``, ``entropy``, ``tasks.pong.episode_return_mean_100``. A part may
        itself hold dots, as names of tasks do.

        Raises:
            RunError: no point has such a number.

        """
        points = self.metrics
        values = np.array([_number(point, key) for point in points], np.float64)
        if points and np.isnan(values).all() and not any(_find(point, key)[0] for point in points):
            raise RunError(f"{self.directory}: no point has {key}; the last point has {', '.join(_keys(points[-1]))}")
        return values

    @property
    def report(self) -> dict[str, Any]:
        """What the learner leaves at its end: report.json.

        Raises:
            RunError: there is none: the run goes on, or did not reach its end.

        """
        path = self.directory / "report.json"
        try:
            report: dict[str, Any] = read_json(path)
        except FileNotFoundError as error:
            raise RunError(f"{self.directory}: contains no report.json: the run is still running, or did not reach its end") from error
        except (OSError, ValueError) as error:
            raise RunError(f"{path}: cannot be read: {error}") from error
        return report

    @property
    def checkpoints(self) -> list[Path]:
        """Folders of the checkpoints that are kept, oldest first; `load_policy` takes one."""
        return sorted(path for path in (self.directory / CHECKPOINTS).glob("[0-9]" * 12) if path.is_dir())

    @property
    def agents(self) -> list[Run]:
        """Each agent's part of the run; the run itself where it has one agent."""
        return [Run(directory) for directory in agent_directories(self.directory)]


def load_run(run: Run | Path | str) -> Run:
    """Open a run: its directory, a checkpoint's folder in it, or the name of a run in ``runs/``.

    Raises:
        RunError: there is none.

    """
    return run if isinstance(run, Run) else locate(run)[0]


def locate(place: Path | str) -> tuple[Run, Path | None]:
    """Return the run that a directory, a checkpoint or a name in ``runs/`` means, and the checkpoint, where it is one.

    Raises:
        RunError: it means neither.

    """
    path = Path(place)
    if not path.exists() and path.name == str(path) and (RUNS / path).is_dir():
        path = RUNS / path
    if not path.is_dir():
        raise RunError(f"{place}: no such run")
    checkpoint = path.resolve() if (path / _MANIFEST).is_file() and path.resolve().parent.name == CHECKPOINTS else None
    directory = path if checkpoint is None else checkpoint.parents[1]
    if not config_file(directory).is_file():
        raise RunError(f"{place}: not a run: it contains no config.yaml")
    return Run(directory), checkpoint


def _find(record: dict[str, Any], key: str) -> tuple[bool, Any]:
    """Whether ``record`` has ``key``, and what it is; the longest part that matches comes first, for names with dots."""
    if key in record:
        return True, record[key]
    parts = key.split(".")
    for end in range(len(parts) - 1, 0, -1):
        inner = record.get(".".join(parts[:end]))
        if isinstance(inner, dict) and (found := _find(inner, ".".join(parts[end:])))[0]:
            return found
    return False, None


def _number(record: dict[str, Any], key: str) -> float:
    _, value = _find(record, key)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else float("nan")


def _keys(record: dict[str, Any], prefix: str = "") -> list[str]:
    names: list[str] = []
    for name, value in record.items():
        names += _keys(value, f"{prefix}{name}.") if isinstance(value, dict) else [f"{prefix}{name}"]
    return names
