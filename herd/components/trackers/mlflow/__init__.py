"""Sends points to MLflow, to a server or to whatever else its tracking URI names."""

from __future__ import annotations

import re
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from herd.components.registry import Part
from herd.components.trackers import TrackerSettings
from herd.components.trackers.api import STEP, Tracker, kept_id, scalars

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from herd.components.trackers import LoggingSettings
    from herd.components.trackers.api import Run

FOLDER = "mlflow"
_MAX_PARAMETERS = 100
"""Limit of MLflow for one request."""
_MAX_METRICS = 1000
"""As above, for metrics."""
_LONGEST_VALUE = 6000
"""Limit of MLflow for the text of a parameter."""
_OTHER_CHARACTERS = re.compile(r"[^\w\-. :/]")
"""What MLflow does not accept in names."""
_LAST_STEP = f"run/{STEP}"
_SOURCE = {"mlflow.source.name": "herd", "mlflow.source.type": "LOCAL"}
"""Shown in the list of runs."""


class MlflowRun(Tracker):
    """One run of MLflow, the same in every session. Raises MLflow's own errors and OSError."""

    def __init__(self, settings: LoggingSettings, run: Run) -> None:
        """Create or continue the run. MLflow repeats failed requests for some minutes, and takes credentials from the environment."""
        from mlflow import MlflowClient  # noqa: PLC0415  seconds to load, optional
        from mlflow.entities import Metric, Param  # noqa: PLC0415

        self._metric = Metric
        self._client = MlflowClient(settings.mlflow)
        self._run_id = kept_id(run.directory / FOLDER, lambda: self._created(settings.project, run.name))
        self._client.update_run(self._run_id, status="RUNNING")
        data = self._client.get_run(self._run_id).data
        self._step = data.metrics.get(_LAST_STEP, -1)
        # A parameter cannot be changed, so they are the settings of the first session.
        parameters = [] if data.params else [Param(key, str(value)[:_LONGEST_VALUE]) for key, value in _flat(run.config)]
        for start in range(0, len(parameters), _MAX_PARAMETERS):
            self._client.log_batch(self._run_id, params=parameters[start : start + _MAX_PARAMETERS])

    def on_points(self, points: Sequence[Mapping[str, Any]]) -> None:
        """Send points, together because a busy server takes seconds for a request.

        MLflow cannot remove points, so those up to the newest step are left out, as Weights & Biases does.
        """
        now, metrics = int(time.time() * 1000), []
        for point in points:
            step = int(point[STEP])
            if step > self._step:
                metrics += [self._metric(_OTHER_CHARACTERS.sub("_", name), value, now, step) for name, value in scalars(point).items()]
                self._step = step
        for start in range(0, len(metrics), _MAX_METRICS):
            self._client.log_batch(self._run_id, metrics=metrics[start : start + _MAX_METRICS])

    def on_end(self) -> None:
        """Mark the run as finished; a later session continues it."""
        self._client.set_terminated(self._run_id)

    def _created(self, experiment: str, name: str) -> str:
        from mlflow.exceptions import MlflowException  # noqa: PLC0415  as above

        if self._client.get_experiment_by_name(experiment) is None:
            with suppress(MlflowException):  # another run may create it at the same time
                self._client.create_experiment(experiment)
        run = self._client.create_run(self._client.get_experiment_by_name(experiment).experiment_id, run_name=name, tags=_SOURCE)
        return str(run.info.run_id)


def _flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, object]]:
    for key, value in settings.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield _OTHER_CHARACTERS.sub("_", f"{prefix}{key}"), value


PART = Part("mlflow", TrackerSettings, f"{__name__}:MlflowRun")
