"""What every server checks before its handler sees a message: version, run, agent, contract, role, payload; and repeated requests."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest

from herd.protocols.bandit.messages import BANDIT, ExchangeTemperatures
from herd.protocols.inference.messages import INFERENCE, Act
from herd.protocols.population.messages import POPULATION
from herd.protocols.replay.messages import REPLAY
from herd.protocols.unrolls.messages import UNROLLS
from herd.protocols.weights.messages import WEIGHTS, AgentEnded, GetWeights, LeaseIndex, NotModified, PublishHeartbeat
from herd.rpc.codec import MalformedMessage, encode
from herd.rpc.envelope import ROLES, Message, Role
from herd.rpc.serving import AtMostOnce, RequestRefused, ServedRun, agent_of, read, role_of
from herd.transport import Peer

RUN = ServedRun("actor.paramserver", "pong", "c" * 64, range(2))
IDENTITY: dict[str, Any] = {"run": "pong", "agent": 1, "contract": "c" * 64}
CONVERSATIONS = (UNROLLS, WEIGHTS, BANDIT, REPLAY, POPULATION, INFERENCE)


def received(message: Message, *payloads: bytes, key: str | None = None) -> Message:
    conversation = next(each for each in CONVERSATIONS if message.type in each.types)
    return read(conversation, RUN, Peer(b"client", holder=key), [*encode(message), *payloads])


def asking(**changes: Any) -> GetWeights:
    return GetWeights(**{"id": 7, **IDENTITY, "have": None, **changes})


def test_requests_of_this_run_pass() -> None:
    for agent in (0, 1):
        assert received(asking(agent=agent)) == asking(agent=agent)
    lease = LeaseIndex(id=1, run="pong", client="f00d", place=None)  # any agent may ask
    assert received(lease) == lease


@pytest.mark.parametrize(
    ("changes", "label", "reason"),
    [
        ({"run": "breakout"}, "run", "this parameter server belongs to run pong, not breakout: check actor.paramserver of run breakout"),
        ({"run": "\x1b[2J\n" * 25}, "run", r"not \\x1b\[2J\\n"),
        ({"agent": 2}, "agent", "this parameter server serves agents 0 to 1, not 2: start all processes of run pong with the same agents"),
        (
            {"contract": "d" * 64},
            "contract",
            "run pong: contract dddddddddddd does not match this parameter server's cccccccccccc: start all",
        ),
        ({"contract": "\n\x1b]0;owned\x07"}, "contract", r"contract \\n\\x1b\]0;o"),
    ],
)
def test_other_clients_are_refused_with_a_printable_reason(changes: dict[str, Any], label: str, reason: str) -> None:
    with pytest.raises(RequestRefused, match=reason) as caught:
        received(asking(**changes))
    assert (caught.value.label, caught.value.id) == (label, 7)
    assert caught.value.reason.isprintable()
    assert caught.value.reason.isascii()


def test_another_protocol_version_is_refused_in_one_sentence() -> None:
    old = msgpack.packb({"type": "get_weights", "request_id": 5, "run_id": "pong", "agent": 0, "contract": "c", "have": None})
    with pytest.raises(RequestRefused, match="of protocol version 2, and this process speaks version 3: run the same release") as caught:
        read(WEIGHTS, RUN, Peer(b"client"), [old])
    assert (caught.value.label, caught.value.id) == ("protocol", 5)


@pytest.mark.parametrize(
    ("message", "payloads", "label"),
    [
        (NotModified(held=None), [], "unexpected"),  # what only servers send
        (asking(), [b"surplus"], "array"),
        (GetWeights(id=7, have=None), [], "header"),  # names no run
        (GetWeights(id=7, run="pong", have=None), [], "header"),
        (LeaseIndex(id=7, run="pong", place=None), [], "header"),
        (ExchangeTemperatures(**IDENTITY, client="c", purpose="training", finished=(), starting=()), [], "header"),  # without a number
    ],
)
def test_incomplete_and_misdirected_messages_are_malformed(message: Message, payloads: list[bytes], label: str) -> None:
    with pytest.raises(MalformedMessage) as caught:
        received(message, *payloads)
    assert caught.value.label == label


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("client-actor", "actor"),
        ("client-actor-7", "actor"),
        ("client-learner-gpu-1", "learner"),
        ("client-evaluator", "viewer"),
        ("client-default", None),
        ("client-actors", None),
        ("client-my-actor", None),
        ("", None),
        (None, None),
    ],
)
def test_the_role_follows_from_the_name_of_the_key(name: str | None, role: str | None) -> None:
    assert role_of(name) == role


@pytest.mark.parametrize("role", ROLES)
def test_a_key_with_a_role_sends_only_messages_of_its_role(role: Role) -> None:
    beat = PublishHeartbeat(**IDENTITY, lineage=1, updates=1, index=0, count=1)
    assert received(asking(), key=f"client-{role}-1") == asking()
    if role == "learner":
        assert received(beat, key=f"client-{role}-1") == beat
        return
    with pytest.raises(MalformedMessage, match=f"the key of a {role} may not send publish_heartbeat"):
        received(beat, key=f"client-{role}-1")


def test_a_viewer_requests_temperatures_for_evaluation_only() -> None:
    fields: dict[str, Any] = {"id": 1, **IDENTITY, "client": "c", "finished": (), "starting": ()}
    received(ExchangeTemperatures(**fields, purpose="evaluation"), key="client-viewer")
    received(ExchangeTemperatures(**fields, purpose="training"), key="client-actor")
    action = Act(id=1, **IDENTITY, num_environments=2, has_state=False, wants_state=False)
    received(action, b"rows", key="client-actor")
    for refused, payloads in ((ExchangeTemperatures(**fields, purpose="training"), ()), (action, (b"rows",))):
        with pytest.raises(MalformedMessage, match="the key of a viewer may not send"):
            received(refused, *payloads, key="client-viewer")


def test_a_key_of_one_agent_speaks_for_no_other() -> None:
    names = {"client-learner-agent-1": 1, "client-agent-0": 0, "client-learner-agent-": None, "client-learner-1": None, None: None}
    assert {name: agent_of(name) for name in names} == names
    fields: dict[str, Any] = {"id": 1, "run": "pong", "contract": "c" * 64, "lineage": 3}
    assert received(AgentEnded(**fields, agent=1), key="client-learner-agent-1").agent == 1
    with pytest.raises(MalformedMessage, match="the key of agent 1 may not send agent_ended for agent 0"):
        received(AgentEnded(**fields), key="client-learner-agent-1")


def test_every_role_has_messages_and_requests_name_their_run() -> None:
    """What follows in a session of the unroll stream, or is about a lease, names less."""
    kinds = {kind for each in CONVERSATIONS for kind in each.types.values()}
    assert set().union(*(kind.senders for kind in kinds)) == set(ROLES)
    in_session = {"unrolls", "credit_request", "goodbye"}
    for kind in kinds:
        name = kind.model_fields["type"].default
        assert ("run" in kind.names) == (bool(kind.senders) and name not in in_session), name
        assert ("contract" in kind.names) == ("run" in kind.names and "index" not in name), name


def test_repeated_late_and_early_requests_are_recognised() -> None:
    once: AtMostOnce[str] = AtMostOnce(2)
    assert once.judge("a", 5) == "new"
    once.answered("a", 5, "five")
    assert [once.judge("a", number) for number in (4, 5, 6)] == ["late", "repeated", "new"]
    assert (once.last("a"), once.reply("a"), once.reply("b")) == (5, "five", None)
    in_order: AtMostOnce[None] = AtMostOnce(2, in_order=True)
    assert [in_order.judge("a", number) for number in (1, 2)] == ["new", "early"]
    in_order.answered("a", 1)
    assert [in_order.judge("a", number) for number in (1, 3, 2)] == ["repeated", "early", "new"]
    assert in_order.judge("a", 9, oldest=9) == "new"  # messages between them cannot arrive any more
    assert in_order.judge("a", 8, oldest=9) == "repeated"


def test_the_client_silent_longest_is_forgotten() -> None:
    once: AtMostOnce[str] = AtMostOnce(2)
    for number, client in enumerate("abab", 1):
        once.answered(client, number)
    once.answered("c", 1)
    assert list(once.all()) == [("b", 4), ("c", 1)]
    assert once.judge("a", 1) == "new"
    sized: AtMostOnce[str] = AtMostOnce(9, entries_of=lambda reply: len(reply or ""))
    for client, reply in (("a", "12345"), ("b", "1"), ("a", "1234567"), ("b", "12")):
        sized.answered(client, 1, reply)
    assert (len(sized), sized.num_entries) == (2, 9)
    sized.answered("c", 1, "1")
    assert (list(sized.all()), sized.num_entries) == ([("b", 1), ("c", 1)], 3)
    sized.answered("b", 2, "x" * 50)  # a single client may exceed the bound
    assert (list(sized.all()), sized.num_entries) == ([("b", 2)], 50)
