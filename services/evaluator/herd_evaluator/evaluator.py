"""The evaluator process: one thread that waits for weights, plays them and writes a point, for all agents of the run in turn."""

from __future__ import annotations

import time
from contextlib import ExitStack, closing, suppress
from typing import TYPE_CHECKING

import torch

from herd.agent import build_agent
from herd.evaluation.play import drawn_from
from herd.evaluation.protocols import EvaluationError, protocol_named
from herd.evaluation.trained_run import best_temperatures, load_trained_run
from herd.files import FileError, read_record
from herd.run.checkpoints import CheckpointError
from herd.run.paths import planned_agent_directories
from herd.run.tensors import decode_weights
from herd.service.process import ServiceProcess
from herd.service.startup import BadInputError
from herd.telemetry.logs import warn_limited
from herd_evaluator.evaluation import Evaluation, Frozen, StoppedError
from herd_evaluator.results import Meters, PointsFile

if TYPE_CHECKING:
    from pathlib import Path

    from herd.config.run import RunSettings
    from herd.protocols.weights.client import Version, WeightsClient, WeightsFrame
    from herd.service.identity import Identity
    from herd.service.signals import StopRequest

WAIT_SECONDS = 0.2
"""Longest wait between evaluations, so that a signal is noticed."""


def run(settings: RunSettings, identity: Identity, stop: StopRequest) -> None:
    """Evaluate every ``evaluation.interval_seconds`` until the signal. Without an interval, evaluate the newest checkpoints once.

    Raises:
        BadInputError: a task is unknown, the protocol does not fit the games, there is no checkpoint, or the metrics port is in use.

    """
    if stop:
        return  # the request came while torch was imported: nothing was started
    torch.set_num_threads(1)
    played = _as_played(settings)
    with ServiceProcess("evaluator", settings, identity) as process:
        evaluator = Evaluator(process, played, stop)
        process.serve_metrics()
        process.announce("evaluator started", protocol=settings.evaluation.protocol)
        with suppress(StoppedError):
            if settings.evaluation.interval_seconds is None:
                evaluator.evaluate_checkpoints()
            else:
                evaluator.follow(settings.evaluation.interval_seconds)
        process.telemetry.set_ready(False, "stopping")
        process.log.info("stopped")


class Evaluator:
    """Evaluates the versions of all agents, one after the other."""

    def __init__(self, process: ServiceProcess, played: RunSettings, stop: StopRequest) -> None:
        """``played``: the run's settings, with ``env`` as in the played games."""
        self._process = process
        self._settings = process.settings
        self._stop = stop
        self._meters = Meters(process.telemetry)
        self._files = [PointsFile(directory, self._meters.file_failed) for directory in planned_agent_directories(self._settings)]
        self._evaluations = [Evaluation(process, played, agent, meters=self._meters, stop=stop) for agent in range(self._settings.agents)]

    def follow(self, interval_seconds: float) -> None:
        """Evaluate the newest version of each agent every ``interval_seconds``; returns at the signal."""
        settings, process = self._settings, self._process
        agent = build_agent(settings, process.spec)
        with ExitStack() as sockets:
            clients = [sockets.enter_context(closing(process.weights_client(number))) for number in range(settings.agents)]
            self._meters.watch_bytes([client.socket for client in clients])
            versions = [file.newest_version for file in self._files]
            due = [time.monotonic()] * len(clients)
            while not self._stop:
                for number, client in enumerate(clients):
                    if (began := time.monotonic()) < due[number]:
                        continue
                    frame = self._newest(client, versions[number])
                    if frame is None and (client.pending or client.held is None):
                        continue  # no answer, or this agent has no weights yet: asked again in the next round
                    due[number] = began + interval_seconds
                    self._process.telemetry.set_ready(True)
                    if frame is None:
                        continue
                    self._process.telemetry.set_weights_version(*frame.version)
                    try:
                        # Frozen: later versions are for the next evaluation.
                        self._evaluate(number, Frozen(agent, decode_weights(*frame.slices), *frame.version))
                        versions[number] = frame.version
                    except CheckpointError as error:
                        warn_limited("weights unusable", "dropped weights that cannot be used", reason=str(error))
                    except EvaluationError as error:
                        warn_limited("not evaluated", "these weights have no score", reason=str(error))
                self._rest(min(due))

    def evaluate_checkpoints(self) -> None:
        """Evaluate each agent's newest checkpoint, unless it has already been evaluated.

        Raises:
            BadInputError: there is no checkpoint, or no game ends.

        """
        for number, (directory, file) in enumerate(zip(planned_agent_directories(self._settings), self._files, strict=True)):
            try:
                trained = load_trained_run(directory)
                ranges = best_temperatures(directory, trained)
                version = (_lineage(directory), trained.learner_updates)
                if version != file.newest_version:
                    temperatures = drawn_from(ranges, seed=self._settings.seed)
                    self._evaluate(number, Frozen(trained.agent, trained.agent.state_dict(), *version, temperatures))
            except EvaluationError as error:
                raise BadInputError(str(error)) from error

    def _evaluate(self, number: int, frozen: Frozen) -> None:
        point = self._evaluations[number].of(frozen)
        self._files[number].add(point)
        self._process.log.info("evaluated", agent=number, updates=frozen.updates, seconds=point["seconds"], scores=point["tasks"])

    def _newest(self, client: WeightsClient, have: Version | None) -> WeightsFrame | None:
        """Return newer weights from the server, or None if none arrive within ``WAIT_SECONDS``.

        Raises:
            StoppedError: the process was asked to stop.

        """
        self._look_up()
        client.request(have)
        if client.refused is not None:
            warn_limited("weights refused", "the parameter server refuses this evaluator", reason=client.refused)
        return client.poll(WAIT_SECONDS)

    def _rest(self, until: float) -> None:
        while not self._stop and (left := until - time.monotonic()) > 0:
            self._look_up()
            time.sleep(min(left, WAIT_SECONDS))

    def _look_up(self) -> None:
        self._process.telemetry.beat()
        if self._stop:
            raise StoppedError


def _lineage(directory: Path) -> int:
    """Return the lineage of the newest checkpoint in ``directory``, as its learner recorded it; 0 if there is no record.

    Raises:
        BadInputError: the record is damaged.

    """
    try:
        return read_record(directory / "lineage.json", "a lineage", lambda said: int(said["lineage"]))
    except FileNotFoundError:
        return 0
    except FileError as error:
        raise BadInputError(str(error)) from error


def _as_played(settings: RunSettings) -> RunSettings:
    name = settings.evaluation.protocol
    if name is None:
        return settings
    try:
        protocol = protocol_named(name)
        if (objection := protocol.objection(settings.env)) is not None:
            raise BadInputError(f"evaluation.protocol: {objection}")
        return settings.model_copy(update={"env": protocol.applied(settings.env)})
    except EvaluationError as error:
        raise BadInputError(f"evaluation.protocol: {error}") from error
