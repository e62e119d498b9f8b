"""An environment of gymnasium with everything that an observation can have, in real processes."""

from __future__ import annotations

from pathlib import Path

from tests.system.whole_runs import train


def test_images_vectors_and_instructions_train_a_recurrent_network(tmp_path: Path) -> None:
    report = train(
        tmp_path / "run",
        *("--env.vector_keys", "direction", "--env.image_key", "image", "--env.instruction_key", "mission", "--env.frame_stack", "2"),
        *("--network.core", "lstm", "--network.core.size", "32", "--network.language", "--network.last_action_and_reward"),
        *("--env.vectorization", "async", "--actor.environments", "2", "--actor.environment_threads", "2", "--learner.batch_size", "4"),
        *("--stop.env_frames", "2000", "--algorithm.burn_in", "5"),
        *("--replay.kind", "local", "--replay.fraction", "0.5", "--replay.minimum_fill_unrolls", "16"),
        file="minigrid-empty",
    )
    assert report["env_frames"] >= 2000
