"""Requests are acted on once, answered again or rejected; invalid bytes change nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from herd_inference.batches import Batches
from herd_inference.exchange import ActingHandler, Decision
from herd_inference.sessions import Sessions

from herd.contract.actions import discrete
from herd.contract.unroll import UnrollLayout
from herd.protocols.inference.messages import Act, Acted, StateWanted
from herd.protocols.inference.rows import ActingLayout, pack_fields, read_answer
from herd.protocols.unrolls.messages import Goodbye
from herd.rpc.codec import MalformedMessage, decode_header, encode
from herd.rpc.envelope import Refused
from herd.transport import Peer

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
        self.handler = ActingHandler(
            run_id="run", contract="contract", num_agents=2, max_request=4, layout=layout, sessions=self.sessions, batches=self.batches
        )
        self.now = 0.0

    def take(self, frames: list[bytes], peer: Peer = PEER) -> Decision:
        self.now += 1.0
        return self.handler.take(decode_header(frames[0]), frames[1:], peer=peer, now=self.now)

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
                answers.append(b"".join(bytes(frame) for frame in self.handler.answer(request, arrays, (3, 9))))
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
    request_id: int, *, count: int = 2, has_state: bool = False, fields: dict[str, Any] | None = None, **changes: Any
) -> list[bytes]:
    values: dict[str, Any] = {"run_id": "run", "contract": "contract", "agent": 0, "num_environments": count} | changes
    message = Act(request_id=request_id, has_state=has_state, **values)
    shape = LAYOUT.planes_shape(has_state=has_state)
    assert shape is not None
    packed = pack_fields(LAYOUT.state_fields if has_state else LAYOUT.row_fields, fields or fields_of(count))
    return [*map(bytes, encode(message)), packed, bytes(np.arange(count * np.prod(shape), dtype=np.uint8))]


def said(decision: Decision) -> Any:
    return decode_header(bytes(decision.frames[0])) if decision.frames else None


def test_requests_are_acted_on_once_and_answered_again() -> None:
    service = Service()
    unknown = service.take(request(1))
    assert (unknown.outcome, said(unknown)) == ("state_wanted", StateWanted(request_id=1))
    assert service.take(request(1, has_state=True)) == Decision("new")
    assert service.take(request(1)) == Decision("repeated", [])  # it is still being acted on
    (first,) = service.act()
    again = service.take(request(1, has_state=True))
    assert b"".join(map(bytes, again.frames)) == first
    assert said(again) == Acted(request_id=1, lineage=3, updates=9)
    assert read_answer(again.frames[1:], 2, LAYOUT).actions.tolist() == [1, 1]
    assert service.take(request(2)).outcome == "new"
    assert len(service.act()) == 1
    assert service.take(request(1)) == Decision("late")
    assert service.take(request(4)).outcome == "state_wanted"  # a row is missing
    assert service.take(request(4, has_state=True)).outcome == "new"  # its owner acted on the missing row itself
    assert len(service.act()) == 1


def test_an_unanswered_row_is_replaced_only_by_one_with_state() -> None:
    service = Service()
    service.take(request(1, has_state=True))
    assert service.take(request(2)).outcome == "state_wanted"
    assert service.take(request(2, has_state=True)).outcome == "new"
    assert len(service.act()) == 1
    assert said(service.take(request(2))) == Acted(request_id=2, lineage=3, updates=9)


@pytest.mark.parametrize("changes", [{"count": 3}, {"agent": 1}])
def test_a_changed_size_or_agent_needs_its_state(changes: dict[str, Any]) -> None:
    service = Service()
    service.take(request(1, has_state=True))
    service.act()
    assert service.take(request(2, **changes)).outcome == "state_wanted"
    assert service.take(request(2, has_state=True, **changes)).outcome == "new"


def test_clients_of_other_runs_are_refused_with_a_reason() -> None:
    service = Service()
    for changes, reason in (
        ({"run_id": "another"}, "belongs to run run, not another"),
        ({"contract": "other"}, "contract other does not match this inference service's"),
        ({"agent": 2}, "serves agents 0 to 1"),
        ({"count": 5}, "a request of 5 environments exceeds the limit of 4"),
    ):
        decision = service.take(request(1, has_state=True, **changes))
        assert decision.outcome == "refused"
        assert isinstance(said(decision), Refused)
        assert reason in (decision.refusal or "")
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
    with pytest.raises(MalformedMessage, match="goodbye is not a request to act"):
        service.take([bytes(encode(Goodbye())[0])])
    assert service.state() == ([], 0, 0)
