"""What the bandit answers. No I/O: a message in, what to send out and what to count.

A request sent again is answered as before and counted once; a report counts once whatever request it came in.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from herd.wire.codec import MalformedMessage
from herd.wire.messages import ExchangeTemperatures, HandedTemperature, Refused, Temperatures
from herd.wire.served_run import ServedRun

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy as np

    from herd.config.settings import BanditSettings
    from herd.wire.messages import FinishedEpisode, Message
    from herd_bandit.population import TaskBandits
    from herd_bandit.task_bandit import TaskBandit
    from herd_bandit.window import RequestWindow

RequestOutcome = Literal["new", "repeated", "late", "evaluation", "refused"]
ReportOutcome = Literal["accepted", "duplicate", "late", "unknown", "non_finite", "out_of_range"]


@dataclass(slots=True)
class Answer:
    """What one request brought about."""

    outcome: RequestOutcome
    message: Temperatures | Refused | None = None
    """To the client; None where it does not wait for any."""
    reports: Counter[ReportOutcome] = field(default_factory=Counter)
    num_reused: int = 0
    """Accepted reports of games that were played under the last temperature for want of an answer."""
    handed_out: list[tuple[TaskBandit, float]] = field(default_factory=list)
    """Inverse temperatures drawn for training."""


class ExchangeHandler:
    """Serves one run; a client of another run or contract is refused with a reason."""

    def __init__(
        self,
        settings: BanditSettings,
        *,
        run_id: str,
        contract: str,
        action_repeat: int,
        bandits: TaskBandits,
        window: RequestWindow,
        generator: np.random.Generator,
        learns: bool = True,
        num_agents: int = 1,
    ) -> None:
        """``learns`` False counts returns and leaves the ensembles as they are: the ablation ``random`` of Table 4."""
        self._settings = settings
        self._learns = learns
        self._run = ServedRun("bandit", "actor.bandit", run_id, contract, num_agents)
        self._action_repeat = action_repeat
        self._bandits = bandits
        self._window = window
        self._generator = generator

    def answer(self, message: Message, *, num_payloads: int) -> Answer:
        """Answer one request.

        Raises:
            MalformedMessage: not a request to a bandit; nothing changed.

        """
        if num_payloads:
            raise MalformedMessage(f"{message.type} with {num_payloads} payload frames", "array")
        if not isinstance(message, ExchangeTemperatures):
            raise MalformedMessage(f"{message.type} is no request to a bandit", "unexpected")
        if message.purpose == "evaluation" and message.finished:
            raise MalformedMessage("an evaluation reports no games", "unexpected")
        mismatch = self._run.mismatch(message.run_id, message.agent, message.contract)
        if mismatch is not None:
            return Answer("refused", Refused(request_id=message.request_id, reason=mismatch[1]))
        if message.purpose == "evaluation":
            return Answer("evaluation", self._evaluate(message))
        return self._train(message)

    def _train(self, request: ExchangeTemperatures) -> Answer:
        novelty = self._window.novelty(request.incarnation, request.request_id)
        answer = Answer(novelty)
        if novelty == "late":
            # Its client has had the answer, or it could not have asked anything since.
            answer.reports["late"] += len(request.finished)
            return answer
        if novelty == "repeated":
            answer.reports["duplicate"] += len(request.finished)
            known = self._window.answer(request.incarnation)
            if known is not None:
                answer.message = _temperatures(request, known)
                return answer
        else:
            for episode in request.finished:
                self._count(request, episode, answer)
        # A repeated request whose answer a restart has forgotten is drawn again: reports count once, temperatures may.
        handed = tuple(self._hand_out(request, answer))
        self._window.answered(request.incarnation, request.request_id, handed)
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
        novelty = self._window.count_episode(request.incarnation, episode.environment_slot, episode.episode_id)
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
            if bandit is not None:  # else the client sees that it is not among those answered
                inverse_temperature = bandit.hand_out(self._settings, self._generator, episode.environment_slot)
                answer.handed_out.append((bandit, inverse_temperature))
                yield episode.environment_slot, episode.episode_id, inverse_temperature

    def _evaluate(self, request: ExchangeTemperatures) -> Temperatures:
        """Draw from the best-valued tiles. It changes nothing, so nothing need be remembered."""
        known = [(episode, self._bandits.get((request.agent, episode.task_id))) for episode in request.starting]
        drawn = [
            (episode.environment_slot, episode.episode_id, bandit.hand_out_best(self._generator))
            for episode, bandit in known
            if bandit is not None
        ]
        return _temperatures(request, drawn)


def _temperatures(request: ExchangeTemperatures, handed: Iterable[tuple[int, int, float]]) -> Temperatures:
    return Temperatures(
        request_id=request.request_id,
        handed=tuple(
            HandedTemperature(environment_slot=slot, episode_id=episode_id, inverse_temperature=inverse_temperature)
            for slot, episode_id, inverse_temperature in handed
        ),
    )
