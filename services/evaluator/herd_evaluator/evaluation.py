"""Plays a version of an agent for whole games of every task, chosen in advance, and returns a point for the learning curve."""

from __future__ import annotations

import math
import time
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from herd.acting.temperatures import ServedTemperatures, Temperatures
from herd.evaluation.play import play_tasks
from herd.evaluation.report import TaskScore, summarise_tasks, task_result
from herd.protocols.bandit.client import BanditClient
from herd.run.tensors import load_into

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from herd.agent import Agent
    from herd.components.suites.api import FinishedGame
    from herd.config.run import RunSettings
    from herd.evaluation.play import TemperaturesOf
    from herd.evaluation.report import TaskResult
    from herd.service.process import ServiceProcess
    from herd.service.signals import StopRequest
    from herd.transport.context import Context
    from herd_evaluator.results import Meters


class StoppedError(Exception):
    """The process was asked to stop; the evaluation under way is abandoned."""


@dataclass(frozen=True, slots=True)
class Frozen:
    """Weights that do not change while they are played."""

    agent: Agent
    """The network, into which the weights are copied when they are played."""
    tensors: Mapping[str, Tensor]
    lineage: int
    updates: int
    temperatures: TemperaturesOf | None = None
    """Temperatures of DiCE's games; None: ask the run's bandit."""


class Evaluation:
    """Plays the versions of one agent."""

    def __init__(self, process: ServiceProcess, played: RunSettings, agent: int, *, meters: Meters, stop: StopRequest) -> None:
        self._process = process
        self._played = played
        self._agent = agent
        self._meters = meters
        self._stop = stop
        self._names = process.spec.task_names

    def of(self, frozen: Frozen) -> dict[str, Any]:
        """Play, and return the point.

        Raises:
            CheckpointError: the weights belong to another network.
            StoppedError: the process was asked to stop.

        """
        began = time.monotonic()
        settings = self._played
        load_into(frozen.agent, frozen.tensors)
        with ExitStack() as sockets:
            games = play_tasks(
                frozen.agent,
                settings,
                settings.evaluation.episodes,
                seed=settings.seed,
                temperatures=frozen.temperatures or (lambda task_ids: self._served(task_ids, sockets)),
                on_progress=self._meters.playing,
                while_playing=self._while_playing,
            )
        suite = settings.env.suite
        tasks = []
        for task_id, name in enumerate(self._names):
            returns = np.array([game.episode_return for game in games if game.task_id == task_id])
            tasks.append(task_result(name, [TaskScore(returns, len(returns))], suite=suite, seed=settings.seed))
        summary = summarise_tasks(tasks, suite=suite, seed=settings.seed) or {}
        seconds = time.monotonic() - began
        aggregates = {name: estimate.score for name, estimate in summary.items() if math.isfinite(estimate.score)}
        self._meters.evaluated(self._agent, frozen.updates, {task.task_name: task.mean for task in tasks}, aggregates)
        return {
            "lineage": frozen.lineage,
            "learner_updates": frozen.updates,
            "protocol": settings.evaluation.protocol,
            "seconds": round(seconds, 1),
            "tasks": {task.task_name: _score(task) for task in tasks},
            "human_normalised": aggregates or None,
        }

    def _while_playing(self) -> None:
        self._process.telemetry.beat()
        if self._stop:
            raise StoppedError

    def _served(self, task_ids: NDArray[np.int32], sockets: ExitStack) -> Temperatures:
        if not self._played.loss.draws_temperatures:
            return Temperatures()
        process = self._process
        address = process.identity.address("bandit")
        context, settings, contract = process.context, process.settings, process.contract
        temperatures = BestTemperatures(context, settings, address, agent=self._agent, contract=contract, task_ids=task_ids)
        return sockets.enter_context(closing(temperatures))


class BestTemperatures(ServedTemperatures):
    """Requests a temperature for each game, and reports no returns, because evaluation must not influence learning."""

    def __init__(
        self, context: Context, settings: RunSettings, address: str, *, agent: int, contract: str, task_ids: NDArray[np.int32]
    ) -> None:
        """``address`` is the bandit's. ``task_ids``, [E]: the tasks by their numbers in the run."""
        client = BanditClient(
            context,
            address,
            run_id=settings.name,
            agent=agent,
            contract=contract,
            task_ids=task_ids.tolist(),
            timeout_seconds=settings.actor.bandit_timeout_seconds,
            purpose="evaluation",
        )
        super().__init__(client, len(task_ids))

    def finished(self, games: Sequence[FinishedGame], episode_ids: NDArray[np.int64]) -> None:
        """Request the temperatures of the next games."""
        for game in games:
            self._client.ask(game.environment, int(episode_ids[game.environment]) + 1)
        self._client.poll()

    def close(self) -> None:
        """Close at once."""
        self._client.close()


def _score(task: TaskResult) -> dict[str, Any]:
    return {
        "episodes": task.episodes,
        "mean": _finite(task.mean),
        "standard_error": _finite(task.standard_error),
        "human_normalised": _finite(task.human_normalised),
    }


def _finite(value: float | None) -> float | None:
    """Return the value if JSON can represent it, otherwise None."""
    return value if value is not None and math.isfinite(value) else None
