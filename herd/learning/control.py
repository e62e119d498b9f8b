"""What an update is allowed, from what earlier ones did: how long its gradient may be, and how its learning rate follows the policy.

State in, state out: `UpdateControl` holds nothing but two numbers' histories, which a checkpoint keeps (`tensors`). Both are on the
device, and so are the decisions: the host never waits for them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

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

    def __init__(self, settings: OptimizerSettings, device: torch.device) -> None:
        largest = math.inf if settings.max_gradient_norm is None else settings.max_gradient_norm
        self._max_norm = torch.tensor(largest, dtype=torch.float64, device=device)
        self._quantile = None if settings.clip_percentile is None else settings.clip_percentile / 100.0
        length = 0 if self._quantile is None else settings.clip_history_updates
        self._norms = torch.full((length,), math.nan, dtype=torch.float64, device=device)
        """The newest norms, oldest first; NaN before them while there are fewer."""
        self._target_kl = settings.target_kl
        self._multiplier = torch.ones((), dtype=torch.float64, device=device)

    @property
    def rate_multiplier(self) -> Tensor | None:
        """float64 []: what multiplies the schedule's learning rate. None: it stays 1."""
        return None if self._target_kl is None else self._multiplier

    def limit(self, norm: Tensor) -> Tensor:
        """How long a gradient of this global norm [] may stay: float64 []. To be asked once for each update.

        A norm that is not finite does not enter the history.
        """
        if self._quantile is None:
            return self._max_norm
        newest = torch.cat([self._norms[1:], norm.double().unsqueeze(0)])
        self._norms = torch.where(norm.isfinite(), newest, self._norms)
        return torch.minimum(self._max_norm, self._norms.nanquantile(self._quantile))

    def follow(self, update_kl: Tensor, is_taken: Tensor) -> None:
        """Take what an update moved the policy by, float64 [] in nats. Nothing changes where it was not taken or the move is not finite."""
        target = self._target_kl
        if target is None:
            return
        shorter = torch.where(update_kl < target / TOLERANCE, self._multiplier * RATE_STEP, self._multiplier)
        followed = torch.where(update_kl > TOLERANCE * target, self._multiplier / RATE_STEP, shorter).clamp(*RATE_BOUNDS)
        self._multiplier = torch.where(is_taken & update_kl.isfinite(), followed, self._multiplier)

    def tensors(self) -> dict[str, Tensor]:
        """The state on the CPU, float64: ``norms`` [N], ``rate_multiplier`` []; without the state of a rule that is off."""
        state = {}
        if self._quantile is not None:
            norms = self._norms.cpu()
            state["norms"] = norms[~norms.isnan()]
        if self._target_kl is not None:
            state["rate_multiplier"] = self._multiplier.cpu()
        return state

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Inverse of `tensors`. What a rule did not keep, because it was off then, begins anew.

        Raises:
            CheckpointError: the tensors are not what `tensors` gives.
        """
        norms, multiplier = tensors.get("norms"), tensors.get("rate_multiplier")
        if (norms is not None and norms.dim() != 1) or (multiplier is not None and multiplier.dim() != 0):
            raise CheckpointError("the state of gradient clipping and learning rate is invalid")
        kept = self._norms.new_empty(0) if norms is None else norms.to(self._norms)[-len(self._norms) :]
        kept = kept[: len(self._norms)]
        self._norms = torch.cat([self._norms.new_full((len(self._norms) - len(kept),), math.nan), kept])
        self._multiplier = torch.ones_like(self._multiplier) if multiplier is None else multiplier.to(self._multiplier)
