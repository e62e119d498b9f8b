"""Recurrent states of replayed episodes (LASER, arXiv:1909.11583, section 5.1 and appendix B: the replayer).

A replay slot is a place in the batch, which works through one episode from its first step, an unroll in each batch, as an actor's
environment does. The state that the training forward pass ends an unroll with is the one that the next begins with: an episode runs under
the newest weights, and nothing is computed twice. A batch without replayed unrolls leaves the slots where they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from herd.learning.batch import TrainBatch


class Replayer:
    """The states of R slots, on the device. `begin` and `end` are around every batch; slots are its last unrolls, in order."""

    def __init__(self) -> None:
        self._states: Tensor | None = None
        """[R, 2, core_size] before the first row of each slot's next unroll; None before the first replayed ones."""
        self._num_slots = 0
        """Of the batch that was begun."""

    @torch.no_grad()
    def begin(self, batch: TrainBatch, num_replayed: int) -> None:
        """Write the states into the batch's ``num_replayed`` last unrolls: R or 0. The first row of an episode resets them."""
        self._num_slots = num_replayed
        if self._num_slots and self._states is not None:
            assert batch.initial_core_state is not None
            batch.initial_core_state[batch.num_unrolls - self._num_slots :] = self._states

    def end(self, next_core_states: Tensor) -> None:
        """What the batch, [B, 2, core_size], left. What is not finite must not outlive the update that it spoils."""
        if self._num_slots:
            self._states = next_core_states[-self._num_slots :].nan_to_num(posinf=0.0, neginf=0.0)
