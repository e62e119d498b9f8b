"""A request to a parameter server's handler, through the checks of every server."""

from __future__ import annotations

from collections.abc import Sequence

from herd_paramserver.requests import Answer, RequestHandler

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
