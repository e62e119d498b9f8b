"""A run and its files. They are read again at each access, so the run may still be training. Needs no torch."""

from __future__ import annotations

import os
import zipfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from herd.config.loading import SettingsError, load_settings
from herd.evaluation.pack import PackError, unpack
from herd.files import FileError, mapping, read_record
from herd.run.checkpoints import MANIFEST
from herd.run.journals import METRICS, read_points
from herd.run.paths import CHECKPOINTS, REPORT, RUNS, agent_directories, checkpoint_folders, config_file

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from herd.config.run import RunSettings


class RunError(Exception):
    """A run cannot be opened, played or trained to its end. The message is one line."""


@dataclass(frozen=True)
class Run:
    """A run, or one agent of a run with several agents."""

    directory: Path

    @cached_property
    def settings(self) -> RunSettings:
        """The settings of the run: config.yaml.

        Raises:
            RunError: the file cannot be read.

        """
        try:
            return load_settings([config_file(self.directory)], [], {})
        except SettingsError as error:
            raise RunError(str(error)) from error

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """The points of the learning curve, oldest first, as in metrics.jsonl (docs/metrics.md). Empty before the first point.

        Points that were superseded when the run resumed from an older checkpoint are left out.

        Raises:
            RunError: the file is damaged.

        """
        path = self.directory / METRICS
        if not os.path.lexists(path) or (path.is_file() and path.stat().st_size == 0):
            return []
        try:
            return read_points(self.directory)
        except FileError as error:
            raise RunError(str(error)) from error

    def array(self, key: str) -> NDArray[np.float64]:
        """Return one number of each of the P points, [P]; NaN where a point does not have it.

        Separate the keys of a nested number by dots, as in ``tasks.pong.episode_return_mean_100``; other keys are ``env_frames`` and
        ``entropy``. A key may contain dots itself, as some names of tasks do.

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
        """The report that the learner writes at its end: report.json.

        Raises:
            RunError: there is no report, because the run is still running or did not reach its end.

        """
        path = self.directory / REPORT
        try:
            return read_record(path, "a report", mapping)
        except FileNotFoundError as error:
            raise RunError(f"{self.directory}: contains no report.json: the run is still running, or did not reach its end") from error
        except FileError as error:
            raise RunError(str(error)) from error

    @property
    def checkpoints(self) -> list[Path]:
        """Folders of the stored checkpoints, oldest first; `load_policy` accepts them."""
        return checkpoint_folders(self.directory)

    @property
    def agents(self) -> list[Run]:
        """The runs of the single agents; the run itself if it has one agent."""
        return [Run(directory) for directory in agent_directories(self.directory)]


def load_run(run: Run | Path | str) -> Run:
    """Open a run by its directory, by the folder of a checkpoint in it, or by its name in ``runs/``.

    Raises:
        RunError: there is no such run.

    """
    return run if isinstance(run, Run) else locate(run)[0]


def locate(place: Path | str) -> tuple[Run, Path | None]:
    """Return the run of a directory, a checkpoint, a pack or a name in ``runs/``, and the checkpoint, if ``place`` is one.

    Raises:
        RunError: ``place`` is none of these.

    """
    path = Path(place)
    if not path.exists() and path.name == str(path) and (RUNS / path).is_dir():
        path = RUNS / path
    if path.is_file() and zipfile.is_zipfile(path):
        try:
            return Run(unpack(path)), None
        except PackError as error:
            raise RunError(str(error)) from error
    if not path.is_dir():
        raise RunError(f"{place}: no such run")
    checkpoint = path.resolve() if (path / MANIFEST).is_file() and path.resolve().parent.name == CHECKPOINTS else None
    directory = path if checkpoint is None else checkpoint.parents[1]
    if not config_file(directory).is_file():
        raise RunError(f"{place}: not a run: it contains no config.yaml")
    return Run(directory), checkpoint


def _find(record: dict[str, Any], key: str) -> tuple[bool, Any]:
    """Return whether ``record`` has ``key``, and its value. For names with dots, the longest matching part is tried first."""
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
