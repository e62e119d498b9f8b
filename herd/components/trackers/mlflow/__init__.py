"""MLflow."""

from __future__ import annotations

from herd.components.registry import Part
from herd.components.trackers import TrackerSettings

PART = Part("mlflow", TrackerSettings, f"{__name__}.tracker:MlflowRun")
