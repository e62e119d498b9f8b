"""A policy that asks the run's inference service."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from herd.acting.policy import PolicyStep

if TYPE_CHECKING:
    from collections.abc import Callable

    from herd.acting.policy import Rows
    from herd.protocols.inference.client import Answer, InferenceClient
    from herd.service.signals import Stop

WAIT_SECONDS = 0.25
"""Longest uninterrupted wait, so that a signal is noticed."""


class StoppedWaitingError(Exception):
    """The process was asked to stop, or the actor to move, during the wait for an answer."""


class RemotePolicy:
    """The policy of one group of environments: `submit` sends a row, `collect` waits for the answer.

    ``rows.frames`` are stacks in the memory order of the observation; only their newest planes are sent.
    """

    def __init__(
        self,
        client: InferenceClient,
        *,
        stop: Stop,
        while_waiting: Callable[[float], None],
        on_answer: Callable[[Answer], None],
    ) -> None:
        """Ask through ``client``.

        Args:
            client: client of this group.
            stop: ends a wait.
            while_waiting: called at least every ``WAIT_SECONDS`` of a wait, with the seconds without an answer.
            on_answer: called for every answer.
        """
        self._client = client
        self._stop = stop
        self._while_waiting = while_waiting
        self._on_answer = on_answer

    def submit(self, rows: Rows) -> None:
        """See `Policy`."""
        self._client.ask(_fields(rows), rows.frames, wants_state=rows.wants_state)

    def collect(self, ticket: None) -> PolicyStep:  # noqa: ARG002  at most one row is under way
        """See `Policy`.

        Raises:
            StoppedWaitingError: told to stop before the answer came.
        """
        while (answer := self._client.poll(WAIT_SECONDS)) is None:
            if self._stop:
                raise StoppedWaitingError
            self._while_waiting(self._client.silent_seconds)
        self._on_answer(answer)
        acted = answer.rows
        # Copies, because received arrays are read-only, and the state is sent in requests again.
        values = np.zeros((len(acted.actions), 0), np.float32)
        core_state = None if acted.core_state is None else acted.core_state.copy()
        return PolicyStep(acted.actions.copy(), acted.behaviour_parameters, values, core_state, answer.version)


def _fields(rows: Rows) -> dict[str, Any]:
    num_environments = len(rows.core_reset)
    inverse = rows.inverse_temperatures
    return {
        "last_action": rows.last_actions,
        "last_reward": rows.last_rewards,
        "inverse_temperature": np.ones(num_environments, np.float32) if inverse is None else inverse.copy(),
        "observations": rows.vectors,
        "instructions": rows.instructions,
        "action_masks": rows.action_masks,
        "game_reset": rows.game_reset,
        "core_reset": rows.core_reset,
        "core_state": rows.core_state,
    }
