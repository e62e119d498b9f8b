"""What the client of each key may say, where keys have roles.

The name of a key tells its role: ``client-actor``, ``client-actor-7``. A key of any other name may say everything, and so may everybody
where there are no keys.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

from herd.wire.codec import MalformedMessage

if TYPE_CHECKING:
    from herd.wire.messages import Message

KeyRole = Literal["learner", "actor", "paramserver", "inference", "viewer"]
"""``paramserver``: a replica, which asks its parent. ``inference``: the service, which asks for weights. ``viewer``: an evaluator or
onlooker, which changes nothing."""
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
            "member_report",
        }
    ),
    "actor": frozenset({"hello", "unrolls", "credit_request", "goodbye", "get_weights", "exchange_temperatures", "act", *_LEASES}),
    "paramserver": frozenset({"get_weights", *_LEASES}),
    "inference": frozenset({"get_weights"}),
    "viewer": frozenset({"get_weights", "exchange_temperatures"}),
}
"""By type of message."""


def role_of(name: str) -> KeyRole | None:
    """Return the role that the name of a client's key tells (``client-actor-7``); None where it tells none."""
    first = name.removeprefix("client-").partition("-")[0]
    if first == "evaluator":  # the service that is one
        return "viewer"
    return next((role for role in ROLES if role == first), None)


def check_role(role: KeyRole | None, message: Message) -> None:
    """Check that a client of this role may say ``message``; None may say everything.

    Raises:
        MalformedMessage: it may not.

    """
    if role is None:
        return
    # A viewer asks for the temperatures of an evaluation, which are not counted.
    is_counted = role == "viewer" and getattr(message, "purpose", "evaluation") != "evaluation"
    if message.type not in MAY_SAY[role] or is_counted:
        raise MalformedMessage(f"the key of a {role} may not send {message.type}", "unexpected")
