"""Computes the bandit's answers, without I/O: a message goes in, and the answer and the numbers to count come out.

A repeated request gets the same answer and is counted once. A report is counted once, even if it comes in several requests: the games of
a client end in order within each environment slot, so only the last counted game of a slot must be remembered.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from herd.protocols.bandit.messages import ExchangeTemperatures, HandedTemperature, Temperatures
from herd.rpc.codec import MalformedMessage
from herd.rpc.serving import AtMostOnce, Received, Reply

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy as np

    from herd.config.services import BanditSettings
    from herd.protocols.bandit.messages import FinishedEpisode
    from herd_bandit.task_bandit import TaskBandit, TaskBandits

RequestOutcome = Literal["new", "repeated", "late", "evaluation"]
ReportOutcome = Literal["accepted", "duplicate", "late", "unknown", "non_finite", "out_of_range"]

MAX_ENTRIES = 500_000
"""An entry is a client, one of its environment slots, or half a temperature of its newest answer. It takes about 115 bytes, so the window
takes 58 MB when full. 5,000 actors of 32 environments need 485,000 entries at the start (answers for all games) and 175,000 later."""
MAX_SLOTS = 4096
"""Largest number of slots of a client, 128 times those of an actor. The slot without a finished game for the longest time is forgotten
first. Without this limit a client that invents slots could take unbounded memory, because the last client is never forgotten."""
Handed = tuple[tuple[int, int, float], ...]
"""An answer: (environment slot, episode, 1/tau) of each game. Many are stored; as messages they would take four times as much memory."""


@dataclass(slots=True)
class ClientGames:
    """What is remembered of one client, besides the number of its newest request."""

    episodes: dict[int, int] = field(default_factory=dict)
    """Environment slot -> number of its last counted game."""
    handed: Handed | None = None
    """The answer to its newest request; None after a restart, which does not preserve it."""

    def judge(self, slot: int, episode_id: int) -> Literal["accepted", "duplicate", "late"]:
        """Return whether a game can be counted: it is later than the last one of its slot, which it replaces then."""
        last = self.episodes.get(slot, -1)
        if episode_id <= last:
            return "duplicate" if episode_id == last else "late"
        self.episodes.pop(slot, None)  # to the end: heard last
        self.episodes[slot] = episode_id
        if len(self.episodes) > MAX_SLOTS:
            del self.episodes[next(iter(self.episodes))]
        return "accepted"


Window = AtMostOnce[ClientGames]
"""The newest request of each client, its answer, and the client's counted games."""


def new_window(max_entries: int = MAX_ENTRIES) -> Window:
    """Return an empty window that holds at most ``max_entries``."""
    return AtMostOnce(max_entries, entries_of=_entries_of)


def _entries_of(games: ClientGames | None) -> int:
    return 1 + (0 if games is None else len(games.episodes) + 2 * len(games.handed or ()))


@dataclass(slots=True)
class Answer(Reply):
    """The reply to one request, and what it counted."""

    outcome: RequestOutcome = "new"
    reports: Counter[ReportOutcome] = field(default_factory=Counter)
    num_reused: int = 0
    """Number of accepted reports of games that reused the last temperature because no answer had arrived."""
    handed_out: list[tuple[TaskBandit, float]] = field(default_factory=list)
    """Number of inverse temperatures drawn for training."""


class ExchangeHandler:
    """The handler of the bandit's requests."""

    def __init__(
        self,
        settings: BanditSettings,
        *,
        action_repeat: int,
        bandits: TaskBandits,
        window: Window,
        generator: np.random.Generator,
        learns: bool = True,
    ) -> None:
        """``learns`` False: count returns but do not change the ensembles, as in the ablation ``random`` of Table 4."""
        self._settings = settings
        self._learns = learns
        self._action_repeat = action_repeat
        self._bandits = bandits
        self._window = window
        self._generator = generator

    def answer(self, received: Received) -> Answer:
        """Answer one request.

        Raises:
            MalformedMessage: the message is not a valid bandit request; nothing has changed.

        """
        message = received.message
        assert isinstance(message, ExchangeTemperatures)
        if message.purpose == "evaluation" and message.finished:
            raise MalformedMessage("an evaluation must not report games", "unexpected")
        if message.purpose == "evaluation":
            return Answer(self._evaluate(message), outcome="evaluation")
        return self._train(message)

    def _train(self, request: ExchangeTemperatures) -> Answer:
        client = request.client or ""
        games = self._window.reply(client) or ClientGames()
        answer = Answer(outcome="late")
        match self._window.judge(client, request.id):
            case "new":
                answer.outcome = "new"
                for episode in request.finished:
                    answer.reports[self._count(request, episode, games, answer)] += 1
            case "repeated":
                answer.outcome = "repeated"
                answer.reports["duplicate"] += len(request.finished)
                if games.handed is not None:
                    answer.message = _temperatures(request, games.handed)
                    return answer
            case _:
                # Its client has received the answer, because it has sent newer requests since.
                answer.reports["late"] += len(request.finished)
                return answer
        # After a restart, a repeated request gets new temperatures. Reports are still counted once.
        games.handed = tuple(self._hand_out(request, answer))
        self._window.answered(client, request.id, games)
        answer.message = _temperatures(request, games.handed)
        return answer

    def _count(self, request: ExchangeTemperatures, episode: FinishedEpisode, games: ClientGames, answer: Answer) -> ReportOutcome:
        bandit = self._bandits.get((request.agent, episode.task_id))
        if bandit is None:
            return "unknown"
        fault = bandit.fault(episode.inverse_temperature, episode.episode_return)
        if fault is not None:
            return fault
        outcome = games.judge(episode.environment_slot, episode.episode_id)
        if outcome == "accepted":
            env_frames = episode.agent_steps * self._action_repeat
            bandit.count(episode.inverse_temperature, episode.episode_return, env_frames, learn=self._learns, slot=episode.environment_slot)
            answer.num_reused += episode.reused
        return outcome

    def _hand_out(self, request: ExchangeTemperatures, answer: Answer) -> Iterator[tuple[int, int, float]]:
        for episode in request.starting:
            bandit = self._bandits.get((request.agent, episode.task_id))
            if bandit is not None:  # otherwise the client sees that it is missing in the answer
                inverse_temperature = bandit.hand_out(self._settings, self._generator, episode.environment_slot)
                answer.handed_out.append((bandit, inverse_temperature))
                yield episode.environment_slot, episode.episode_id, inverse_temperature

    def _evaluate(self, request: ExchangeTemperatures) -> Temperatures:
        """Draw from the best tiles. This changes no state."""
        known = [(episode, self._bandits.get((request.agent, episode.task_id))) for episode in request.starting]
        drawn = [
            (episode.environment_slot, episode.episode_id, bandit.hand_out_best(self._generator))
            for episode, bandit in known
            if bandit is not None
        ]
        return _temperatures(request, drawn)


def _temperatures(request: ExchangeTemperatures, handed: Iterable[tuple[int, int, float]]) -> Temperatures:
    return Temperatures(
        id=request.id,
        handed=tuple(
            HandedTemperature(environment_slot=slot, episode_id=episode_id, inverse_temperature=inverse_temperature)
            for slot, episode_id, inverse_temperature in handed
        ),
    )
