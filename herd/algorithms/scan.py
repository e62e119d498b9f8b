"""Linear recurrences over time, from the last step back, in log2(T) rounds instead of T steps.

T steps first, any other dimensions behind.
"""

from __future__ import annotations

import torch
from torch import Tensor


def scan_back(added: Tensor, factors: Tensor, last: Tensor) -> Tensor:
    """``e_t = added_t + factors_t e_{t+1}`` with ``e_T = last``: e_0 .. e_{T-1}, [T, ...].

    By doubling (Hillis and Steele, 1986): after round n, ``e_t`` holds the terms of the 2^n steps from t on, and the factor of step t the
    product of theirs. A factor of 0 ends the sum exactly. Sums are in another order than step by step: results differ by rounding.

    Args:
        added: [T, ...], T >= 1.
        factors: [T, ...].
        last: [...].
    """
    errors = torch.cat([added[:-1], torch.addcmul(added[-1], factors[-1], last).unsqueeze(0)])
    num_steps = len(errors)
    reach = 1
    while reach < num_steps:
        errors = torch.cat([torch.addcmul(errors[:-reach], factors[: num_steps - reach], errors[reach:]), errors[-reach:]])
        # Mask of the steps whose sum still changes in the next round.
        factors = factors[: max(num_steps - 2 * reach, 0)] * factors[reach : max(num_steps - reach, reach)]
        reach *= 2
    return errors
