from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from herd.bench import stages
from herd.bench.stages import StageError, run_stage, split_stage_arguments, stage_environment
from herd.bench.synthetic import synthetic_unrolls
from herd.bench.transport import measure_transport
from herd.config.loading import dump_settings
from herd.config.settings import ActorSettings, LearnerSettings, NetworkSettings, RunSettings
from herd.contract.unroll import UnrollLayout
from herd.envs.suites.catch.settings import CatchSettings
from herd.protocols.unrolls.arrays import encode_arrays, read_arrays
from herd.protocols.unrolls.messages import Unrolls
from herd.rpc.codec import decode_header

if TYPE_CHECKING:
    from pathlib import Path

CATCH = RunSettings(
    env=CatchSettings(tasks=("catch_instructed",), frame_height=10, frame_width=5, frame_stack=2, action_repeat=1),
    network=NetworkSettings(torso="mlp", core="lstm", core_size=8),
    actor=ActorSettings(environments=4),
    learner=LearnerSettings(batch_size=4),
)


@pytest.mark.parametrize("frame_stack", [1, 4])
def test_synthetic_unrolls_are_valid_messages(frame_stack: int) -> None:
    layout = UnrollLayout(
        unroll_length=5, frame_stack=frame_stack, frame_shape=(84, 84, 1), num_actions=6, state_size=8, instruction_length=3, num_tasks=1
    )
    arrays = synthetic_unrolls(layout, 3, seed=1)
    header = Unrolls(sequence=1, generated_frames=60, num_frames=60, num_unrolls=3)
    frames = encode_arrays(header, arrays, "lz4")
    message = decode_header(frames[0])
    assert isinstance(message, Unrolls)
    received = layout.allocate(3)
    read_arrays(message, frames[1:], layout, received)
    for name, array in arrays.items():
        np.testing.assert_array_equal(received[name], array, err_msg=name)
    # No two unrolls are equal, and the frames compress about as well as a game's.
    assert len({arrays["frames"][row].tobytes() for row in range(3)}) == 3
    assert 10 < arrays["frames"].nbytes / len(frames[list(arrays).index("frames") + 1]) < 500


def test_the_transport_is_measured_over_real_sockets() -> None:
    measured = measure_transport(CATCH, seconds=0.1, warmup_seconds=0.0)
    assert measured.agent_steps % (4 * CATCH.algorithm.unroll_length) == 0
    assert measured.agent_steps_per_second > 0
    assert measured.cpu_seconds > 0


@pytest.mark.processes
def test_a_stage_runs_in_its_own_process(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(dump_settings(CATCH))
    assert run_stage("transport", config, seconds=0.1).agent_steps > 0


@pytest.mark.processes
def test_a_failing_stage_gives_the_reason(tmp_path: Path) -> None:
    with pytest.raises(StageError, match=r"transport: exit code 2: .*missing\.yaml"):
        run_stage("transport", tmp_path / "missing.yaml", seconds=0.1)


@pytest.mark.processes
def test_a_hanging_stage_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(dump_settings(CATCH))
    monkeypatch.setattr(stages, "GRACE_SECONDS", -9.5)
    with pytest.raises(StageError, match=r"transport: no result after 0\.5 s"):
        run_stage("transport", config, seconds=10.0)


def test_stages_use_the_tuned_allocator_and_ignore_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERD_LEARNER__BATCH_SIZE", "7")
    environment = stage_environment()
    assert "HERD_LEARNER__BATCH_SIZE" not in environment
    assert environment["MALLOC_MMAP_MAX_"] == "0"


def test_stage_options_are_separated_from_settings() -> None:
    words = ["--stage", "b", "--learner.threads", "1", "--seconds", "2.5", "--config", "x.yaml"]
    assert split_stage_arguments(words, stages=("a", "b")) == ("b", 2.5, ["--learner.threads", "1", "--config", "x.yaml"])
