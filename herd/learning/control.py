"""Adaptive limits of an update: the norm at which its gradient is clipped, and the multiplier of its learning rate.

The state of `UpdateControl` is saved in checkpoints (`tensors`). It stays on the device, and so do the decisions: the host never waits
for them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from herd.run.checkpoints.manifest import CheckpointError

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
        """Multiplier of the scheduled learning rate, float64 []; None if it stays 1."""
        return None if self._target_kl is None else self._multiplier

    def limit(self, norm: Tensor) -> Tensor:
        """Return the norm, float64 [], at which to clip a gradient of this global norm. Call it once for each update.

        A norm that is not finite does not enter the history.
        """
        if self._quantile is None:
            return self._max_norm
        newest = torch.cat([self._norms[1:], norm.double().unsqueeze(0)])
        self._norms = torch.where(norm.isfinite(), newest, self._norms)
        return torch.minimum(self._max_norm, self._norms.nanquantile(self._quantile))

    def follow(self, update_kl: Tensor, is_taken: Tensor) -> None:
        """Adapt the multiplier to an update's change of the policy, float64 [] in nats; ignored if not finite or no step was taken."""
        target = self._target_kl
        if target is None:
            return
        shorter = torch.where(update_kl < target / TOLERANCE, self._multiplier * RATE_STEP, self._multiplier)
        followed = torch.where(update_kl > TOLERANCE * target, self._multiplier / RATE_STEP, shorter).clamp(*RATE_BOUNDS)
        self._multiplier = torch.where(is_taken & update_kl.isfinite(), followed, self._multiplier)

    def tensors(self) -> dict[str, Tensor]:
        """Return the state on the CPU, float64: ``norms`` [N], ``rate_multiplier`` []; without the state of a disabled rule."""
        state = {}
        if self._quantile is not None:
            norms = self._norms.cpu()
            state["norms"] = norms[~norms.isnan()]
        if self._target_kl is not None:
            state["rate_multiplier"] = self._multiplier.cpu()
        return state

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore the state from `tensors`. A rule that was disabled then starts from its initial state.

        Raises:
            CheckpointError: the tensors are not those of `tensors`.
        """
        norms, multiplier = tensors.get("norms"), tensors.get("rate_multiplier")
        if (norms is not None and norms.dim() != 1) or (multiplier is not None and multiplier.dim() != 0):
            raise CheckpointError("the state of gradient clipping and learning rate is invalid")
        kept = self._norms.new_empty(0) if norms is None else norms.to(self._norms)[-len(self._norms) :]
        kept = kept[: len(self._norms)]
        self._norms = torch.cat([self._norms.new_full((len(self._norms) - len(kept),), math.nan), kept])
        self._multiplier = torch.ones_like(self._multiplier) if multiplier is None else multiplier.to(self._multiplier)
