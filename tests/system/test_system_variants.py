"""Every variant of the algorithm and of the optimizer loads from a run file and takes a step. In this process: no sockets."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from herd_learner.update import Update

from herd.algorithms.schedules import learning_rate_at
from herd.bench.synthetic import synthetic_unrolls
from herd.config.loading import load_settings
from herd.envs.make import environment_spec
from herd.wire.run_layout import run_layout
from tests.system.whole_runs import CATCH, ROOT


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


VARIANTS = (
    "--loss.correction v_trace",
    "--loss.correction one_step",
    "--loss.correction epsilon",
    "--loss.correction epsilon --loss.log_epsilon 1e-3",
    "--loss.correction none",
    "--loss.clip_rho_threshold 2.0 --loss.clip_c_threshold 1.5 --loss.clip_pg_rho_threshold 3.0",
    "--loss.lambda_ 0.9",
    "--loss.q_estimate value",
    "--loss.reduction mean",
    "--algorithm.discount 0",
    "--algorithm.unroll_length 1",
    "--algorithm.reward_shaping clip",
    "--algorithm.reward_shaping soft_asymmetric",
    "--algorithm.reward_shaping soft_asymmetric_printed",
    "--algorithm.reward_shaping none",
    "--loss.baseline_cost 0 --loss.entropy_cost 0",
    "--optimizer.schedule constant",
    "--optimizer.momentum 0.9",
    "--optimizer.max_gradient_norm null",
    "--optimizer.decay 0",
    "--network.core lstm --network.core_size 16",
    "--network.core lstm --network.core_size 16 --network.last_action_and_reward true",
    "--network.language true --env.tasks catch_instructed",
    "--env.frame_stack 3",
    "--learner.micro_batch_size 5",
)


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("words", VARIANTS)
def test_it_takes_a_step(words: str, precision: torch.dtype) -> None:
    settings = load_settings([ROOT / CATCH], words.split(), {})
    spec = environment_spec(settings.env)
    update = Update(settings, spec, torch.device("cpu"), precision)
    arrays = synthetic_unrolls(run_layout(settings, spec), settings.learner.batch_size, seed=3)
    batch = {name: torch.from_numpy(array) for name, array in arrays.items()}
    before = [parameter.detach().clone() for parameter in update.agent.parameters()]
    optimizer = settings.optimizer
    rate = learning_rate_at(
        1000, learning_rate=optimizer.learning_rate, schedule=optimizer.schedule, schedule_env_frames=optimizer.schedule_env_frames
    )
    statistics = update(batch, rate)
    assert statistics.is_finite
    assert 0.0 < statistics.gradient_norm < float("inf")
    assert all(torch.isfinite(torch.tensor(statistics.losses)))
    after = list(update.agent.parameters())
    assert all(torch.isfinite(parameter).all() for parameter in after)
    assert any(not torch.equal(old, new) for old, new in zip(before, after, strict=True))
