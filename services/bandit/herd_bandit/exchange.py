"""Computes the bandit's answers, without I/O: a message goes in, and the answer and the numbers to count come out.

A repeated request gets the same answer and is counted once. A report is counted once, even if it comes in several requests.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from herd.protocols.bandit.messages import ExchangeTemperatures, HandedTemperature, Temperatures
from herd.rpc.codec import MalformedMessage
from herd.rpc.serving import Received, Reply

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy as np

    from herd.config.services import BanditSettings
    from herd.protocols.bandit.messages import FinishedEpisode
    from herd_bandit.population import TaskBandits
    from herd_bandit.task_bandit import TaskBandit
    from herd_bandit.window import RequestWindow

RequestOutcome = Literal["new", "repeated", "late", "evaluation"]
ReportOutcome = Literal["accepted", "duplicate", "late", "unknown", "non_finite", "out_of_range"]


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
        window: RequestWindow,
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
        novelty = self._window.novelty(client, request.id)
        answer = Answer(outcome=novelty)
        if novelty == "late":
            # Its client has received the answer, because it has sent newer requests since.
            answer.reports["late"] += len(request.finished)
            return answer
        if novelty == "repeated":
            answer.reports["duplicate"] += len(request.finished)
            known = self._window.answer(client)
            if known is not None:
                answer.message = _temperatures(request, known)
                return answer
        else:
            for episode in request.finished:
                self._count(request, episode, answer)
        # After a restart, a repeated request gets new temperatures. Reports are still counted once.
        handed = tuple(self._hand_out(request, answer))
        self._window.answered(client, request.id, handed)
        answer.message = _temperatures(request, handed)
        return answer

    def _count(self, request: ExchangeTemperatures, episode: FinishedEpisode, answer: Answer) -> None:
        bandit = self._bandits.get((request.agent, episode.task_id))
        if bandit is None:
            answer.reports["unknown"] += 1
            return
        fault = bandit.fault(episode.inverse_temperature, episode.episode_return)
        if fault is not None:
            answer.reports[fault] += 1
            return
        novelty = self._window.count_episode(request.client or "", episode.environment_slot, episode.episode_id)
        if novelty != "new":
            answer.reports["duplicate" if novelty == "repeated" else "late"] += 1
            return
        env_frames = episode.agent_steps * self._action_repeat
        bandit.count(episode.inverse_temperature, episode.episode_return, env_frames, learn=self._learns, slot=episode.environment_slot)
        answer.reports["accepted"] += 1
        answer.num_reused += episode.reused

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
