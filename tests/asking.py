"""Hands a message to a server's handler as the server does: encoded, decoded and checked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from herd.rpc.codec import Conversation, encode
from herd.rpc.envelope import Message
from herd.rpc.serving import Received, Reply, RequestRefused, ServedRun, read
from herd.transport import Frame, Peer

CLIENT = Peer(b"client")
R = TypeVar("R", bound=Reply)


def ask(
    conversation: Conversation,
    run: ServedRun,
    handler: Callable[[Received], R],
    message: Message | Sequence[Frame],
    *payloads: Frame,
    peer: Peer = CLIENT,
    refused: Callable[[Reply], R],
) -> R:
    """Return the reply to ``message``, or to its frames; ``refused`` turns a refusal into the handler's type of reply."""
    sent = encode(message) if isinstance(message, Message) else message
    frames = [memoryview(frame) for frame in (*sent, *payloads)]
    try:
        return handler(Received(peer, read(conversation, run, peer, frames), frames[1:]))
    except RequestRefused as error:
        return refused(error.reply)
