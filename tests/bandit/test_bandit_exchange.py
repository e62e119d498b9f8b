"""Every rule of the bandit exchange, tested without a socket."""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest
from herd_bandit.exchange import MAX_ENTRIES, MAX_SLOTS, Answer, ClientGames, ExchangeHandler, Window, new_window
from herd_bandit.task_bandit import TaskBandits, draw_generator, new_bandits

from herd.config.services import BanditSettings
from herd.protocols.bandit.messages import BANDIT, ExchangeTemperatures, FinishedEpisode, StartingEpisode, Temperatures
from herd.rpc.codec import MalformedMessage
from herd.rpc.envelope import Message
from herd.rpc.serving import ServedRun
from tests.asking import ask

TASKS = ("breakout", "pong")


class Service:
    """The handler and the state of one bandit process."""

    def __init__(
        self, settings: BanditSettings | None = None, window: Window | None = None, *, learns: bool = True, agents: int = 1
    ) -> None:
        self.settings, self.agents = settings or BanditSettings(), agents
        self.bandits: TaskBandits = new_bandits(self.settings, TASKS, seed=1, num_agents=agents)
        self.window = window or new_window()
        self.handler = ExchangeHandler(
            self.settings,
            action_repeat=4,
            bandits=self.bandits,
            window=self.window,
            generator=draw_generator(self.bandits, seed=1),
            learns=learns,
        )

    def ask(self, message: Message, *payloads: bytes) -> Answer:
        run = ServedRun("actor.bandit", "run", "contract", range(self.agents))
        return ask(BANDIT, run, self.handler.answer, message, *payloads, refused=lambda reply: Answer(reply.message, label=reply.label))

    def counts(self, task_id: int = 0, agent: int = 0) -> int:
        return int(self.bandits[agent, task_id].ensemble.counts.sum())


def finished(
    episode_id: int = 0, *, slot: int = 0, task_id: int = 0, inverse: float = 1.0, score: float = 5.0, reused: bool = False
) -> FinishedEpisode:
    return FinishedEpisode(
        task_id=task_id,
        environment_slot=slot,
        episode_id=episode_id,
        inverse_temperature=inverse,
        episode_return=score,
        agent_steps=100,
        reused=reused,
    )


def starting(episode_id: int = 1, *, slot: int = 0, task_id: int = 0) -> StartingEpisode:
    return StartingEpisode(task_id=task_id, environment_slot=slot, episode_id=episode_id)


def request(
    request_id: int = 1, *reports: FinishedEpisode, ask: tuple[StartingEpisode, ...] = (), **changes: object
) -> ExchangeTemperatures:
    fields = {
        "id": request_id,
        "run": "run",
        "contract": "contract",
        "agent": 0,
        "client": "77",
        "purpose": "training",
        "finished": reports,
        "starting": ask,
    }
    return ExchangeTemperatures.model_validate({**fields, **changes})


def handed(answer: Answer) -> dict[int, float]:
    assert isinstance(answer.message, Temperatures)
    return {one.environment_slot: one.inverse_temperature for one in answer.message.handed}


def test_a_request_reports_returns_and_gets_temperatures() -> None:
    service = Service()
    answer = service.ask(request(1, finished(3, slot=9, task_id=1), ask=(starting(4, slot=9, task_id=1), starting(0, slot=2))))
    assert (answer.outcome, dict(answer.reports)) == ("new", {"accepted": 1})
    given = handed(answer)
    assert set(given) == {9, 2}
    assert all(0.0 <= value <= 50.0 and value == float(np.float32(value)) for value in given.values())
    assert [(bandit.task, value) for bandit, value in answer.handed_out] == [("pong", given[9]), ("breakout", given[2])]
    pong = service.bandits[0, 1]
    assert service.counts(1) == 1
    assert service.counts(0) == 0
    assert pong.ensemble.weights.any()
    assert (pong.tally.episodes, pong.tally.env_frames, pong.tally.return_sums.sum()) == (1, 400, 5.0)
    assert pong.tally.votes.sum() == 49
    assert pong.tally.handed_out[pong.ensemble.tiling.tile(math.log1p(given[9]))] == 1


def test_a_repeated_request_gets_the_same_answer_and_counts_once() -> None:
    service = Service()
    message = request(1, finished(0), finished(0, slot=1), ask=(starting(1), starting(1, slot=1)))
    first = service.ask(message)
    state = service.bandits[0, 0].ensemble
    again = service.ask(message)
    assert again.message == first.message
    assert (again.outcome, dict(again.reports), again.handed_out) == ("repeated", {"duplicate": 2}, [])
    assert service.bandits[0, 0].ensemble is state


def test_an_older_request_is_ignored() -> None:
    service = Service()
    service.ask(request(1, finished(0)))
    service.ask(request(2, finished(1)))
    answer = service.ask(request(1, finished(0), ask=(starting(1),)))
    assert (answer.outcome, answer.message, dict(answer.reports)) == ("late", None, {"late": 1})
    assert service.counts() == 2


def test_a_game_counts_once_in_any_number_of_requests() -> None:
    service = Service()
    service.ask(request(1, finished(4)))
    answer = service.ask(request(2, finished(4), finished(3), finished(5), finished(5)))
    assert dict(answer.reports) == {"duplicate": 2, "late": 1, "accepted": 1}
    assert service.counts() == 2
    # Another incarnation of the client reuses the numbers for other games.
    assert dict(service.ask(request(1, finished(4), client="78")).reports) == {"accepted": 1}


@pytest.mark.parametrize(
    ("report", "outcome"),
    [
        (finished(score=math.nan), "non_finite"),
        (finished(score=-math.inf), "non_finite"),
        (finished(score=1e101), "non_finite"),
        (finished(inverse=math.nan), "non_finite"),
        (finished(inverse=math.inf), "non_finite"),
        (finished(inverse=-0.1), "out_of_range"),
        (finished(inverse=50.1), "out_of_range"),
        (finished(task_id=2), "unknown"),
    ],
)
def test_an_invalid_report_does_not_affect_the_others(report: FinishedEpisode, outcome: str) -> None:
    service = Service()
    answer = service.ask(request(1, report, finished(0, slot=5), ask=(starting(1),)))
    assert dict(answer.reports) == {outcome: 1, "accepted": 1}
    assert service.counts() == 1
    assert np.isfinite(service.bandits[0, 0].ensemble.weights).all()
    assert set(handed(answer)) == {0}
    # A report of the same game with valid numbers is still accepted.
    assert dict(service.ask(request(2, finished(0))).reports) == {"accepted": 1}


def test_both_ends_of_the_temperature_range_are_accepted() -> None:
    service = Service()
    answer = service.ask(request(1, finished(0, inverse=0.0), finished(1, inverse=50.0), finished(2, inverse=float(np.float32(50.0)))))
    assert dict(answer.reports) == {"accepted": 3}
    assert np.flatnonzero(service.bandits[0, 0].ensemble.counts).tolist() == [0, 38]


def test_a_game_of_an_unknown_task_gets_no_temperature() -> None:
    service = Service()
    assert set(handed(service.ask(request(1, ask=(starting(slot=3, task_id=9), starting(slot=4)))))) == {4}


def test_reused_temperatures_are_counted_for_new_games_only() -> None:
    service = Service()
    answer = service.ask(request(1, finished(0, reused=True), finished(1), finished(1, reused=True)))
    assert (answer.num_reused, answer.reports["accepted"]) == (1, 2)


def test_the_random_ablation_counts_games_without_learning() -> None:
    service = Service(learns=False)
    before = service.bandits[0, 0].ensemble
    service.ask(request(1, *(finished(game, inverse=1.0) for game in range(50))))
    assert service.bandits[0, 0].ensemble is before
    assert service.bandits[0, 0].tally.episodes == 50


def test_every_agent_has_its_own_bandits() -> None:
    service = Service(agents=2)
    service.ask(request(1, finished(0), agent=1))
    assert (service.counts(agent=0), service.counts(agent=1)) == (0, 1)


def test_an_evaluation_must_not_report_games() -> None:
    service = Service()
    with pytest.raises(MalformedMessage) as caught:
        service.ask(request(1, finished(0), purpose="evaluation"))
    assert caught.value.label == "unexpected"
    assert service.counts() == 0


def test_an_evaluation_gets_the_best_region_and_changes_nothing() -> None:
    service = Service()
    for number in range(1, 200):
        inverse = [0.5, 5.0, 20.0][number % 3]
        service.ask(request(number, finished(number, inverse=inverse, score=10.0 if inverse == 5.0 else 1.0)))
    bandit = service.bandits[0, 0]
    before = (bandit.ensemble, bandit.tally.votes.sum(), bandit.tally.handed_out.sum(), len(service.window))
    for number in range(1, 20):
        answer = service.ask(request(1, ask=(starting(number),), purpose="evaluation", client="5"))
        assert answer.outcome == "evaluation"
        assert bandit.ensemble.tiling.tile(math.log1p(handed(answer)[0])) == bandit.ensemble.tiling.tile(math.log1p(5.0))
    assert (bandit.ensemble, bandit.tally.votes.sum(), bandit.tally.handed_out.sum(), len(service.window)) == before


def test_draws_after_a_restart_differ() -> None:
    def draws(service: Service) -> list[float]:
        return [handed(service.ask(request(number, ask=(starting(number),))))[0] for number in range(1, 6)]

    service = Service()
    first = draws(service)
    assert draws(Service()) == first  # the same seed gives the same draws
    generator = draw_generator(service.bandits, seed=1)
    assert service.bandits[0, 0].hand_out(service.settings, generator) != first[0]


def test_the_slots_of_one_client_are_bounded() -> None:
    games = ClientGames()
    for slot in range(3 * MAX_SLOTS):
        assert games.judge(slot, 0) == "accepted"
        assert games.judge(2**40, slot) == "accepted"  # a slot that plays on is not forgotten
    assert len(games.episodes) == MAX_SLOTS
    assert (games.judge(2**40, 0), games.judge(3 * MAX_SLOTS - 1, 0)) == ("late", "duplicate")


def test_a_full_window_stays_within_its_documented_memory() -> None:
    """5,000 actors of 32 environments would take 65 MB at most; here 500 clients of 99 slots, then with 32 temperatures each."""
    tracemalloc.start()
    window = new_window()
    for client in range(500):
        window.answered(str(2**62 + client), 1000, ClientGames({100 * client + slot + 1000: 2000 + client for slot in range(99)}))
    of_slots = tracemalloc.get_traced_memory()[0]
    assert window.num_entries == 500 * 100
    assert of_slots / window.num_entries * MAX_ENTRIES < 65e6
    for name, number in list(window.all()):
        games = window.reply(name)
        assert games is not None
        games.handed = tuple((1000 * number + slot, 1000, 0.5 + slot) for slot in range(32))
        window.answered(name, number + 1, games)
    of_answers = tracemalloc.get_traced_memory()[0] - of_slots
    assert window.num_entries == 500 * (100 + 2 * 32)
    assert of_answers / (500 * 2 * 32) * MAX_ENTRIES < 65e6
    tracemalloc.stop()
