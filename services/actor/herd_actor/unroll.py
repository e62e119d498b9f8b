"""Turns a stream of observations and transitions into unrolls, ready for the wire. No sockets, no torch.

E environments, T agent steps of which K only burn in. Rows 0..K of an unroll repeat the last K + 1 rows of
the one before; those of the first unroll are empty and not valid.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from herd.acting.policy import PolicyStep
    from herd.acting.row_state import RowState
    from herd.components.suites.api import Observation, Transition
    from herd.contract.unroll import UnrollLayout


class UnrollBuilder:
    """Writes E unrolls row by row into arrays with the layout of the wire format.

    The caller owns the arrays: `begin` takes them (``layout.allocate(E)``) and `finish` returns them full, so that arrays which wait for
    an acknowledgement are never overwritten. The caller advances ``state`` from row to row.
    """

    def __init__(self, layout: UnrollLayout, state: RowState, *, task_ids: NDArray[np.int32], first_slot: int) -> None:
        self._layout = layout
        self._state = state
        self._length = layout.unroll_length
        self._burn_in = layout.burn_in
        self._burn_in_rows = [field.name for field in layout.along("row", "step")]
        # The rows that the next unroll repeats: its burn-in, and the state before it.
        self._tail: dict[str, NDArray[np.generic]] | None = None
        self._before_tail: dict[str, NDArray[np.generic]] = {}
        self._task_ids = task_ids
        self.slots = np.arange(first_slot, first_slot + len(task_ids), dtype=np.int32)
        """[E]: the run's numbers of the environments."""
        self._arrays: dict[str, NDArray[np.generic]] = {}
        self._row = 0

    def begin(self, arrays: dict[str, NDArray[np.generic]], observation: Observation) -> None:
        """Start unrolls whose first new step acts on ``observation``, which is the current row of the state."""
        self._arrays = arrays
        self._row = self._burn_in
        if self._burn_in:
            self._write_burn_in()
        else:
            for name, array in self._state_before(observation).items():
                arrays[name][...] = array
        arrays["environment_slot"][...] = self.slots
        arrays["task_id"][...] = self._task_ids
        arrays["episode_id"][...] = self._state.episode_ids
        arrays["index_in_episode"][...] = self._state.index_in_episode
        self._write_row(observation)

    @property
    def stores_next_state(self) -> bool:
        """Whether the core's state after the current row goes into an unroll: the next one, or its burn-in, begins there."""
        row = self._row + 1
        if row == self._length and self._burn_in:
            row = self._burn_in  # the first new row of the next unroll
        return row == self._length - self._burn_in

    def add(self, step: PolicyStep, transition: Transition) -> None:
        """Record the step from the current row, after the state has advanced to the next one."""
        row, arrays, inverse_temperatures = self._row, self._arrays, self._state.inverse_temperatures
        if row == self._burn_in:
            arrays["policy_version"][:, 0] = step.version
        arrays["policy_version"][:, 1] = step.version
        arrays["actions"][:, row] = step.actions
        arrays["behaviour_parameters"][:, row] = step.behaviour_parameters
        arrays["inverse_temperature"][:, row] = 1.0 if inverse_temperatures is None else inverse_temperatures
        arrays["rewards"][:, row] = transition.rewards
        arrays["terminated"][:, row] = transition.terminated
        arrays["truncated"][:, row] = transition.truncated
        arrays["row_valid"][:, row] = transition.valid
        self._row = row + 1
        self._write_row(transition.observation)

    def finish(self) -> dict[str, NDArray[np.generic]]:
        """Return the full arrays, [E, ...].

        Raises:
            RuntimeError: fewer than T steps were added.
        """
        if self._row != self._length:
            raise RuntimeError(f"unroll finished after {self._row} of {self._length} steps")
        if self._burn_in:
            # A copy, because the caller may pass the arrays to `begin` again.
            last = slice(self._length - self._burn_in, self._length)
            self._tail = {name: self._arrays[name][:, last].copy() for name in self._burn_in_rows} | self._before_tail
        return self._arrays

    def _state_before(self, observation: Observation) -> dict[str, NDArray[np.generic]]:
        """Return the fields of an unroll about the time before its row 0, if row 0 is ``observation``."""
        state: dict[str, NDArray[np.generic]] = {"last_action": self._state.last_actions, "last_reward": self._state.last_rewards}
        if "history_frames" in self._arrays:
            height, width, channels = self._layout.frame_shape
            history = observation.stack[:, :-channels].reshape(len(self.slots), -1, channels, height, width)
            state["history_frames"] = history.transpose(0, 1, 3, 4, 2).copy()
        if self._layout.state_size:
            state["initial_core_state"] = self._state.core_state.copy()
        return state

    def _write_burn_in(self) -> None:
        arrays = self._arrays
        if self._tail is not None:
            for name, array in self._tail.items():
                target = arrays[name][:, : self._burn_in] if name in self._burn_in_rows else arrays[name]
                target[...] = array
            return
        # There are no previous rows: they are marked as not valid, and the core is reset at the first game.
        for name in self._burn_in_rows:
            arrays[name][:, : self._burn_in] = 0
        arrays["core_reset"][:, : self._burn_in] = True
        for name in ("history_frames", "initial_core_state", "last_action", "last_reward"):
            if name in arrays:
                arrays[name][...] = 0

    def _write_row(self, observation: Observation) -> None:
        row, arrays = self._row, self._arrays
        channels = self._layout.frame_shape[2]
        if channels:
            arrays["frames"][:, row] = observation.stack[:, -channels:].transpose(0, 2, 3, 1)
        if observation.vector is not None:
            arrays["observations"][:, row] = observation.vector
        arrays["game_reset"][:, row] = observation.game_reset
        arrays["core_reset"][:, row] = self._state.core_reset
        if observation.action_masks is not None:
            arrays["action_masks"][:, row] = observation.action_masks
        if observation.instructions is not None:
            arrays["instructions"][:, row] = observation.instructions
        if self._burn_in and row == self._length - self._burn_in:
            self._before_tail = self._state_before(observation)  # the next unroll's burn-in begins here
