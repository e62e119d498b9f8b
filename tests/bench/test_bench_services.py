"""The stages that measure the services' own code on made-up input."""

from __future__ import annotations

import pytest
from herd_actor.bench import measure_environment, measure_inference
from herd_learner import bench as learner_bench
from herd_learner.bench import measure_learner

from herd.bench.measurement import Measurement
from herd.bench.synthetic import synthetic_unrolls
from herd.config.replay import UniformReplay
from herd.config.settings import ActorSettings, LearnerSettings, NetworkSettings, RunSettings
from herd.envs.suites.catch.settings import CatchSettings
from herd.learning.batch import TrainBatch
from herd.learning.trainer import Launched, Trainer

SETTINGS = RunSettings(
    env=CatchSettings(tasks=("catch_instructed",), frame_height=10, frame_width=5, frame_stack=2, action_repeat=1),
    network=NetworkSettings(torso="mlp", core="lstm", core_size=8, language=True, last_action_and_reward=True),
    replay=UniformReplay(fraction=0.5),
    actor=ActorSettings(environments=4),
    learner=LearnerSettings(batch_size=8, device="cpu", threads=1, micro_batch_size=4),
)


@pytest.mark.parametrize("stage", [measure_environment, measure_inference])
def test_actor_stages_count_the_steps_of_every_environment(stage: object) -> None:
    assert callable(stage)
    measured = stage(SETTINGS, seconds=0.05, warmup_seconds=0.0)
    assert isinstance(measured, Measurement)
    assert measured.agent_steps % 4 == 0
    assert measured.wall_seconds >= 0.05


def test_the_learner_stage_trains_as_often_as_the_run_and_counts_fresh_steps_once(monkeypatch: pytest.MonkeyPatch) -> None:
    updates: list[None] = []
    launch = Trainer.launch

    def counted(trainer: Trainer, batch: TrainBatch) -> Launched:
        updates.append(None)
        return launch(trainer, batch)

    monkeypatch.setattr(Trainer, "launch", counted)
    settings = SETTINGS.model_copy(update={"learner": SETTINGS.learner.model_copy(update={"sample_reuse": 3})})
    measured = measure_learner(settings, seconds=0.0, warmup_seconds=0.0)
    # A batch has 8 unrolls, 4 of them replayed. One batch is the warm-up.
    assert measured.agent_steps == 4 * SETTINGS.algorithm.unroll_length
    assert len(updates) == 2 * 3
    assert measured.device == "cpu"


def test_a_skipped_update_fails_the_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    real = synthetic_unrolls

    def overflowing(*args: object, **keywords: object) -> object:
        arrays = real(*args, **keywords)  # type: ignore[arg-type]
        arrays["rewards"][...] = 3e38
        return arrays

    monkeypatch.setattr(learner_bench, "synthetic_unrolls", overflowing)
    unclipped = SETTINGS.model_copy(update={"algorithm": SETTINGS.algorithm.model_copy(update={"reward_shaping": "none"})})
    with pytest.raises(RuntimeError, match="not finite"):
        measure_learner(unclipped, seconds=0.0, warmup_seconds=0.0)
