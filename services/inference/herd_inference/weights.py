"""Keeps the policies of all agents fresh: asks the parameter server for newer weights between batches, and never waits for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from herd.checkpoints.errors import CheckpointError
from herd.checkpoints.weights import decode_weights
from herd.telemetry.logs import warn_limited
from herd.wire.weights_client import WeightsClient

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch import Tensor

    from herd.wire.sockets import Context, Dealer

    Version = tuple[int, int]

PULL_SECONDS = 0.02
"""Between an answer and the next question: about half an update of the fastest learner, and a few per cent of the time for loading."""
UNUSABLE_SECONDS = 1.0
"""Until weights are asked for again after some that do not fit: the server still has those, and would send them each time."""


class Weights:
    """Newest weights of each agent, handed to ``load(agent, tensors, version)`` as they come."""

    def __init__(
        self,
        context: Context,
        endpoint: str,
        *,
        run_id: str,
        contract: str,
        num_agents: int,
        max_slice_bytes: int,
        load: Callable[[int, Mapping[str, Tensor], Version], None],
    ) -> None:
        """Start to connect. ``load`` raises ``CheckpointError`` for tensors that it cannot use."""
        self.versions: list[Version | None] = [None] * num_agents
        """Held, by agent."""
        self._load = load
        self._clients = [
            WeightsClient(
                context,
                endpoint,
                run_id=run_id,
                agent=agent,
                contract=contract,
                max_slice_bytes=max_slice_bytes,
                pause_seconds=PULL_SECONDS,
            )
            for agent in range(num_agents)
        ]

    @property
    def sockets(self) -> Sequence[Dealer]:
        """To wait on."""
        return [client.socket for client in self._clients]

    @property
    def rest_seconds(self) -> float:
        """Until there is something to do that no answer announces."""
        return min(client.rest_seconds for client in self._clients)

    def poll(self) -> list[int]:
        """Take what has come, ask where it is time; returns the agents that have newer weights now."""
        newer = []
        for agent, client in enumerate(self._clients):
            client.request(self.versions[agent])
            frame = client.poll()
            if client.refused is not None:
                warn_limited("weights refused", "the parameter server refuses this inference service", reason=client.refused)
            if frame is None:
                continue
            try:
                self._load(agent, decode_weights(*frame.slices), frame.version)
            except CheckpointError as error:
                client.pause(UNUSABLE_SECONDS)
                warn_limited("weights unusable", "dropped weights that cannot be used", agent=agent, reason=str(error))
                continue
            client.pause(PULL_SECONDS)
            self.versions[agent] = frame.version
            newer.append(agent)
        return newer

    def close(self) -> None:
        """Close at once."""
        for client in self._clients:
            client.close()
