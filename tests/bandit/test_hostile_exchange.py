"""Any bytes to the bandit: whatever is refused changes nothing, and what is counted leaves every value finite."""

from __future__ import annotations

from typing import Any

import numpy as np
from herd_bandit.exchange import Answer, ExchangeHandler
from herd_bandit.population import draw_generator, new_bandits
from herd_bandit.window import RequestWindow
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from herd.config.settings import BanditSettings
from herd.wire.codec import MalformedMessage, decode_header, encode
from herd.wire.messages import Ack, ExchangeTemperatures, FinishedEpisode, Message, Refused, StartingEpisode, Temperatures
from tests.wire.hostile_bytes import mutated_frames

MAX_ENTRIES = 5
"""Few, so that strangers fill them."""


class Service:
    """Handler and state of one bandit process."""

    def __init__(self) -> None:
        own = BanditSettings()
        self.bandits = new_bandits(own, ("breakout",), seed=1)
        self.window = RequestWindow(max_entries=MAX_ENTRIES)
        self.handler = ExchangeHandler(
            own,
            run_id="run",
            contract="contract",
            action_repeat=4,
            bandits=self.bandits,
            window=self.window,
            generator=draw_generator(self.bandits, seed=1),
        )

    def receive(self, frames: list[bytes]) -> Answer:
        return self.handler.answer(decode_header(frames[0]), num_payloads=len(frames) - 1)

    def state(self) -> tuple[object, ...]:
        bandit = self.bandits[0, 0]
        tally = bandit.tally
        counted = (tally.votes.sum(), tally.handed_out.sum(), tally.reports.sum(), tally.return_sums.sum(), tally.env_frames)
        return (bandit.ensemble, counted, self.window.num_entries, tuple(map(repr, self.window.remembered())))


def game(episode_id: int, **changes: Any) -> FinishedEpisode:
    fields = {"task_id": 0, "environment_slot": 0, "inverse_temperature": 5.0, "episode_return": 2.0, "agent_steps": 10, "reused": False}
    return FinishedEpisode(episode_id=episode_id, **(fields | changes))


def framed(message: Message, *payloads: bytes) -> list[bytes]:
    return [*map(bytes, encode(message)), *payloads]


def request(request_id: int, *finished: FinishedEpisode, **changes: Any) -> list[bytes]:
    fields: dict[str, Any] = {"run_id": "run", "contract": "contract", "agent": 0, "incarnation": 7, "purpose": "training"}
    fields["starting"] = (StartingEpisode(task_id=0, environment_slot=0, episode_id=request_id),)
    return framed(ExchangeTemperatures(request_id=request_id, finished=finished, **(fields | changes)))


VALID = [
    request(1, game(0)),
    request(1, game(0)),
    request(2, game(1), game(2, environment_slot=2**40)),
    request(3, game(3, episode_return=float("nan")), game(4, inverse_temperature=float("inf")), game(5, task_id=2**50)),
    request(4, game(2**63 - 1, episode_return=-1e100, agent_steps=2**63 - 1, inverse_temperature=0.0)),
    request(2**63 - 1, incarnation=2**63 - 1),
    request(1, purpose="evaluation"),
    request(9, run_id="another"),
    request(9, contract="another"),
    request(9, agent=1),
    framed(Ack(sequence=1, granted_unrolls=1)),
    [*request(5), b"a payload"],
]


@settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(messages=st.lists(mutated_frames(VALID), min_size=1, max_size=6))
def test_whatever_is_refused_changes_nothing(messages: list[list[bytes]]) -> None:
    service = Service()
    accepted = 0
    for frames in messages:
        before = service.state()
        answer: Answer | None = None
        try:
            answer = service.receive(frames)
        except MalformedMessage as malformed:
            assert malformed.reason.isprintable()  # noqa: PT017  what is not raised is looked at below
        if answer is None or answer.outcome in ("late", "evaluation", "refused"):
            assert service.state() == before
        if answer is not None and answer.message is not None:
            told = decode_header(bytes(encode(answer.message)[0]))
            assert isinstance(told, Refused | Temperatures)
        accepted += answer.reports["accepted"] if answer is not None else 0
        bandit = service.bandits[0, 0]
        assert bandit.tally.episodes == accepted
        assert np.isfinite(bandit.evaluation).all()
        # One request may tell of more than that, but then it is alone.
        assert service.window.num_entries <= MAX_ENTRIES or len(service.window) == 1
