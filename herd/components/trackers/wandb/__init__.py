"""Weights & Biases."""

from __future__ import annotations

from herd.components.registry import Part
from herd.components.trackers import TrackerSettings

PART = Part("wandb", TrackerSettings, f"{__name__}.tracker:WandbRun")
