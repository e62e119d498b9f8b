"""Recurrent states of replayed episodes (LASER, arXiv:1909.11583, section 5.1 and appendix B: the replayer).

A replay slot is a place in the batch that works through one episode from its first step, one unroll per batch, like an actor's
environment. The training forward pass's final state of an unroll is the initial state of the next. An episode therefore runs under
the newest weights, and nothing is computed twice. A batch without replayed unrolls does not change the slots.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from herd.training.batch import TrainBatch


class Replayer:
    """The core's states of R slots, S numbers each, on the device.

    Call `begin` and `end` around every batch; the slots are its last unrolls, in order.
    """

    def __init__(self) -> None:
        self._states: Tensor | None = None
        """[R, S] before the first row of each slot's next unroll; None before the first replayed ones."""
        self._num_slots = 0
        """Number of replayed unrolls in the current batch."""

    @torch.no_grad()
    def begin(self, batch: TrainBatch, num_replayed: int) -> None:
        """Write the states into the batch's ``num_replayed`` last unrolls: R or 0. The first row of an episode resets them."""
        self._num_slots = num_replayed
        if self._num_slots and self._states is not None:
            assert batch.initial_core_state is not None
            batch.initial_core_state[batch.num_unrolls - self._num_slots :] = self._states

    def end(self, next_core_states: Tensor) -> None:
        """Store the batch's final states, [B, S]. Non-finite states must not affect later updates."""
        if self._num_slots:
            self._states = next_core_states[-self._num_slots :].nan_to_num(posinf=0.0, neginf=0.0)
