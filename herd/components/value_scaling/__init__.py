"""How values of several tasks share one network. The code of a part makes a `ValueScaling` of ``(settings, number of tasks)``."""

from __future__ import annotations

from typing import ClassVar

from herd.components.registry import PartSettings, Registry


class ValueScalingSettings(PartSettings):
    """What all strategies have."""

    has_head_per_task: ClassVar[bool] = False

    def num_values(self, num_tasks: int) -> int:
        """Value heads of the network."""
        return num_tasks if self.has_head_per_task else 1

    def incompatibility(self, *, has_replay: bool, train_online: bool) -> str | None:  # noqa: ARG002  for subclasses
        """Say why a run with this replay cannot use it, in one sentence that names the setting; None if it can."""
        return None


VALUE_SCALINGS = Registry("value_scaling", __name__, ValueScalingSettings, first=("none", "multi_head", "popart"))
