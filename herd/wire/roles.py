"""The messages that the client of each key may send, if keys have roles.

The name of a key contains its role: ``client-actor``, ``client-actor-7``. A client with a key of any other name, or in a run without keys,
may send every message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

from herd.wire.codec import MalformedMessage

if TYPE_CHECKING:
    from herd.wire.messages import Message

KeyRole = Literal["learner", "actor", "paramserver", "inference", "viewer"]
"""``paramserver``: a replica, which sends requests to its parent. ``inference``: the service, which requests weights. ``viewer``: an
evaluator or another client that changes nothing."""
ROLES: tuple[KeyRole, ...] = get_args(KeyRole)

_LEASES = {"lease_index", "release_index"}
MAY_SAY: dict[KeyRole, frozenset[str]] = {
    "learner": frozenset(
        {
            "publish_slice",
            "publish_heartbeat",
            "agent_ended",
            "get_weights",
            "insert_unrolls",
            "sample_unrolls",
            "sample_episode",
            "sample_part",
            "member_report",
        }
    ),
    "actor": frozenset({"hello", "unrolls", "credit_request", "goodbye", "get_weights", "exchange_temperatures", "act", *_LEASES}),
    "paramserver": frozenset({"get_weights", *_LEASES}),
    "inference": frozenset({"get_weights"}),
    "viewer": frozenset({"get_weights", "exchange_temperatures"}),
}
"""The roles that may send each type of message."""


def role_of(name: str) -> KeyRole | None:
    """Return the role in the name of a client's key (``client-actor-7``); None if it contains none."""
    first = name.removeprefix("client-").partition("-")[0]
    if first == "evaluator":  # the service has the role of a viewer
        return "viewer"
    return next((role for role in ROLES if role == first), None)


def check_role(role: KeyRole | None, message: Message) -> None:
    """Check that a client of this role may send ``message``; None may send everything.

    Raises:
        MalformedMessage: the role may not send it.

    """
    if role is None:
        return
    # A viewer may only request the temperatures of an evaluation, which are not counted.
    is_counted = role == "viewer" and getattr(message, "purpose", "evaluation") != "evaluation"
    if message.type not in MAY_SAY[role] or is_counted:
        raise MalformedMessage(f"the key of a {role} may not send {message.type}", "unexpected")
