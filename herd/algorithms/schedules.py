"""The learning rate over a run: IMPALA (arXiv:1802.01561), Table G.1."""

from __future__ import annotations

from typing import Literal

Schedule = Literal["linear", "constant"]


def learning_rate_at(env_frames: int, *, learning_rate: float, schedule: Schedule, schedule_env_frames: int) -> float:
    """Learning rate once the learner has consumed ``env_frames`` (emulator frames).

    ``linear`` falls from ``learning_rate`` at 0 to 0 at ``schedule_env_frames`` and stays there; ``constant`` is ``learning_rate``.

    Raises:
        ValueError: ``schedule`` is unknown.

    """
    if schedule == "constant":
        return learning_rate
    if schedule == "linear":
        return learning_rate * max(0.0, 1.0 - env_frames / schedule_env_frames)
    raise ValueError(f"schedule must be linear or constant, got {schedule!r}")
