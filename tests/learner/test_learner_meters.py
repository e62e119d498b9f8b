"""The metrics that the learner exports about an update."""

from __future__ import annotations

import math
from collections import Counter
from types import SimpleNamespace

import pytest
from herd_learner.intake.io_thread import IntakeMeters
from herd_learner.intake.ledger import Frames, Ledger, LedgerSnapshot
from herd_learner.intake.queue import UnrollQueue
from herd_learner.record.meters import Meters
from herd_learner.record.statistics import RunStatistics

from herd.contract.spaces import EnvSpec, discrete
from herd.protocols.unrolls import metrics as unroll_metrics
from herd.protocols.unrolls.metrics import LEARNER_RESTART, STALE
from herd.run.journals import METRICS
from herd.run.paths import REPORT
from herd.telemetry import metrics
from herd.telemetry import training as training_metrics
from herd.telemetry.telemetry import Telemetry
from herd.training.diagnostics import Health, LayerUnits
from herd.training.metrics import Measured
from herd.training.trainer import UpdateStatistics

SPEC = EnvSpec(task_names=("catch",), frame_shape=(6, 5, 1), frame_stack=1, actions=discrete(3), action_repeat=1, instruction_length=0)


@pytest.fixture
def telemetry() -> Telemetry:
    return Telemetry("learner", "run")


@pytest.fixture
def meters(telemetry: Telemetry) -> Meters:
    return Meters(telemetry, spec=SPEC, statistics=RunStatistics(SPEC))


def exported(telemetry: Telemetry, name: str) -> dict[str, float]:
    lines = [line for line in telemetry.exposition().decode().splitlines() if line.startswith(name)]
    return {line.rpartition(" ")[0].removeprefix(name): float(line.rpartition(" ")[2]) for line in lines}


def test_all_measures_of_a_loss_are_exported_and_terms_are_weighted(telemetry: Telemetry, meters: Meters) -> None:
    losses = {
        "loss_total": Measured(4.985, 1.0),
        "loss_mine": Measured(8.0, 0.25),
        "entropy": Measured(1.5, -0.01),
        "surprise": Measured(0.9),
    }
    meters.update_arrived(UpdateStatistics(losses, gradient_norm=2.0, is_finite=True))
    assert exported(telemetry, training_metrics.LOSS.name) == {
        '{term="total"}': 4.985,
        '{term="mine"}': 2.0,
        '{term="entropy"}': pytest.approx(-0.015),
    }
    assert exported(telemetry, training_metrics.LEARNER_METRIC.name) == {f'{{name="{name}"}}': value for name, (value, _) in losses.items()}


def test_health_is_exported_with_unknown_values_as_nan(telemetry: Telemetry, meters: Meters) -> None:
    meters.update_arrived(UpdateStatistics({}, gradient_norm=2.0, is_finite=True, is_clipped=True))
    assert exported(telemetry, training_metrics.UPDATES_CLIPPED.name) == {"": 1.0}
    assert exported(telemetry, training_metrics.LAYER_DEAD.name) == {}
    layers = (LayerUnits("filters", 16, 4, 8), LayerUnits("units", 256, 64, 0))
    meters.update_arrived(UpdateStatistics({}, 2.0, is_finite=True, health=Health(0.01, 0.75, None, layers)))
    assert exported(telemetry, training_metrics.UPDATES_CLIPPED.name) == {"": 1.0}
    assert exported(telemetry, training_metrics.UPDATE_KL.name) == {"": 0.01}
    assert exported(telemetry, training_metrics.EFFECTIVE_SAMPLE_SIZE.name) == {"": 0.75}
    assert math.isnan(exported(telemetry, training_metrics.EXPLAINED_VARIANCE.name)[""])
    assert exported(telemetry, training_metrics.LAYER_DEAD.name) == {'{layer="1"}': 0.25, '{layer="2"}': 0.25}
    assert exported(telemetry, training_metrics.LAYER_ALWAYS_ON.name) == {'{layer="1"}': 0.5, '{layer="2"}': 0.0}


def test_failed_file_writes_are_counted(telemetry: Telemetry, meters: Meters) -> None:
    for file in (METRICS, METRICS, REPORT):
        meters.write_failed(file)
    counted = exported(telemetry, training_metrics.WRITE_FAILURES.name)
    assert counted == {'{file="metrics.jsonl"}': 2.0, '{file="report.json"}': 1.0, '{file="lineage.json"}': 0.0}


@pytest.mark.usefixtures("meters")
def test_counters_used_by_alerts_start_at_0(telemetry: Telemetry) -> None:
    IntakeMeters(telemetry, Ledger(), UnrollQueue())
    for metric in (
        training_metrics.UPDATES_SKIPPED,
        training_metrics.CHECKPOINTS_WRITTEN,
        training_metrics.CHECKPOINT_FAILURES,
        training_metrics.WRITE_FAILURES,
        metrics.MALFORMED_MESSAGES,
        metrics.REFUSED_MESSAGES,
        unroll_metrics.UNROLLS_DROPPED,
    ):
        assert list(exported(telemetry, metric.name).values()) == [0.0] * max(1, len(metric.values)), metric.name


def test_frame_counters_start_at_0_in_every_process(telemetry: Telemetry) -> None:
    # Starting at the checkpoint's totals, below the last process's values, would add the whole history to a rate.
    before = Frames(5_000_000, 4_000_000, 200, Counter({STALE: 999_000, LEARNER_RESTART: 800}))
    ledger = Ledger(LedgerSnapshot(before, {0: Frames(1_000, 400, 200, Counter({STALE: 400}))}))
    IntakeMeters(telemetry, ledger, UnrollQueue())
    assert exported(telemetry, unroll_metrics.FRAMES_GENERATED.name) == {"": 0.0}
    # This start lost them, so this process counts them.
    lost = {'{reason="stale"}': 0.0, '{reason="malformed"}': 0.0, '{reason="learner_restart"}': 200.0, '{reason="other"}': 0.0}
    assert exported(telemetry, unroll_metrics.FRAMES_DROPPED.name) == lost
    ledger.receive((0, 1), sequence=1, generated=80, frames={0: 60, 1: 20})
    ledger.receive((0, 1), sequence=2, generated=160, frames={1: 80})
    ledger.drop(STALE, {0: 60, 1: 20})
    assert exported(telemetry, unroll_metrics.FRAMES_GENERATED.name) == {"": 160.0}
    assert exported(telemetry, unroll_metrics.FRAMES_DROPPED.name) == {**lost, '{reason="stale"}': 80.0}
    assert exported(telemetry, unroll_metrics.FRAMES_IN_FLIGHT.name) == {"": 80.0}
    assert ledger.snapshot().total.generated == 5_000_160  # the ledger itself continues


def test_the_state_of_the_run_is_exported(telemetry: Telemetry, meters: Meters) -> None:
    def shown(metric: metrics.Metric) -> float | None:
        return exported(telemetry, metric.name).get("")

    assert shown(training_metrics.RUN_IS_OVER) == 0.0
    meters.checkpoint_written(90)
    assert (shown(training_metrics.CHECKPOINT_UPDATES), shown(training_metrics.CHECKPOINTS_WRITTEN)) == (90.0, 1.0)
    meters.human_normalised(None)
    assert shown(training_metrics.HUMAN_NORMALISED) is None
    meters.human_normalised(-0.25)
    assert shown(training_metrics.HUMAN_NORMALISED) == -0.25


def test_skipped_updates_are_counted(telemetry: Telemetry, meters: Meters) -> None:
    losses = {"loss_total": Measured(float("nan"), 1.0)}
    for is_finite in (True, False, False):
        meters.updated(1e-3)
        meters.update_arrived(UpdateStatistics(losses, gradient_norm=1.0, is_finite=is_finite))
    assert exported(telemetry, training_metrics.UPDATES_SKIPPED.name) == {"": 2.0}
    assert exported(telemetry, training_metrics.LEARNER_UPDATES.name) == {"": 3.0}


def test_speed_is_measured_from_the_first_update(telemetry: Telemetry, meters: Meters, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1000.0]
    monkeypatch.setattr("herd_learner.record.meters.time", SimpleNamespace(monotonic=lambda: clock[-1]))
    speeds = [meters.frames_per_second()]
    # The first batch arrives after a minute; then there is an update of 40 frames every half second.
    for now in (1060.0, 1060.5, 1061.0, 1061.5):
        clock.append(now)
        for _ in range(4):
            meters.consumed(SimpleNamespace(num_frames=10, task_id=0), 0)  # type: ignore[arg-type]
        meters.updated(1e-3)
        speeds.append(meters.frames_per_second())
    assert speeds == [None, None, None, 80.0, 80.0]
