"""What an update is allowed, from what earlier ones did: how long its gradient may be, and how its learning rate follows the policy.

State in, state out: `UpdateControl` holds nothing but two numbers' histories, which a checkpoint keeps (`tensors`).
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
"""The part of a checkpoint that holds it."""
RATE_STEP = 1.5
"""What a move of the policy that is too long or too short divides or multiplies the learning rate by."""
TOLERANCE = 2.0
"""A move is too long beyond this times the target, too short below the target divided by it."""
RATE_BOUNDS = (1e-3, 1e2)
"""Of the multiplier: a policy that no rate moves, for want of any reward, must not drive it without end."""


class UpdateControl:
    """Two rules, each on where the settings say so.

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
        """Of what the schedule says."""

    def limit(self, norm: float) -> float:
        """How long this gradient, of a finite global norm, may stay. To be asked once for each update."""
        if self._percentile is None:
            return self._max_norm
        self._norms.append(norm)
        return min(self._max_norm, float(np.percentile(self._norms, self._percentile)))

    def follow(self, update_kl: float) -> None:
        """Take what an update moved the policy by, in nats. What is no number teaches nothing."""
        if self._target_kl is None or not math.isfinite(update_kl):
            return
        if update_kl > TOLERANCE * self._target_kl:
            self.rate_multiplier /= RATE_STEP
        elif update_kl < self._target_kl / TOLERANCE:
            self.rate_multiplier *= RATE_STEP
        lowest, highest = RATE_BOUNDS
        self.rate_multiplier = min(max(self.rate_multiplier, lowest), highest)

    def tensors(self) -> dict[str, Tensor]:
        """The state, float64: ``norms`` [N], ``rate_multiplier`` []; without the state of a rule that is off."""
        state = {}
        if self._percentile is not None:
            state["norms"] = torch.tensor(list(self._norms), dtype=torch.float64)
        if self._target_kl is not None:
            state["rate_multiplier"] = torch.tensor(self.rate_multiplier, dtype=torch.float64)
        return state

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Inverse of `tensors`. What a rule did not keep, because it was off then, begins anew.

        Raises:
            CheckpointError: the tensors are not what `tensors` gives.
        """
        norms, multiplier = tensors.get("norms"), tensors.get("rate_multiplier")
        if (norms is not None and norms.dim() != 1) or (multiplier is not None and multiplier.dim() != 0):
            raise CheckpointError("the state of gradient clipping and learning rate is invalid")
        self._norms.clear()
        if self._percentile is not None and norms is not None:
            self._norms.extend(norms.tolist())
        self.rate_multiplier = float(multiplier) if self._target_kl is not None and multiplier is not None else 1.0
