"""The role in the name of a client's key, and what a client of that role may send.

A name may begin with a role: ``client-actor``, ``client-actor-7``. A client with a key of any other name, or in a run without keys, may
send every message.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from herd.rpc.codec import MalformedMessage
from herd.rpc.envelope import ROLES

if TYPE_CHECKING:
    from herd.rpc.envelope import Message, Role


@lru_cache(maxsize=1024)
def role_of(name: str | None) -> Role | None:
    """Return the role in the name of a client's key (``client-actor-7``); None if it contains none."""
    first = (name or "").removeprefix("client-").partition("-")[0]
    if first == "evaluator":  # the service has the role of a viewer
        return "viewer"
    return next((role for role in ROLES if role == first), None)


def check_sender(key_name: str | None, message: Message) -> None:
    """Check that the holder of this key may send ``message``.

    Raises:
        MalformedMessage: its role may not send it.

    """
    role = role_of(key_name)
    if role is not None and not message.may_come_from(role):
        raise MalformedMessage(f"the key of a {role} may not send {message.type}", "unexpected")
