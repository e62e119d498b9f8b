"""What the learner exports of an update."""

from __future__ import annotations

import pytest

from herd.config.contract import EnvSpec
from herd.config.settings import AlgorithmSettings
from herd.telemetry import metric_names as names
from herd.telemetry.telemetry import Telemetry
from services.learner.ledger import Ledger
from services.learner.meters import Meters
from services.learner.queue import UnrollQueue
from services.learner.run_files import METRICS, REPORT
from services.learner.statistics import RunStatistics
from services.learner.update import Losses, UpdateStatistics
from tests.learner.small_unrolls import LAYOUT

SPEC = EnvSpec(task_names=("catch",), frame_shape=(6, 5, 1), frame_stack=1, num_actions=3, action_repeat=1, instruction_length=0)


@pytest.fixture
def telemetry() -> Telemetry:
    return Telemetry("learner", "run")


@pytest.fixture
def meters(telemetry: Telemetry) -> Meters:
    algorithm = AlgorithmSettings(baseline_cost=0.25, entropy_cost=0.01)
    return Meters(telemetry, spec=SPEC, algorithm=algorithm, ledger=Ledger(), queue=UnrollQueue(LAYOUT), statistics=RunStatistics(SPEC))


def exported(telemetry: Telemetry, name: str) -> dict[str, float]:
    lines = [line for line in telemetry.exposition().decode().splitlines() if line.startswith(name)]
    return {line.rpartition(" ")[0].removeprefix(name): float(line.rpartition(" ")[2]) for line in lines}


def test_the_terms_of_the_loss_add_up_to_the_total(telemetry: Telemetry, meters: Meters) -> None:
    losses = Losses(total=3.0 + 0.25 * 8.0 - 0.01 * 1.5, policy=3.0, value=8.0, entropy=1.5, mean_rho=0.9)
    meters.updated(UpdateStatistics(losses, gradient_norm=2.0, is_finite=True), 1e-3)
    terms = exported(telemetry, names.LOSS.name)
    assert terms == {
        '{term="total"}': pytest.approx(4.985),
        '{term="policy"}': 3.0,
        '{term="value"}': 2.0,
        '{term="entropy"}': pytest.approx(-0.015),
        '{term="q"}': 0.0,
    }
    assert terms.pop('{term="total"}') == pytest.approx(sum(terms.values()))
    assert exported(telemetry, names.ENTROPY.name) == {"": 1.5}  # nats, without its cost


def test_files_that_could_not_be_written_are_counted(telemetry: Telemetry, meters: Meters) -> None:
    for file in (METRICS, METRICS, REPORT):
        meters.write_failed(file)
    counted = exported(telemetry, names.WRITE_FAILURES.name)
    assert counted == {'{file="metrics.jsonl"}': 2.0, '{file="report.json"}': 1.0, '{file="lineage.json"}': 0.0}
