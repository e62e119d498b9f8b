"""Reward shaping before learning.

IMPALA (arXiv:1802.01561), Table G.1 (Atari) and appendix D.1 (DMLab); DiCE (arXiv:2106.00707), Table 5.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

RewardShaping = Literal["clip", "soft_asymmetric", "soft_asymmetric_printed", "log_asymmetric", "none"]


def shape_rewards(rewards: Tensor, shaping: RewardShaping) -> Tensor:
    """Shape rewards for the losses, element by element; any shape and float dtype.

    - ``clip``: to ``[-1, 1]``.
    - ``soft_asymmetric``: ``5 tanh(r/5)``, times 0.3 below 0: the authors' code, close to the identity for small rewards.
    - ``soft_asymmetric_printed``: ``0.3 min(tanh r, 0) + 5 max(tanh r, 0)``, the formula of Fig. D.1.
    - ``log_asymmetric``: ``log(|r| + 1)``, times 2 for r >= 0 and times -1 below: DiCE's, unbounded.
    - ``none``: unchanged.

    Raises:
        ValueError: ``shaping`` is unknown.

    """
    if shaping == "clip":
        return rewards.clamp(-1.0, 1.0)
    if shaping == "soft_asymmetric":
        squeezed = torch.tanh(rewards / 5.0)
        return torch.where(rewards < 0, 0.3 * squeezed, squeezed) * 5.0
    if shaping == "soft_asymmetric_printed":
        squeezed = torch.tanh(rewards)
        return 0.3 * squeezed.clamp(max=0.0) + 5.0 * squeezed.clamp(min=0.0)
    if shaping == "log_asymmetric":
        logarithms = torch.log1p(rewards.abs())
        return torch.where(rewards < 0, -logarithms, 2.0 * logarithms)
    if shaping == "none":
        return rewards
    raise ValueError(f"shaping must be clip, soft_asymmetric, soft_asymmetric_printed, log_asymmetric or none, got {shaping!r}")


def clip_last_rewards(rewards: Tensor) -> Tensor:
    """Clip last rewards for the network to ``[-1, 1]``, independent of the losses, as in the code of IMPALA's authors."""
    return rewards.clamp(-1.0, 1.0)
