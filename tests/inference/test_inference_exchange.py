"""Requests are acted on once, answered again or rejected; invalid bytes change nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from herd_inference.exchange import ActingHandler, Decision
from herd_inference.sessions import Batches, Sessions

from herd.contract.spaces import discrete
from herd.contract.unroll import UnrollLayout
from herd.protocols.inference.messages import INFERENCE, Act, Acted, StateWanted
from herd.protocols.inference.rows import ActingLayout, pack_fields, read_answer
from herd.rpc.codec import MalformedMessage, encode
from herd.rpc.envelope import Refused
from herd.rpc.serving import Reply, ServedRun
from herd.transport import Peer
from tests.asking import ask

UNROLL = UnrollLayout(
    unroll_length=5,
    frame_stack=3,
    frame_shape=(4, 2, 1),
    actions=discrete(6),
    num_parameters=6,
    state_size=4,
    vector_size=3,
    instruction_length=2,
    num_words=10,
)
LAYOUT = ActingLayout(UNROLL)
PEER = Peer(b"inference/0/1/0")
PEERS = (PEER, Peer(b"x"), Peer(b"y"), Peer(b"z"))


class Service:
    """The handler and the state of one service."""

    def __init__(self, *, capacity: int = 8, layout: ActingLayout = LAYOUT) -> None:
        self.batches = Batches(2, batch_size=4, deadline_seconds=0.0)
        self.sessions = Sessions(capacity, self.batches.discard)
        self.batches.may_act(0)
        self.handler = ActingHandler(max_request=4, layout=layout, sessions=self.sessions, batches=self.batches)
        self.now = 0.0

    def take(self, frames: list[bytes], peer: Peer = PEER) -> Decision:
        self.now += 1.0
        run = ServedRun("actor.inference_service", "run", "contract", range(2))
        take = lambda received: self.handler.take(received, self.now)  # noqa: E731  next to its use
        return ask(INFERENCE, run, take, frames, peer=peer, refused=lambda reply: Decision(reply.message, label=reply.label))

    def act(self) -> list[bytes]:
        """Act on all pending requests; returns the headers of the answers."""
        answers = []
        while batch := self.batches.next(self.now):
            for request in batch:
                count = request.session.num_environments
                arrays = {
                    "actions": np.full(count, request.request_id % 6, np.int32),
                    "behaviour_parameters": np.full((count, 6), request.request_id, np.float32),
                    "core_state": np.zeros((count, 4), np.float32),
                }
                answers.append(joined(self.handler.answer(request, arrays, (3, 9))))
        return answers

    def state(self) -> tuple[Any, ...]:
        """The whole state, except for the order in which sessions were heard."""
        kept = sorted((each.peer, each.agent, each.places, each.last_id) for each in self.sessions._sessions.values())
        return kept, len(self.batches), self.sessions.num_environments


def fields_of(count: int, **changes: Any) -> dict[str, Any]:
    made = {field.name: np.zeros((count, *field.shape), field.dtype) for field in LAYOUT.state_fields}
    made["inverse_temperature"] += 1
    made["game_reset"][:] = True
    for name, value in changes.items():
        made[name][...] = value
    return made


def request(
    request_id: int,
    *,
    count: int = 2,
    has_state: bool = False,
    wants_state: bool = False,
    fields: dict[str, Any] | None = None,
    **changes: Any,
) -> list[bytes]:
    values: dict[str, Any] = {"run": "run", "contract": "contract", "agent": 0, "num_environments": count} | changes
    message = Act(id=request_id, has_state=has_state, wants_state=wants_state, **values)
    shape = LAYOUT.planes_shape(has_state=has_state)
    assert shape is not None
    packed = pack_fields(LAYOUT.state_fields if has_state else LAYOUT.row_fields, fields or fields_of(count))
    return [*map(bytes, encode(message)), packed, bytes(np.arange(count * np.prod(shape), dtype=np.uint8))]


def joined(reply: Reply) -> bytes:
    assert reply.message is not None
    return b"".join(map(bytes, (*encode(reply.message), *reply.payloads)))


def said(decision: Decision) -> Any:
    return decision.message


def test_requests_are_acted_on_once_and_answered_again() -> None:
    service = Service()
    unknown = service.take(request(1))
    assert (unknown.outcome, said(unknown)) == ("state_wanted", StateWanted(id=1))
    assert service.take(request(1, has_state=True)) == Decision()
    assert service.take(request(1)) == Decision(outcome="repeated")  # it is still being acted on
    (first,) = service.act()
    again = service.take(request(1, has_state=True))
    assert joined(again) == first
    assert said(again) == Acted(id=1, lineage=3, updates=9)
    assert read_answer(again.payloads, 2, LAYOUT, has_state=False).actions.tolist() == [1, 1]
    assert service.take(request(2)).outcome == "new"
    assert len(service.act()) == 1
    assert service.take(request(1)) == Decision(outcome="late")
    assert service.take(request(4)).outcome == "state_wanted"  # a row is missing
    assert service.take(request(4, has_state=True)).outcome == "new"  # its owner acted on the missing row itself
    assert len(service.act()) == 1


def test_an_answer_has_the_state_only_if_it_was_asked_for() -> None:
    service = Service()
    service.take(request(1, has_state=True))
    service.act()
    for number, wants_state in ((2, True), (3, False)):
        service.take(request(number, wants_state=wants_state))
        service.act()
        answer = service.take(request(number, wants_state=wants_state))
        rows = read_answer(answer.payloads, 2, LAYOUT, has_state=wants_state)
        assert (rows.core_state is not None) == wants_state


def test_a_row_that_is_repeated_with_its_state_is_answered_with_the_state() -> None:
    """Its client asked another replica in between, which wanted the state; the kept answer would never fit what it now expects."""
    service = Service()
    service.take(request(1, has_state=True))
    service.act()
    service.take(request(2, wants_state=False))
    service.act()
    assert service.take(request(2, has_state=True, wants_state=True)).outcome == "new"
    service.act()
    answer = service.take(request(2, has_state=True, wants_state=True))
    assert read_answer(answer.payloads, 2, LAYOUT, has_state=True).core_state is not None


def test_an_unanswered_row_is_replaced_only_by_one_with_state() -> None:
    service = Service()
    service.take(request(1, has_state=True))
    assert service.take(request(2)).outcome == "state_wanted"
    assert service.take(request(2, has_state=True)).outcome == "new"
    assert len(service.act()) == 1
    assert said(service.take(request(2))) == Acted(id=2, lineage=3, updates=9)


@pytest.mark.parametrize("changes", [{"count": 3}, {"agent": 1}])
def test_a_changed_size_or_agent_needs_its_state(changes: dict[str, Any]) -> None:
    service = Service()
    service.take(request(1, has_state=True))
    service.act()
    assert service.take(request(2, **changes)).outcome == "state_wanted"
    assert service.take(request(2, has_state=True, **changes)).outcome == "new"


def test_too_many_environments_are_refused_with_a_reason() -> None:
    service = Service()
    decision = service.take(request(1, has_state=True, count=5))
    assert isinstance(decision.message, Refused)
    assert "a request of 5 environments exceeds the limit of 4" in decision.message.reason
    assert service.state() == ([], 0, 0)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("last_action", 6),
        ("last_action", -1),
        ("last_reward", np.nan),
        ("inverse_temperature", np.inf),
        ("core_state", np.nan),
        ("observations", -np.inf),
        ("instructions", 10),
        ("instructions", -1),
    ],
)
def test_values_out_of_range_are_malformed(name: str, value: float) -> None:
    service = Service()
    service.take(request(1, has_state=True))
    before = service.state()
    with pytest.raises(MalformedMessage, match=f"field {name}") as raised:
        service.take(request(2, has_state=True, fields=fields_of(2, **{name: value})))
    assert raised.value.label == "array"
    assert service.state() == before


@pytest.mark.parametrize("part", [1, 2])
@pytest.mark.parametrize("change", [-1, 1])
def test_payloads_of_wrong_length_are_malformed(part: int, change: int) -> None:
    service = Service()
    frames = request(1, has_state=True)
    frames[part] = frames[part][:change] if change < 0 else frames[part] + b"\0"
    with pytest.raises(MalformedMessage) as raised:
        service.take(frames)
    assert raised.value.label == "size"
    for wrong in (frames[:1], frames[:2], [*frames, b""]):
        with pytest.raises(MalformedMessage):
            service.take(wrong)
    assert service.state() == ([], 0, 0)
