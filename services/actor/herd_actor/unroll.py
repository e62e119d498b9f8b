"""Turns a stream of observations and transitions into unrolls, ready for the wire. No sockets, no torch.

E environments, T agent steps of which K only burn in, S stacked frames, A actions. Rows 0..K of an unroll repeat the last K + 1 rows of
the one before; those of the first unroll are empty and not valid.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from herd.config.contract import NO_ACTION

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from herd.envs.api import Observation, Transition
    from herd.wire.layout import UnrollLayout

STEP_FIELDS = (
    "frames",
    "game_reset",
    "core_reset",
    "actions",
    "rewards",
    "terminated",
    "truncated",
    "row_valid",
    "behaviour_logits",
    "inverse_temperature",
    "instructions",
)
"""With one entry per row or step."""


class UnrollBuilder:
    """Writes E unrolls row by row into arrays laid out as they travel.

    The caller owns the arrays: `begin` takes them (``layout.allocate(E)``) and `finish` hands them back full, so that
    arrays which still wait for their acknowledgement are never written to.
    """

    def __init__(self, layout: UnrollLayout, *, task_ids: NDArray[np.int32], first_slot: int) -> None:
        self._layout = layout
        self._length = layout.unroll_length
        self._burn_in = layout.burn_in
        self._burn_in_rows = [field.name for field in layout.fields if field.name in STEP_FIELDS]
        # What the next unroll repeats: its burn-in, and what goes before it.
        self._tail: dict[str, NDArray[np.generic]] | None = None
        self._before_tail: dict[str, NDArray[np.generic]] = {}
        self._num_environments = len(task_ids)
        self._task_ids = task_ids
        self._slots = np.arange(first_slot, first_slot + len(task_ids), dtype=np.int32)
        self._arrays: dict[str, NDArray[np.generic]] = {}
        self._row = 0
        # What row 0 needs to know of the unroll before. Before the first game there is no action.
        self.core_reset = np.ones(self._num_environments, dtype=np.bool_)
        self.last_actions = np.full(self._num_environments, NO_ACTION, dtype=np.int32)
        self.last_rewards = np.zeros(self._num_environments, dtype=np.float32)
        self._episode_ids = np.zeros(self._num_environments, dtype=np.int64)
        self._index_in_episode = np.zeros(self._num_environments, dtype=np.int32)

    def begin(
        self,
        arrays: dict[str, NDArray[np.generic]],
        observation: Observation,
        core_state: NDArray[np.float32] | None,
        policy_version: tuple[int, int],
    ) -> None:
        """Start unrolls whose first new step acts on ``observation``; ``core_state`` [E, 2, core_size] is the policy's before it."""
        self._arrays = arrays
        self._row = self._burn_in
        if self._burn_in:
            self._write_burn_in()
        else:
            for name, array in self._state_before(observation, core_state).items():
                arrays[name][...] = array
        arrays["environment_slot"][...] = self._slots
        arrays["task_id"][...] = self._task_ids
        arrays["episode_id"][...] = self._episode_ids
        arrays["index_in_episode"][...] = self._index_in_episode
        arrays["policy_version"][:, 0] = policy_version
        self._write_row(observation)

    def add(
        self,
        actions: NDArray[np.int32],
        behaviour_logits: NDArray[np.float32],
        inverse_temperatures: NDArray[np.float32] | float,
        transition: Transition,
    ) -> None:
        """Record the step from the current row: actions [E], logits [E, A] as sampled from, and what the environments returned.

        ``inverse_temperatures`` [E], or one for all: 1/tau of the games that the step belongs to.
        """
        row, arrays = self._row, self._arrays
        arrays["actions"][:, row] = actions
        arrays["behaviour_logits"][:, row] = behaviour_logits
        arrays["inverse_temperature"][:, row] = inverse_temperatures
        arrays["rewards"][:, row] = transition.rewards
        arrays["terminated"][:, row] = transition.terminated
        arrays["truncated"][:, row] = transition.truncated
        arrays["row_valid"][:, row] = transition.valid
        self._row = row + 1

        # A new training episode starts where the last one terminated (a lost life may) and where a game starts.
        # After a truncation the next row is the final observation: its value bootstraps, so its state must not reset.
        game_reset = transition.observation.game_reset
        self.core_reset = transition.terminated | game_reset
        self.last_actions = np.where(self.core_reset, NO_ACTION, actions).astype(np.int32)
        self.last_rewards = np.where(self.core_reset, np.float32(0), transition.rewards)
        self._episode_ids += game_reset
        self._index_in_episode = np.where(game_reset, 0, self._index_in_episode + 1).astype(np.int32)
        self._write_row(transition.observation)

    def mark(self, observation: Observation, core_state: NDArray[np.float32] | None) -> None:
        """Before each step: where the next unroll's burn-in begins, keep the state before that row."""
        if self._burn_in and self._row == self._length - self._burn_in:
            self._before_tail = self._state_before(observation, core_state)

    def episode_id(self, environment: int) -> int:
        """Number of the game that an environment is in, from its actor's start."""
        return int(self._episode_ids[environment])

    def finish(self, policy_version: tuple[int, int]) -> dict[str, NDArray[np.generic]]:
        """The full arrays [E, ...], the last row made under ``policy_version``.

        Raises:
            RuntimeError: before T steps were added.
        """
        if self._row != self._length:
            raise RuntimeError(f"unroll finished after {self._row} of {self._length} steps")
        self._arrays["policy_version"][:, 1] = policy_version
        if self._burn_in:
            # A copy: the arrays are the caller's, who may hand them to `begin` again.
            last = slice(self._length - self._burn_in, self._length)
            self._tail = {name: self._arrays[name][:, last].copy() for name in self._burn_in_rows} | self._before_tail
        return self._arrays

    def _state_before(self, observation: Observation, core_state: NDArray[np.float32] | None) -> dict[str, NDArray[np.generic]]:
        """What an unroll says of the time before its row 0, if that is ``observation``."""
        state: dict[str, NDArray[np.generic]] = {"last_action": self.last_actions, "last_reward": self.last_rewards}
        if self._layout.frame_stack > 1:
            height, width, channels = self._layout.frame_shape
            history = observation.stack[:, :-channels].reshape(self._num_environments, -1, channels, height, width)
            state["history_frames"] = history.transpose(0, 1, 3, 4, 2).copy()
        if core_state is not None:
            state["initial_core_state"] = core_state.copy()
        return state

    def _write_burn_in(self) -> None:
        arrays = self._arrays
        if self._tail is not None:
            for name, array in self._tail.items():
                target = arrays[name][:, : self._burn_in] if name in self._burn_in_rows else arrays[name]
                target[...] = array
            return
        # Nothing went before: rows that are not valid, and a core that starts anew with the first game.
        for name in self._burn_in_rows:
            arrays[name][:, : self._burn_in] = 0
        arrays["core_reset"][:, : self._burn_in] = True
        for name in ("history_frames", "initial_core_state", "last_reward"):
            if name in arrays:
                arrays[name][...] = 0
        arrays["last_action"][...] = NO_ACTION

    def _write_row(self, observation: Observation) -> None:
        row, arrays = self._row, self._arrays
        channels = self._layout.frame_shape[2]
        arrays["frames"][:, row] = observation.stack[:, -channels:].transpose(0, 2, 3, 1)
        arrays["game_reset"][:, row] = observation.game_reset
        arrays["core_reset"][:, row] = self.core_reset
        if observation.instructions is not None:
            arrays["instructions"][:, row] = observation.instructions
