"""What the parts do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch.nn import Parameter

from herd.components.losses.api import Forward, LossOutput, Metric
from herd.components.trackers.api import Run, Tracker

from .parts import CloningSettings, MomentumSettings, PointsSettings


def cloning(forward: Forward, settings: CloningSettings) -> LossOutput:
    rows = forward.trained.sum()
    imitation = -forward.target.log_prob(forward.actions).masked_fill(~forward.trained, 0.0).sum()
    value = 0.5 * (forward.values[:-1] - forward.rewards).masked_fill(~forward.trained, 0.0).square().sum()
    metrics = {
        "loss_imitation": Metric(imitation.detach(), rows, cost=1.0),
        "loss_value": Metric(value.detach(), rows, cost=settings.value_cost),
    }
    return LossOutput(imitation + settings.value_cost * value, metrics)


def momentum(settings: MomentumSettings, parameters: Iterable[Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=settings.learning_rate, momentum=settings.momentum)


class Points(Tracker):
    def __init__(self, settings: PointsSettings, run: Run) -> None:
        self._file = (run.directory / settings.file).open("a")

    def on_point(self, point: Mapping[str, Any]) -> None:
        self._file.write(f"{point['env_frames']} {point['loss_imitation']}\n")

    def on_end(self) -> None:
        self._file.close()
