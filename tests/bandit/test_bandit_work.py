"""The bandit does work in proportion to the games it is told of, and one request holds few: nobody's makes the others wait."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from herd_bandit.window import RequestWindow

from herd.wire.codec import MalformedMessage, decode_header
from herd.wire.messages import MAX_GAMES, ExchangeTemperatures, StartingEpisode
from tests.bandit.test_hostile_exchange import Service, framed, game, request
from tests.operations import assert_linear


@pytest.mark.parametrize("same_slot", [False, True])
def test_games_that_end_and_begin(same_slot: bool) -> None:
    def prepare(size: int) -> Callable[[], object]:
        service = Service()
        service.window._max_entries = 10 * size
        finished = [game(number, environment_slot=0 if same_slot else number) for number in range(size)]
        starting = tuple(StartingEpisode(task_id=0, environment_slot=number, episode_id=1) for number in range(size))
        frames = request(1, *finished, starting=starting)
        return lambda: service.receive(frames)

    assert_linear(prepare, 32, 64, 128, 256)


def test_clients_that_come_and_are_forgotten() -> None:
    def prepare(size: int) -> Callable[[], object]:
        def come() -> None:
            window = RequestWindow(max_entries=100)
            for incarnation in range(size):
                window.count_episode(incarnation, 0, 1)
                window.answered(incarnation, 1, ((0, 1, 1.0),))

        return come

    assert_linear(prepare, 256, 512, 1024)


def test_a_request_holds_few_games() -> None:
    service = Service()
    service.receive(request(1, *(game(number) for number in range(MAX_GAMES))))
    fields = {"run_id": "run", "contract": "contract", "agent": 0, "incarnation": 7, "purpose": "training"}
    games = tuple(game(number) for number in range(MAX_GAMES + 1))
    message = ExchangeTemperatures.model_construct(
        type="exchange_temperatures", request_id=2, finished=games, starting=(), **fields  # type: ignore[arg-type]
    )  # fmt: skip
    with pytest.raises(MalformedMessage, match="finished"):
        decode_header(framed(message)[0])
