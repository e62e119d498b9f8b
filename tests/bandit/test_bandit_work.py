"""The bandit's work is proportional to the reported games, and a request is limited to a few, so no client delays the others."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from herd_bandit.exchange import ClientGames, new_window

from herd.protocols.bandit.messages import BANDIT, MAX_GAMES, ExchangeTemperatures
from herd.rpc.codec import MalformedMessage, encode
from tests.bandit.test_bandit_exchange import Service, finished, request, starting
from tests.operations import assert_linear


@pytest.mark.parametrize("same_slot", [False, True])
def test_work_is_linear_in_the_number_of_games(same_slot: bool) -> None:
    def prepare(size: int) -> Callable[[], object]:
        service = Service(window=new_window(max_entries=10 * size))
        games = [finished(number, slot=0 if same_slot else number) for number in range(size)]
        frame = encode(request(1, *games, ask=tuple(starting(slot=number) for number in range(size))))[0]
        return lambda: service.ask(BANDIT.decode(frame))

    assert_linear(prepare, 32, 64, 128, 256)


def test_work_is_linear_in_the_number_of_clients() -> None:
    def prepare(size: int) -> Callable[[], object]:
        def come() -> None:
            window = new_window(max_entries=100)
            for incarnation in range(size):
                window.answered(str(incarnation), 1, ClientGames({0: 1}, ((0, 1, 1.0),)))

        return come

    assert_linear(prepare, 256, 512, 1024)


def test_the_number_of_games_in_a_request_is_limited() -> None:
    most = request(1, *(finished(number) for number in range(MAX_GAMES)))
    assert BANDIT.decode(encode(most)[0]) == most
    message = ExchangeTemperatures.model_construct(**{**dict(most), "finished": (*most.finished, finished(MAX_GAMES))})
    with pytest.raises(MalformedMessage, match="finished"):
        BANDIT.decode(encode(message)[0])
