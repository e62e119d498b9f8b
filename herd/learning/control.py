"""Adaptive limits of an update: the norm at which its gradient is clipped, and the multiplier of its learning rate.

The state of `UpdateControl` is saved in checkpoints (`tensors`).
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from herd.checkpoints.store import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from herd.config.optimizers import OptimizerSettings

CONTROL = "control"
"""Name of its part of a checkpoint."""
RATE_STEP = 1.5
"""Factor by which the learning rate is divided after too large a change of the policy, or multiplied after too small a one."""
TOLERANCE = 2.0
"""A change is too large above the target times this factor, and too small below the target divided by it."""
RATE_BOUNDS = (1e-3, 1e2)
"""Limits of the multiplier, for a policy that does not change at any rate, for example without rewards."""


class UpdateControl:
    """Two rules, each enabled by the settings.

    - AutoClip (arXiv:2007.14469): a gradient is clipped at a percentile of the newest global norms, its own among them.
    - The learning rate is divided by `RATE_STEP` after an update that moved the policy too far, in KL(before || after), and multiplied by
      it after one that hardly moved it (arXiv:2109.11978; PPO's adaptive penalty, arXiv:1707.06347 section 4, with the rate in its place).
    """

    def __init__(self, settings: OptimizerSettings) -> None:
        self._max_norm = math.inf if settings.max_gradient_norm is None else settings.max_gradient_norm
        self._percentile = settings.clip_percentile
        self._norms: deque[float] = deque(maxlen=settings.clip_history_updates)
        self._target_kl = settings.target_kl
        self.rate_multiplier = 1.0
        """Multiplier of the scheduled learning rate."""

    def limit(self, norm: float) -> float:
        """Return the norm at which to clip this gradient, whose global norm is finite. Call it once for each update."""
        if self._percentile is None:
            return self._max_norm
        self._norms.append(norm)
        return min(self._max_norm, float(np.percentile(self._norms, self._percentile)))

    def follow(self, update_kl: float) -> None:
        """Adapt the multiplier to an update's change of the policy, in nats; NaN is ignored."""
        if self._target_kl is None or not math.isfinite(update_kl):
            return
        if update_kl > TOLERANCE * self._target_kl:
            self.rate_multiplier /= RATE_STEP
        elif update_kl < self._target_kl / TOLERANCE:
            self.rate_multiplier *= RATE_STEP
        lowest, highest = RATE_BOUNDS
        self.rate_multiplier = min(max(self.rate_multiplier, lowest), highest)

    def tensors(self) -> dict[str, Tensor]:
        """Return the state, float64: ``norms`` [N], ``rate_multiplier`` []; without the state of a disabled rule."""
        state = {}
        if self._percentile is not None:
            state["norms"] = torch.tensor(list(self._norms), dtype=torch.float64)
        if self._target_kl is not None:
            state["rate_multiplier"] = torch.tensor(self.rate_multiplier, dtype=torch.float64)
        return state

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore the state from `tensors`. A rule that was disabled then starts from its initial state.

        Raises:
            CheckpointError: the tensors are not those of `tensors`.
        """
        norms, multiplier = tensors.get("norms"), tensors.get("rate_multiplier")
        if (norms is not None and norms.dim() != 1) or (multiplier is not None and multiplier.dim() != 0):
            raise CheckpointError("the state of gradient clipping and learning rate is invalid")
        self._norms.clear()
        if self._percentile is not None and norms is not None:
            self._norms.extend(norms.tolist())
        self.rate_multiplier = float(multiplier) if self._target_kl is not None and multiplier is not None else 1.0
