"""A root of the parameter servers without its socket, and requests to a handler, through the checks of every server."""

from __future__ import annotations

from collections.abc import Sequence

from herd_paramserver.leases import Liveness, PlaceLeases
from herd_paramserver.requests import Answer, RequestHandler, RootHandler
from herd_paramserver.store import WeightsStore

from herd.protocols.weights.messages import WEIGHTS
from herd.rpc.envelope import Message
from herd.rpc.serving import ServedRun
from herd.transport import Frame, Peer
from tests.asking import CLIENT, ask

RUN, CONTRACT = "pong", "c" * 64


def ask_handler(
    handler: RequestHandler,
    message: Message | Sequence[Frame],
    *payloads: Frame,
    agents: int = 1,
    peer: Peer = CLIENT,
    now: float = 0.0,
) -> Answer:
    """Return the answer to ``message``, also if it is refused."""
    run = ServedRun("actor.paramserver and learner.paramserver", RUN, CONTRACT, range(agents))
    refused = lambda reply: Answer(reply.message, label=reply.label)  # noqa: E731  next to its use
    return ask(WEIGHTS, run, lambda received: handler.answer(received, now), message, *payloads, peer=peer, refused=refused)


class Root:
    """A root's handler with its state."""

    def __init__(self, num_agents: int = 1, *, max_leases: int = 2, max_version_bytes: int = 1 << 30) -> None:
        self.stores: tuple[WeightsStore, ...] = tuple(WeightsStore(max_version_bytes=max_version_bytes) for _ in range(num_agents))
        self.store = self.stores[0]
        self.liveness = Liveness(num_agents, now=0.0)
        self.leases = PlaceLeases(self.liveness, now=0.0, lease_seconds=30.0, max_leases=max_leases)
        self.handler = RootHandler(stores=self.stores, leases=self.leases, liveness=self.liveness)

    def ask(self, message: Message | Sequence[Frame], *payloads: Frame, peer: Peer = CLIENT, now: float = 0.0) -> Answer:
        return ask_handler(self.handler, message, *payloads, agents=len(self.stores), peer=peer, now=now)
