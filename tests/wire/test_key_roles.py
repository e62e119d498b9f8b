"""Which messages the key of a learner, an actor, a replica or a viewer may send; other keys, and runs without keys, have no roles."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from herd_paramserver.server import ParameterServer

from herd.cli.keys import make_keys
from herd.config.curve_keys import CLIENT_PUBLIC_VARIABLE, SERVER_SECRET_VARIABLE, load_server_keys
from herd.config.settings import SecuritySettings
from herd.protocols.bandit.messages import ExchangeTemperatures
from herd.protocols.replay.messages import SampleUnrolls
from herd.protocols.unrolls.messages import Goodbye
from herd.protocols.weights.messages import GetWeights, PublishHeartbeat
from herd.rpc.codec import MalformedMessage, decode_header, encode
from herd.rpc.envelope import ROLES, TYPES, Role
from herd.rpc.roles import check_sender, role_of
from herd.service.meters import ServerMeters
from herd.service.serving import RequestInbox
from herd.telemetry import Telemetry
from herd.transport import Limits, Peer
from herd.transport.context import Context, Poller
from tests.learner.ingest_learner import PEER, Learner, hello_of

DEADLINE_SECONDS = 60.0
# The first line of each message class says who sends it; these messages are sent by servers.
ANSWERS = {
    *("welcome", "ack", "credit", "hello_required", "rejected", "refused", "weights", "not_modified", "published", "slice_wanted"),
    *("stale_publish", "agent_end_noted", "index_leased", "temperatures", "inserted", "sampled", "member_answer", "acted", "state_wanted"),
}
ASK = GetWeights(request_id=1, run_id="run", agent=0, contract="c", have=None)
PUBLISH = PublishHeartbeat(run_id="run", agent=0, contract="c", lineage=1, updates=1, index=0, count=1)


def test_every_request_type_has_a_role_and_no_answer_type_has_one() -> None:
    assert {name for name, message in TYPES.items() if not message.senders} == ANSWERS


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("client-actor", "actor"),
        ("client-actor-7", "actor"),
        ("client-learner-gpu-1", "learner"),
        ("client-paramserver-1", "paramserver"),
        ("client-inference", "inference"),
        ("client-viewer", "viewer"),
        ("client-evaluator", "viewer"),
        ("client-default", None),
        ("client-actors", None),
        ("client-my-actor", None),
        ("", None),
    ],
)
def test_the_role_follows_from_the_name_of_the_key(name: str, role: str | None) -> None:
    assert role_of(name) == role


@pytest.mark.parametrize("role", ROLES)
def test_every_role_may_get_weights_and_only_learners_publish(role: Role) -> None:
    check_sender(f"client-{role}-1", ASK)
    if role == "learner":
        check_sender(f"client-{role}-1", PUBLISH)
        return
    with pytest.raises(MalformedMessage, match=f"the key of a {role} may not send publish_heartbeat"):
        check_sender(f"client-{role}-1", PUBLISH)


def test_a_viewer_may_request_temperatures_for_evaluation_only() -> None:
    fields = {"request_id": 1, "run_id": "r", "contract": "c", "agent": 0, "incarnation": 1, "finished": (), "starting": ()}
    check_sender("client-viewer", ExchangeTemperatures(**fields, purpose="evaluation"))  # type: ignore[arg-type]
    check_sender("client-actor", ExchangeTemperatures(**fields, purpose="training"))  # type: ignore[arg-type]
    with pytest.raises(MalformedMessage):
        check_sender("client-viewer", ExchangeTemperatures(**fields, purpose="training"))  # type: ignore[arg-type]


def test_a_server_knows_the_key_behind_each_message(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    make_keys(keys)
    for name in ("learner", "actor-1"):
        make_keys(keys, client=name)
    with ExitStack() as stack:
        context = stack.enter_context(Context(SecuritySettings(curve_keys=keys), {}))
        router = stack.enter_context(context.server("tcp://127.0.0.1:*", Limits(max_frame_bytes=1 << 20)))
        dealers = {}
        for name in ("learner", "actor-1", "default"):
            own = stack.enter_context(Context(SecuritySettings(curve_keys=keys, curve_client=name), {}))
            dealers[name] = stack.enter_context(own.client(router.endpoint, name, Limits(max_frame_bytes=1 << 20)))
        poller = Poller(router, *dealers.values())
        deadline = time.monotonic() + DEADLINE_SECONDS

        def hear() -> Peer:
            while (received := router.receive()) is None:
                assert time.monotonic() < deadline, "nothing came"
                poller.poll(0.02)
                for dealer in dealers.values():
                    dealer.receive()
            return received[0]

        for turn in range(2):
            for name, dealer in dealers.items():
                while not dealer.send(encode(PUBLISH)):
                    assert router.receive() is None
                    dealer.receive()
                    assert time.monotonic() < deadline, "no connection"
                    poller.poll(0.02)
                peer = hear()
                assert (peer.name, peer.holder) == (name.encode(), f"client-{name}"), turn
                if name == "actor-1":
                    with pytest.raises(MalformedMessage, match="the key of a actor may not send publish_heartbeat"):
                        check_sender(peer.holder, PUBLISH)
                    check_sender(peer.holder, Goodbye())
                else:
                    check_sender(peer.holder, decode_header(encode(PUBLISH)[0]))


def test_keys_in_environment_variables_may_have_names() -> None:
    texts = {"actor-1": "aa" * 32, "learner": "bb" * 32}
    listed = ",".join([*(f"{name}={text}" for name, text in texts.items()), "cc" * 32])
    security = SecuritySettings(curve_keys_from_environment=True)
    keys = load_server_keys(security, {SERVER_SECRET_VARIABLE: "dd" * 32, CLIENT_PUBLIC_VARIABLE: listed})
    assert keys is not None
    assert {key.hex()[:2]: role_of(name) for key, name in keys.clients.items()} == {"aa": "actor", "bb": "learner", "cc": None}


class Strict:
    """A socket whose last sender has no permission."""

    sender = "client-viewer"


def test_the_parameter_server_checks_the_role_before_handling() -> None:
    shell: Any = object.__new__(ParameterServer)  # without a handler, which would be called next
    shell._router, shell._upstream = Strict(), None
    with pytest.raises(MalformedMessage, match="the key of a viewer may not send"):
        shell._serve(Peer(b"peer", holder="client-viewer"), [memoryview(encode(PUBLISH)[0])])


def test_other_servers_check_the_role_before_handling() -> None:
    inbox = RequestInbox(Strict(), pytest.fail, ServerMeters(Telemetry("replay", "run")))  # type: ignore[arg-type]
    with pytest.raises(MalformedMessage, match="the key of a viewer may not send"):
        inbox._reply(
            Peer(b"peer", holder="client-viewer"),
            [memoryview(encode(SampleUnrolls(request_id=1, run_id="run", agent=0, contract="c", num_unrolls=1))[0])],
        )


def test_the_learner_checks_the_role_before_any_change() -> None:
    learner = Learner()
    before = learner.state()
    with pytest.raises(MalformedMessage, match="the key of a viewer may not send hello"):
        learner.receive(encode(hello_of()), PEER._replace(holder="client-viewer"))
    assert learner.state() == before
    assert not learner.ingest.has_session(PEER)
