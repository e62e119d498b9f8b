"""Keeps the policies of all agents fresh: requests newer weights from the parameter server between batches, and never waits for them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from herd.acting.policy import load_received
from herd.telemetry.logs import warn_limited

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch import Tensor

    from herd.acting.policy import Version
    from herd.service.process import ServiceProcess
    from herd.transport import Client

PULL_SECONDS = 0.02
"""Pause between an answer and the next request: about half an update of the fastest learner, so that loading takes a few per cent."""


class Weights:
    """Fetches the newest weights of each agent and passes them to ``load(agent, tensors, version)``."""

    def __init__(self, process: ServiceProcess, load: Callable[[int, Mapping[str, Tensor], Version], None]) -> None:
        """Start connecting. ``load`` raises ``CheckpointError`` for tensors that it cannot use."""
        self._clients = [process.weights_client(agent, pause_seconds=PULL_SECONDS) for agent in range(process.settings.agents)]
        self._load = load
        self.versions: list[Version | None] = [None] * len(self._clients)
        """Current versions, by agent."""

    @property
    def sockets(self) -> Sequence[Client]:
        """The sockets to wait for."""
        return [client.socket for client in self._clients]

    @property
    def rest_seconds(self) -> float:
        """Seconds until `poll` must be called again, even without an answer."""
        return min(client.rest_seconds for client in self._clients)

    def poll(self) -> list[int]:
        """Process answers, and send requests that are due; returns the agents with new weights."""
        newer = []
        for agent, client in enumerate(self._clients):
            client.request(self.versions[agent])
            frame = client.poll()
            if client.refused is not None:
                warn_limited("weights refused", "the parameter server refuses this inference service", reason=client.refused)
            if frame is not None and load_received(client, frame, partial(self._load, agent), agent=agent):
                client.pause(PULL_SECONDS)
                self.versions[agent] = frame.version
                newer.append(agent)
        return newer

    def close(self) -> None:
        """Close at once."""
        for client in self._clients:
            client.close()
