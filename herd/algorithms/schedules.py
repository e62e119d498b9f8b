"""The learning rate and the weight decay over a run.

Two clocks: `learning_rate_at` runs on env frames that the learner has consumed (IMPALA, arXiv:1802.01561, Table G.1); the functions
``..._at_update`` run on learner updates (DiCE, arXiv:2106.00707, Table 5).
"""

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


def learning_rate_at_update(learner_updates: int, *, learning_rate: float, warmup_updates: int, schedule_updates: int) -> float:
    """Learning rate of the update that follows ``learner_updates`` finished ones.

    It rises linearly over the first ``warmup_updates``: by ``learning_rate / warmup_updates`` an update, from the first on, so that the
    last of them has the full rate. Then it falls linearly to 0, which it reaches after ``schedule_updates``, the warm-up included.

    Raises:
        ValueError: the warm-up does not end before the schedule.

    """
    if not 0 <= warmup_updates < schedule_updates:
        raise ValueError(f"warmup_updates must be at least 0 and below schedule_updates = {schedule_updates}, got {warmup_updates}")
    if learner_updates < warmup_updates:
        return learning_rate * (learner_updates + 1) / warmup_updates
    return learning_rate * max(0.0, (schedule_updates - learner_updates) / (schedule_updates - warmup_updates))


def weight_decay_at_update(learner_updates: int, *, weight_decay: float, schedule_updates: int) -> float:
    """AdamW's decay rate at the update after ``learner_updates`` ones: linear to 0 after ``schedule_updates``, without a warm-up.

    It is what ``torch.optim.AdamW`` calls ``weight_decay``: an update takes learning rate times weight decay off every parameter.
    """
    return weight_decay * max(0.0, 1.0 - learner_updates / schedule_updates)
