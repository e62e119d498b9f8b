"""Reward shaping before learning.

IMPALA (arXiv:1802.01561), Table G.1 (Atari) and appendix D.1 (DMLab); DiCE (arXiv:2106.00707), Table 5.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

RewardShaping = Literal["clip", "soft_asymmetric", "soft_asymmetric_printed", "log_asymmetric", "none"]


def shape_rewards(rewards: Tensor, shaping: RewardShaping) -> Tensor:
    """Rewards as the losses see them; any shape and float dtype, element by element.

    - ``clip``: to ``[-1, 1]``.
    - ``soft_asymmetric``: ``5 tanh(r/5)``, times 0.3 below 0: the authors' code, near the identity for small gains.
    - ``soft_asymmetric_printed``: ``0.3 min(tanh r, 0) + 5 max(tanh r, 0)``, Fig. D.1's formula.
    - ``log_asymmetric``: ``log(|r| + 1)``, times 2 from 0 on and -1 below: DiCE's, without a bound.
    - ``none``: as they are.

    Raises:
        ValueError: ``shaping`` is none of these.

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
    """Rewards as the network is told of the last one: to ``[-1, 1]``, whatever the losses see, as in the code of IMPALA's authors."""
    return rewards.clamp(-1.0, 1.0)
