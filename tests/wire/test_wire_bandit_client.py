"""The actor's side of the bandit exchange against a tiny service in its own thread, over loopback."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import numpy as np
import pytest

from herd.protocols.bandit.client import BanditClient
from herd.protocols.bandit.messages import BANDIT, MAX_GAMES, ExchangeTemperatures, FinishedEpisode, HandedTemperature, Temperatures
from herd.protocols.unrolls.messages import MAX_EPISODES
from herd.rpc.codec import encode
from herd.rpc.envelope import MAX_HEADER_BYTES, Message, Refused
from herd.transport import Limits
from herd.transport.context import Context, Poller

DEADLINE_SECONDS = 20.0
FIRST_SLOT = 64


class Service(threading.Thread):
    """Sends 1.5, 2.5, 3.5, ... in the order of requests. Clearing ``answers`` holds answers back, and ``refusal`` refuses."""

    def __init__(self, endpoint: str = "tcp://127.0.0.1:*") -> None:
        super().__init__()
        self.seen: list[ExchangeTemperatures] = []
        self.raw: list[bytes] = []
        self.answers = threading.Event()
        self.answers.set()
        self.refusal: str | None = None
        self.forgets_slot: int | None = None
        self.garbage_first = False
        self._next = 1.5
        self._stop_request = threading.Event()
        self._bind = endpoint
        self._bound = threading.Event()
        self.endpoint = ""
        self.start()
        assert self._bound.wait(DEADLINE_SECONDS)

    def run(self) -> None:
        with Context() as context, context.server(self._bind, Limits(max_frame_bytes=MAX_HEADER_BYTES)) as router:
            self.endpoint = router.endpoint
            self._bound.set()
            poller = Poller(router)
            while not self._stop_request.is_set():
                poller.poll(0.02)
                while (received := router.receive()) is not None:
                    peer, frames = received
                    message = BANDIT.decode(frames[0])
                    assert isinstance(message, ExchangeTemperatures)
                    self.raw.append(bytes(frames[0]))
                    self.seen.append(message)
                    if self.answers.is_set():
                        if self.garbage_first:
                            router.send(peer, [b"\x81garbage"])
                        router.send(peer, encode(self.answer(message)))

    def answer(self, message: ExchangeTemperatures) -> Message:
        if self.refusal is not None:
            return Refused(id=message.id, reason=self.refusal)
        handed = []
        for episode in message.starting:
            if episode.environment_slot != self.forgets_slot:
                handed.append(
                    HandedTemperature(
                        environment_slot=episode.environment_slot, episode_id=episode.episode_id, inverse_temperature=self._next
                    )
                )
                self._next += 1.0
        return Temperatures(id=message.id, handed=tuple(handed))

    def stop(self) -> None:
        self._stop_request.set()
        self.join(DEADLINE_SECONDS)


@pytest.fixture
def service() -> Iterator[Service]:
    made = Service()
    yield made
    made.stop()


Make = Callable[..., BanditClient]


@pytest.fixture
def make(service: Service, context: Context) -> Iterator[Make]:
    made: list[BanditClient] = []

    def client(
        environments: int = 3, *, timeout_seconds: float = DEADLINE_SECONDS, endpoint: str | None = None, **more: Any
    ) -> BanditClient:
        made.append(
            BanditClient(
                context,
                endpoint or service.endpoint,
                run_id="run",
                contract="contract",
                task_ids=[index % 2 for index in range(environments)],
                timeout_seconds=timeout_seconds,
                first_slot=FIRST_SLOT,
                random=Random(0),
                **more,
            )
        )
        return made[-1]

    yield client
    for one in made:
        one.close()


def until(client: BanditClient, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "nothing happened"
        client.poll()
        time.sleep(0.005)


def finish(client: BanditClient, environment: int, episode_id: int, score: float = 7.0) -> FinishedEpisode | None:
    return client.finish(environment, episode_id=episode_id, episode_return=score, agent_steps=100)


def test_games_are_reported_with_the_temperature_they_were_played_at(service: Service, make: Make) -> None:
    client = make()
    assert client.inverse_temperatures.tolist() == [1.0, 1.0, 1.0]
    for environment in range(3):
        client.ask(environment, 0)
    client.begin([0, 1, 2])
    assert client.inverse_temperatures.tolist() == [1.5, 2.5, 3.5]
    assert client.inverse_temperatures.dtype == np.float32

    finish(client, 1, 0, score=-3.0)
    client.poll()
    assert client.inverse_temperatures[1] == 2.5  # until the next game begins
    client.begin([1])
    assert client.inverse_temperatures.tolist() == [1.5, 4.5, 3.5]
    first, second = service.seen
    assert [(one.task_id, one.environment_slot, one.episode_id) for one in first.starting] == [(0, 64, 0), (1, 65, 0), (0, 66, 0)]
    [report] = second.finished
    assert (report.task_id, report.environment_slot, report.episode_id) == (1, 65, 0)
    assert (report.inverse_temperature, report.episode_return, report.agent_steps, report.reused) == (2.5, -3.0, 100, False)
    assert [(one.environment_slot, one.episode_id) for one in second.starting] == [(65, 1)]
    assert (first.id, second.id) == (1, 2)
    assert (first.run, first.contract, first.purpose, first.agent) == ("run", "contract", "training", 0)
    assert first.client == second.client
    assert client.num_reused == 0
    assert client.is_idle


def test_one_request_is_in_flight_and_the_next_carries_the_backlog(service: Service, make: Make) -> None:
    client = make(4)
    service.answers.clear()
    client.ask(0, 0)
    until(client, lambda: len(service.seen) == 1)
    for environment in (1, 2, 3):
        finish(client, environment, 0)
    finish(client, 1, 1)  # a game of one step
    for _ in range(20):
        client.poll()
    assert (client.num_waiting, client.num_unconfirmed) == (7, 4)  # four reports and three requests
    service.answers.set()
    until(client, lambda: client.is_idle)  # the first one is answered when it is sent again
    *repeated, last = service.seen
    assert {one.id for one in repeated} == {1}
    assert [(one.environment_slot, one.episode_id) for one in last.finished] == [(65, 0), (66, 0), (67, 0), (65, 1)]
    assert {(one.environment_slot, one.episode_id) for one in last.starting} == {(66, 1), (67, 1), (65, 2)}


def test_an_outage_delays_the_client_once_for_a_bounded_time(service: Service, make: Make) -> None:
    client = make(timeout_seconds=0.3)
    client.ask(0, 0)
    client.begin([0])
    assert client.inverse_temperatures[0] == 1.5
    service.answers.clear()
    before = client.waited_seconds
    finish(client, 0, 0)
    client.begin([0])
    waited = client.waited_seconds - before
    assert waited >= 0.3
    assert client.inverse_temperatures[0] == 1.5  # the last temperature is used again
    assert (client.num_reused, client.is_silent) == (1, True)
    for game in range(1, 50):
        finish(client, 0, game)
        client.begin([0])
    assert client.waited_seconds - before == waited
    assert client.num_reused == 50

    service.answers.set()
    until(client, lambda: client.is_idle)
    assert not client.is_silent
    # The message is repeated byte for byte under its number, and every game is reported once.
    by_number: dict[int, set[bytes]] = {}
    for message, raw in zip(service.seen, service.raw, strict=True):
        by_number.setdefault(message.id, set()).add(raw)
    assert all(len(forms) == 1 for forms in by_number.values())
    unique = {message.id: message for message in service.seen}
    reports = [report for message in unique.values() for report in message.finished]
    assert [report.episode_id for report in reports] == list(range(50))
    assert [report.reused for report in reports] == [False] + [True] * 49
    assert {report.inverse_temperature for report in reports} == {1.5}
    # The next game gets a new temperature again.
    finish(client, 0, 50)
    client.begin([0])
    assert client.num_reused == 50
    assert client.inverse_temperatures[0] != 1.5


def test_a_late_temperature_is_not_used(service: Service, make: Make) -> None:
    client = make(timeout_seconds=0.05)
    service.answers.clear()
    client.ask(0, 0)
    until(client, lambda: len(service.seen) == 1)
    client.begin([0])
    service.answers.set()
    until(client, lambda: client.is_idle)
    assert client.inverse_temperatures[0] == 1.0
    assert client.num_reused == 1


def test_a_refusal_is_reported_and_not_waited_for(service: Service, make: Make) -> None:
    service.refusal = "another run"
    client = make()  # it would wait for 20 s
    client.ask(0, 0)
    until(client, lambda: client.refused is not None)
    assert client.refused == "another run"
    client.begin([0])
    assert client.waited_seconds < 10
    assert (client.num_reused, client.is_silent) == (1, True)
    service.refusal = None
    until(client, lambda: client.is_idle)
    assert client.refused is None


def test_a_game_missing_from_the_answer_starts_at_once(service: Service, make: Make) -> None:
    service.forgets_slot = FIRST_SLOT
    client = make()  # it would wait for 20 s
    client.ask(0, 0)
    client.ask(1, 0)
    client.begin([0, 1])
    assert client.waited_seconds < 10
    assert client.inverse_temperatures.tolist() == [1.0, 1.5, 1.0]
    assert (client.num_reused, client.is_silent) == (1, False)


def test_the_queue_of_reports_is_bounded(service: Service, make: Make) -> None:
    service.answers.clear()
    client = make(1, timeout_seconds=0.05)
    client.ask(0, 0)
    until(client, lambda: len(service.seen) == 1)
    dropped = [finish(client, 0, game) for game in range(MAX_EPISODES + 10)]
    assert dropped[:MAX_EPISODES] == [None] * MAX_EPISODES
    assert [one.episode_id for one in dropped[MAX_EPISODES:] if one is not None] == list(range(10))  # the oldest reports
    assert (client.num_dropped, client.num_waiting, client.num_unconfirmed) == (10, MAX_EPISODES + 1, MAX_EPISODES)
    service.answers.set()
    until(client, lambda: client.is_idle)
    requests = list({request.id: request.finished for request in service.seen if request.finished}.values())
    assert [len(finished) for finished in requests] == [MAX_GAMES] * (MAX_EPISODES // MAX_GAMES)
    assert [report.episode_id for finished in requests for report in finished] == list(range(10, MAX_EPISODES + 10))


def test_more_games_than_fit_one_request_all_get_temperatures(service: Service, make: Make) -> None:
    client = make(MAX_GAMES + 7)
    for environment in range(MAX_GAMES + 7):
        client.ask(environment, 0)
    client.begin(range(MAX_GAMES + 7))
    assert client.num_reused == 0
    assert [len(starting) for starting in {request.id: request.starting for request in service.seen}.values()] == [MAX_GAMES, 7]


def test_an_evaluation_requests_temperatures_and_reports_no_games(service: Service, make: Make) -> None:
    client = make(1, purpose="evaluation")
    client.ask(0, 0)
    client.begin([0])
    finish(client, 0, 0)
    client.begin([0])
    assert client.inverse_temperatures[0] == 2.5
    assert {message.purpose for message in service.seen} == {"evaluation"}
    assert [message.finished for message in service.seen] == [(), ()]


def test_drain_waits_for_the_last_reports(service: Service, make: Make) -> None:
    client = make(1)
    client.ask(0, 0)
    client.begin([0])
    finish(client, 0, 0)
    assert client.drain(DEADLINE_SECONDS)
    assert [report.episode_id for report in service.seen[-1].finished] == [0]
    assert service.seen[-1].starting == ()  # this game will not be played
    service.answers.clear()
    finish(client, 0, 1)
    assert not client.drain(0.05)
