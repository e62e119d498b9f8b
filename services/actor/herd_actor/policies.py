"""Chooses an actor's actions: by its own copy of the policy, or by the run's inference service for each half of its environments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from herd.acting.remote_policy import RemotePolicy
from herd.config.run_contract import run_layout
from herd.protocols.inference.client import InferenceClient
from herd.telemetry.logs import warn_limited

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from herd.acting.policy import Policy
    from herd.protocols.inference.client import Answer
    from herd.service.process import ServiceProcess
    from herd_actor.assignment import Assignment
    from herd_actor.meters import Meters

REMOTE_GROUPS = 2
"""Number of groups: one is answered while the other is stepped."""


class Policies:
    """The policies of an actor's loop, one for each group of its environments. The loop tells them when to refresh their weights."""

    of_groups: Sequence[Policy[Any]]

    def wait(self) -> bool:
        """Wait until actions are available; False if the assignment ends before."""
        raise NotImplementedError

    def before_unroll(self) -> None:
        """Called when an unroll begins."""

    def before_row(self, *, is_last: bool) -> None:
        """Called when a row begins. ``is_last``: it is the last row of its unroll."""

    def before_send(self, num_unrolls: int) -> None:
        """Called when that many unrolls are about to be sent."""

    def after_wait(self, waited_seconds: float) -> None:
        """Called after a wait for credit."""

    def close(self) -> None:
        """Close all connections at once."""
        raise NotImplementedError


def group_sizes(num_environments: int, *, is_remote: bool) -> list[int]:
    """Return the sizes of the groups of an actor's environments: two halves with remote inference, otherwise one group."""
    num_groups = min(REMOTE_GROUPS if is_remote else 1, num_environments)
    return [num_environments * (group + 1) // num_groups - num_environments * group // num_groups for group in range(num_groups)]


class RemotePolicies(Policies):
    """The inference service, separately for each group. An actor waits while it is unavailable."""

    def __init__(
        self,
        process: ServiceProcess,
        assignment: Assignment,
        *,
        sizes: Sequence[int],
        incarnation: int,
        meters: Meters,
        while_waiting: Callable[[], None],
    ) -> None:
        """``sizes``: those of the groups."""
        settings = process.settings
        self._telemetry = process.telemetry
        self._timeout_seconds = settings.actor.inference_timeout_seconds
        self._meters = meters
        self._while_waiting = while_waiting
        self._assignment = assignment
        self._version: tuple[int, int] | None = None
        self._is_ready = False
        self._num_states = 0
        agent, index = assignment.place
        self._clients = [
            InferenceClient(
                process.context,
                process.identity.address("inference"),
                layout=run_layout(settings, process.spec),
                run_id=settings.name,
                agent=agent,
                contract=process.contract,
                actor_index=index,
                incarnation=incarnation,
                group=group,
                num_environments=size,
            )
            for group, size in enumerate(sizes)
        ]
        self.of_groups = [
            RemotePolicy(client, stop=assignment, while_waiting=self._wait, on_answer=self._answered) for client in self._clients
        ]
        meters.watch_inference(self._clients)
        self._telemetry.set_ready(False, "waiting for the inference service")

    def wait(self) -> bool:
        """See `Policies`. Returns at once: the service answers the first row as soon as it has weights."""
        return not self._assignment

    def close(self) -> None:
        """See `Policies`."""
        for client in self._clients:
            client.close()

    def _answered(self, answer: Answer) -> None:
        self._meters.answered(answer.round_trip_seconds)
        num_states = sum(client.num_states_sent for client in self._clients)
        if num_states > max(self._num_states, len(self._clients)):
            warn_limited("inference states", "the inference service did not know environments of this actor", states_sent=num_states)
        self._num_states = num_states
        if not self._is_ready:
            self._is_ready = True
            self._telemetry.set_ready(True)
        if answer.version != self._version:
            self._version = answer.version
            self._telemetry.set_weights_version(*answer.version)

    def _wait(self, silent_seconds: float) -> None:
        self._while_waiting()
        for client in self._clients:
            if client.refused is not None:
                warn_limited("inference refused", "the inference service refuses this actor", reason=client.refused)
        if silent_seconds > self._timeout_seconds:
            self._is_ready = False
            self._telemetry.set_ready(False, "the inference service does not answer; this actor waits")
            warn_limited("inference silent", "the inference service does not answer", seconds=round(silent_seconds, 1))
