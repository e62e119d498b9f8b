"""The panels of a picture of runs and their contents: returns and speed, or measures of learning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from herd.view.plots.averaging import FloatArray
    from herd.view.plots.history import RunHistory

PanelSet = Literal["returns", "learning"]
FEWEST_TASKS_TOGETHER = 4
"""With fewer tasks, the interquartile mean excludes none."""
_NOT_OF_LEARNING = frozenset(
    {
        *("wall_seconds", "env_frames", "agent_steps", "learner_updates", "episodes", "frames_per_second", "episode_return_mean_100"),
        *("human_normalised_mean_capped", "task_frames_spread", "policy_lag_max"),
    }
)
"""Numbers of a point that have no panel of their own: counts, and numbers that the panels of returns show."""


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel of a picture."""

    key: str
    """Name in the file of numbers."""
    title: str
    unit: str
    """Label of the vertical axis."""
    kind: Literal["task", "tasks", "interquartile", "speed", "learning"]
    lowest: float | None = None
    """Lower limit of the vertical axis; lower values are cut off."""
    highest: float | None = None
    is_log: bool = False

    def values(self, run: RunHistory) -> FloatArray:
        """Return the values of a run, [P]; NaN where there is none. For ``interquartile`` see `task_scores`."""
        if self.kind == "task":
            return run.episode_returns.get(self.key, _nothing(run))
        if self.kind == "tasks":
            return run.human_normalised
        values = run.frames_per_second if self.kind == "speed" else run.numbers.get(self.key, _nothing(run))
        if self.kind == "speed" or self.key == "policy_lag_mean":
            # Before the first update there is nothing to measure.
            values = np.where(run.learner_updates > 0, values, np.nan) if np.isfinite(run.learner_updates).any() else values
        return np.where(values > 0, values, np.nan) if self.is_log else values


RETURN_UNIT = "episode return\n(mean of last 100 games)"
SPEED = Panel("frames_per_second", "throughput", "frames per second", "speed", lowest=0.0)
_MEAN_CAPPED = Panel("human_normalised_mean_capped", "human-normalised, mean capped", "random 0, human 1", "tasks")
INTERQUARTILE = Panel("human_normalised_interquartile_mean", "human-normalised, interquartile mean", "random 0, human 1", "interquartile")
_LEARNING = (
    Panel("loss_total", "total loss", "", "learning"),
    Panel("loss_policy", "policy loss", "", "learning"),
    Panel("loss_value", "value loss", "", "learning"),
    Panel("entropy", "entropy of the policy", "nats", "learning", lowest=0.0),
    Panel("health.explained_variance", "explained variance of the values", "1 is perfect", "learning", lowest=-1.0, highest=1.0),
    Panel("health.update_kl", "KL of one update", "nats, logarithmic", "learning", is_log=True),
    Panel("policy_lag_mean", "policy lag", "learner updates", "learning", lowest=0.0),
    Panel("gradient_norm", "norm of the gradient", "before clipping", "learning", lowest=0.0),
    Panel("clipped_share", "share of updates that are clipped", "", "learning", lowest=0.0, highest=1.0),
    Panel("health.effective_sample_size", "effective sample size", "share of the samples", "learning", lowest=0.0, highest=1.0),
    Panel("learning_rate", "learning rate", "", "learning", lowest=0.0),
)


def return_panels(runs: Sequence[RunHistory]) -> list[Panel]:
    """Return a panel for each task, the panels of all tasks together, and throughput."""
    tasks = list(dict.fromkeys(task for run in runs for task in run.episode_returns))
    panels = [Panel(task, task.replace("_", " "), RETURN_UNIT, "task") for task in tasks]
    if len(tasks) > 1 and any(np.isfinite(run.human_normalised).any() for run in runs):
        panels.append(_MEAN_CAPPED)
    if any(len(run.task_scores) >= FEWEST_TASKS_TOGETHER for run in runs):
        panels.append(INTERQUARTILE)
    return [*panels, SPEED]


def learning_panels(runs: Sequence[RunHistory]) -> list[Panel]:
    """Return the panels that all losses share, then those of the losses' own metrics. Panels without numbers are left out."""
    named = [name for run in runs for name in run.numbers if name not in _NOT_OF_LEARNING]
    known = {panel.key for panel in _LEARNING}
    others = [Panel(name, name.replace("_", " ").replace("health.", ""), "", "learning") for name in dict.fromkeys(named)]
    return [*(panel for panel in _LEARNING if panel.key in named), *(panel for panel in others if panel.key not in known)]


def task_scores(run: RunHistory) -> FloatArray:
    """Return human-normalised scores, [P, K], ordered by task name."""
    return np.stack([run.task_scores[task] for task in sorted(run.task_scores)], axis=-1)


def _nothing(run: RunHistory) -> FloatArray:
    return np.full(len(run.env_frames), np.nan)
