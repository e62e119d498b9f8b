"""Computes the bandit's answers, without I/O: a message goes in, and the answer and the numbers to count come out.

A repeated request gets the same answer and is counted once. A report is counted once, even if it comes in several requests.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from herd.protocols.bandit.messages import ExchangeTemperatures, HandedTemperature, Temperatures
from herd.rpc.codec import MalformedMessage
from herd.rpc.envelope import Refused
from herd.rpc.served_run import ServedRun

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy as np

    from herd.config.services import BanditSettings
    from herd.protocols.bandit.messages import FinishedEpisode
    from herd.rpc.envelope import Message
    from herd_bandit.population import TaskBandits
    from herd_bandit.task_bandit import TaskBandit
    from herd_bandit.window import RequestWindow

RequestOutcome = Literal["new", "repeated", "late", "evaluation", "refused"]
ReportOutcome = Literal["accepted", "duplicate", "late", "unknown", "non_finite", "out_of_range"]


@dataclass(slots=True)
class Answer:
    """The result of one request."""

    outcome: RequestOutcome
    message: Temperatures | Refused | None = None
    """Answer for the client; None if it does not wait for one."""
    reports: Counter[ReportOutcome] = field(default_factory=Counter)
    num_reused: int = 0
    """Number of accepted reports of games that reused the last temperature because no answer had arrived."""
    handed_out: list[tuple[TaskBandit, float]] = field(default_factory=list)
    """Number of inverse temperatures drawn for training."""


class ExchangeHandler:
    """Serves one run. A client of another run or contract is refused with a reason."""

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
        """``learns`` False: count returns but do not change the ensembles, as in the ablation ``random`` of Table 4."""
        self._settings = settings
        self._learns = learns
        self._run = ServedRun("bandit", "--bandit", run_id, contract, num_agents)
        self._action_repeat = action_repeat
        self._bandits = bandits
        self._window = window
        self._generator = generator

    def answer(self, message: Message, *, num_payloads: int) -> Answer:
        """Answer one request.

        Raises:
            MalformedMessage: the message is not a valid bandit request; nothing has changed.

        """
        if num_payloads:
            raise MalformedMessage(f"{message.type} with {num_payloads} payload frames", "array")
        if not isinstance(message, ExchangeTemperatures):
            raise MalformedMessage(f"{message.type} is not a bandit request", "unexpected")
        if message.purpose == "evaluation" and message.finished:
            raise MalformedMessage("an evaluation must not report games", "unexpected")
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
            # Its client has received the answer, because it has sent newer requests since.
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
        # After a restart, a repeated request gets new temperatures. Reports are still counted once.
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
        request_id=request.request_id,
        handed=tuple(
            HandedTemperature(environment_slot=slot, episode_id=episode_id, inverse_temperature=inverse_temperature)
            for slot, episode_id, inverse_temperature in handed
        ),
    )
