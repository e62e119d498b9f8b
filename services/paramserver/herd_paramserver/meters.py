"""The parameter server's metrics. Instruments are looked up once."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from herd.protocols.weights import metrics as names
from herd.protocols.weights.messages import GetWeights, NotModified, StalePublish, Weights
from herd.service.inbox import ServerMeters

if TYPE_CHECKING:
    from collections.abc import Sequence

    from herd.rpc.envelope import Message
    from herd.telemetry import Telemetry
    from herd_paramserver.leases import PlaceLeases
    from herd_paramserver.replica import Following
    from herd_paramserver.store import Version


class Meters(ServerMeters):
    """The metrics of roots and replicas."""

    def __init__(self, telemetry: Telemetry) -> None:
        super().__init__(telemetry)
        counter = telemetry.counter
        self._requests = {kind: counter(names.PARAMSERVER_REQUESTS, kind=kind) for kind in names.REQUEST_KINDS}
        self._answers = {answer: counter(names.PARAMSERVER_ANSWERS, answer=answer) for answer in names.ANSWERS}
        self._stale = counter(names.PARAMSERVER_STALE_PUBLISHES)

    def watch_leases(self, leases: PlaceLeases, num_agents: int) -> None:
        """Export the number of leased indices of the root."""
        self._telemetry.read(names.PARAMSERVER_MOVES, lambda: float(leases.num_moved))
        for agent in range(num_agents):
            self._telemetry.read(names.PARAMSERVER_AGENT_LEASES, partial(leases.num_holders, agent), agent=str(agent))

    def watch_parent(self, followings: Sequence[Following]) -> None:
        """Export the state of a replica's connection to its parent, over all followers."""
        self._telemetry.read(
            names.PARAMSERVER_UPSTREAM_SILENCE, lambda: min(following.silent_seconds(time.monotonic()) for following in followings)
        )

    def requested(self, request: Message) -> None:
        """Count a valid request."""
        self._requests[request.type].inc()

    def answered(self, request: Message, answer: Message) -> None:
        """Count an answer."""
        if isinstance(answer, StalePublish):
            self._stale.inc()
        elif isinstance(request, GetWeights) and isinstance(answer, Weights | NotModified):
            self._answers[answer.type].inc()

    def visible(self, agent: int, version: Version) -> None:
        """Export a new version of this agent that is served from now on."""
        self._telemetry.set_weights_version(*version)
        self._telemetry.gauge(names.PARAMSERVER_AGENT_LINEAGE, agent=str(agent)).set(version.lineage)
        self._telemetry.gauge(names.PARAMSERVER_AGENT_UPDATES, agent=str(agent)).set(version.updates)
