"""The content of one evaluation, and the evaluator process under updates, restores, kills and requests to stop."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from herd_evaluator.evaluation import BestTemperatures, Evaluation, Frozen, StoppedError
from herd_evaluator.results import Meters, PointsFile

from herd.agent import Agent, build_agent
from herd.components.suites import environment_spec
from herd.components.suites.api import FinishedGame
from herd.config.loading import dump_settings
from herd.config.run import RunSettings
from herd.evaluation.evaluate import evaluate_runs
from herd.protocols.weights.client import WeightsPublisher
from herd.run.checkpoints import CheckpointError
from herd.run.paths import agent_directory
from herd.run.tensors import encode_weights, save_checkpoint
from herd.telemetry.scrape import ScrapeError, scrape, total
from herd.telemetry.telemetry import Telemetry
from herd.transport.context import Context
from tests.server_process import ServerProcess, until

CATCH = {
    "env": {"suite": "catch", "tasks": ["catch", "catch_deceptive"], "frame_height": 6, "frame_width": 5},
    "network": {"torso": "mlp"},
    "actor": {"inference_precision": "float32"},
}


def settings_in(directory: Path, **evaluation: object) -> RunSettings:
    return RunSettings.model_validate({**CATCH, "name": "run", "run_dir": str(directory), "seed": 3, "evaluation": evaluation})


def decided(settings: RunSettings) -> Agent:
    """A network with confident but arbitrary actions; a fresh one is nearly uniform."""
    torch.manual_seed(5)
    agent = build_agent(settings, environment_spec(settings.env))
    with torch.no_grad():
        assert agent.policy_head is not None
        agent.policy_head.weight.mul_(300.0)
    return agent


def evaluation_of(settings: RunSettings, *, stop: object = False) -> tuple[Evaluation, Telemetry]:
    telemetry = Telemetry("evaluator", "run")
    process = SimpleNamespace(settings=settings, spec=environment_spec(settings.env), telemetry=telemetry)
    return Evaluation(process, settings, 0, meters=Meters(telemetry), stop=stop), telemetry  # type: ignore[arg-type]


def test_the_evaluator_and_herd_evaluate_give_the_same_score(tmp_path: Path) -> None:
    settings = settings_in(tmp_path, episodes=20)
    agent = decided(settings)
    (tmp_path / "config.yaml").write_text(dump_settings(settings))
    save_checkpoint(tmp_path / "checkpoints", 7, {"model": agent.state_dict()}, {"contract": "", "learner_updates": 7}, 1)
    other = build_agent(settings, environment_spec(settings.env))  # its weights do not matter: the frozen ones are copied into it
    evaluation, telemetry = evaluation_of(settings)
    point = evaluation.of(Frozen(other, agent.state_dict(), 4, 7))
    assert (point["lineage"], point["learner_updates"], point["protocol"], point["human_normalised"]) == (4, 7, None, None)
    said = evaluate_runs([tmp_path], episodes=20, seed=3)
    expected = {
        task.task_name: {"episodes": 20, "mean": task.mean, "standard_error": task.standard_error, "human_normalised": None}
        for task in said.tasks
    }
    assert point["tasks"] == expected
    exported = telemetry.exposition().decode()
    assert f'herd_evaluator_score{{agent="0",task="catch"}} {said.tasks[0].mean}' in exported
    assert "herd_evaluator_episodes_total 40.0" in exported
    assert 'herd_evaluator_evaluated_updates{agent="0"} 7.0' in exported


def test_weights_of_another_network_are_refused_before_playing(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    agent = decided(settings)
    evaluation, telemetry = evaluation_of(settings)
    with pytest.raises(CheckpointError, match="is missing"):
        evaluation.of(Frozen(agent, {}, 1, 1))
    assert "herd_evaluator_episodes_total 0.0" in telemetry.exposition().decode()


def test_a_stop_request_interrupts_an_evaluation(tmp_path: Path) -> None:
    class AfterAWhile:
        looks = 0

        def __bool__(self) -> bool:
            self.looks += 1
            return self.looks > 50

    settings = settings_in(tmp_path, episodes=1_000_000)
    stop = AfterAWhile()
    evaluation, _ = evaluation_of(settings, stop=stop)
    with pytest.raises(StoppedError):
        evaluation.of(Frozen(decided(settings), decided(settings).state_dict(), 1, 1))
    assert stop.looks == 51


def test_points_are_appended_with_frames_and_seconds_of_the_curve(tmp_path: Path) -> None:
    failures: list[int] = []
    file = PointsFile(tmp_path, lambda: failures.append(1))
    assert file.newest_version is None
    tasks = {"catch": {"mean": 1.0}}
    file.add({"lineage": 1, "learner_updates": 30, "tasks": tasks})
    points = [{"env_frames": 1000 * number, "wall_seconds": number, "learner_updates": 20 * number} for number in (1, 2)]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(point) + "\n" for point in points))
    file.add({"lineage": 1, "learner_updates": 35, "tasks": tasks})
    with (tmp_path / "evaluation.jsonl").open("a") as torn:
        torn.write('{"lineage": 1, "lear')
    file.add({"lineage": 2, "learner_updates": 32, "tasks": tasks})
    lines = [json.loads(line) for line in (tmp_path / "evaluation.jsonl").read_text().splitlines()]
    assert [(line["learner_updates"], line["env_frames"]) for line in lines] == [(30, None), (35, 1750), (32, 1600)]
    assert file.newest_version == (2, 32)
    assert PointsFile(tmp_path / "missing" / "agents" / "0", lambda: None).newest_version is None
    blocked = PointsFile(tmp_path / "evaluation.jsonl" / "below", lambda: failures.append(1))
    blocked.add({"lineage": 1, "learner_updates": 1, "tasks": tasks})
    assert failures == [1]


class EvaluatorProcess:
    """Runs ``python -m herd_evaluator`` beside a parameter server."""

    def __init__(self, server: ServerProcess, *words: str, agent: int = 0) -> None:
        directory = server.settings.directory
        self._points = agent_directory(server.settings, agent) / "evaluation.jsonl"
        command = [sys.executable, "-m", "herd_evaluator", "--config", str(directory / "config.yaml")]
        self.directory = directory
        self.process = subprocess.Popen(
            [*command, "--paramserver", server.endpoint, *words], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def points(self) -> list[dict[str, Any]]:
        lines = self._points.read_text().splitlines(keepends=True) if self._points.exists() else []
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def versions(self) -> list[tuple[int, int]]:
        return [(point["lineage"], point["learner_updates"]) for point in self.points()]

    def is_up(self) -> bool:
        announced = self.directory / "processes" / "evaluator-0.json"
        return announced.exists() and bool(json.loads(announced.read_text())["pid"] == self.process.pid)

    def reading(self, name: str) -> float:
        """Value of a metric; NaN while the process does not answer."""
        if not self.is_up():
            return float("nan")
        port = json.loads((self.directory / "processes" / "evaluator-0.json").read_text())["metrics_port"]
        try:
            return total(scrape(f"http://127.0.0.1:{port}/metrics"), name)
        except ScrapeError:
            return float("nan")

    def end(self, number: int) -> int:
        self.process.send_signal(number)
        _, said = self.process.communicate(timeout=120)
        assert "Traceback" not in said, said
        return self.process.returncode


@contextmanager
def evaluating(server: ServerProcess, *words: str, agent: int = 0) -> Iterator[EvaluatorProcess]:
    evaluator = EvaluatorProcess(server, *words, agent=agent)
    try:
        yield evaluator
    finally:
        if evaluator.process.poll() is None:
            evaluator.process.kill()
        evaluator.process.communicate(timeout=120)


@contextmanager
def publishing(server: ServerProcess, agent: Agent, number: int = 0) -> Iterator[Callable[[int, int], None]]:
    with Context() as context:
        publisher = WeightsPublisher(context, server.endpoint, run_id="run", contract=server.contract, agent=number)

        def publish(lineage: int, updates: int) -> None:
            publisher.publish(lineage, updates, 0, 1, encode_weights(agent.state_dict()))

            def confirmed() -> bool:
                publisher.poll()
                return publisher.confirmed

            until(confirmed)

        try:
            yield publish
        finally:
            publisher.close()


@pytest.mark.processes
def test_the_evaluator_follows_versions_across_kills_and_restores(tmp_path: Path) -> None:
    # Agent 0 never publishes, and agent 1 is evaluated all the same.
    settings = settings_in(tmp_path, interval_seconds=0.2, episodes=4).model_copy(update={"agents": 2})
    with ServerProcess("paramserver", settings) as server, publishing(server, decided(settings), number=1) as publish:
        with evaluating(server, agent=1) as first:
            publish(1, 10)
            until(lambda: first.versions() == [(1, 10)])
            publish(1, 20)
            until(lambda: first.versions() == [(1, 10), (1, 20)])
            until(lambda: first.reading("herd_weights_updates") == 20)
            until(lambda: first.reading("herd_evaluator_evaluations_total") == 2)
            first.process.kill()
        publish(1, 30)
        with evaluating(server, agent=1) as second:
            # What was evaluated before the kill is not evaluated again.
            until(lambda: len(second.versions()) == 3)
            assert second.versions()[-1] == (1, 30)
            publish(2, 25)  # the run was restored from an older checkpoint
            until(lambda: len(second.versions()) == 4)
            assert second.versions()[-1] == (2, 25)
            assert second.end(signal.SIGTERM) == 0
        assert all(point["tasks"]["catch"]["episodes"] == 4 for point in second.points())


@pytest.mark.processes
def test_a_signal_stops_the_evaluator_while_playing_or_waiting(tmp_path: Path) -> None:
    settings = settings_in(tmp_path, interval_seconds=1000.0, episodes=1_000_000)
    with ServerProcess("paramserver", settings) as server, publishing(server, decided(settings)) as publish:
        with evaluating(server) as waiting:
            until(waiting.is_up)  # there are no weights yet
            assert waiting.end(signal.SIGTERM) == 0
        publish(1, 10)
        with evaluating(server) as playing:
            until(lambda: playing.reading("herd_evaluator_episodes_total") > 0)
            assert playing.end(signal.SIGINT) == 0
        assert playing.points() == []


@pytest.mark.processes
def test_evaluation_games_use_the_bandits_temperatures_unreported(tmp_path: Path) -> None:
    sections = {"loss": {"kind": "dice"}, "actor": {"bandit_timeout_seconds": 60.0}}
    settings = RunSettings.model_validate({**CATCH, **sections, "name": "run", "run_dir": str(tmp_path)})
    with ServerProcess("bandit", settings) as server, Context() as context:
        tasks = np.array([0, 1], np.int32)
        temperatures = BestTemperatures(context, settings, server.endpoint, agent=0, contract=server.contract, task_ids=tasks)
        try:
            first = temperatures.of_row(np.array([True, True])).copy()
            temperatures.finished([FinishedGame(0, 0, 1.0, 5)], np.array([0, 0]))
            second = temperatures.of_row(np.array([True, False]))
        finally:
            temperatures.close()
        assert ((first >= 0) & (first <= 50)).all()
        assert second[1] == first[1]
        assert server.total("herd_bandit_requests_total", outcome="evaluation") >= 2  # more requests if an answer was slow
        assert server.total("herd_bandit_reports_total") == 0


@pytest.mark.processes
@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--evaluation.protocol", "saber"], "evaluator: evaluation.protocol: saber is a protocol of suite atari, not of catch"),
        (["--evaluation.interval_seconds", "null"], "contains no checkpoint yet"),
    ],
)
def test_bad_input_is_reported_in_one_line(tmp_path: Path, words: list[str], line: str) -> None:
    settings = settings_in(tmp_path, interval_seconds=1.0)
    (tmp_path / "config.yaml").write_text(dump_settings(settings))
    command = [sys.executable, "-m", "herd_evaluator", "--config", str(tmp_path / "config.yaml"), *words]
    command += ["--paramserver", "tcp://127.0.0.1:1"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    last = done.stderr.splitlines()[-1]
    assert line in last
    assert "Traceback" not in done.stderr
