"""Every option of losses, optimizers and networks loads from a run file and changes what is learned."""

from __future__ import annotations

import pytest
import torch

from herd.config.loading import load_settings
from tests.training.small_runs import batch_of, trainer_of

pytestmark = pytest.mark.usefixtures("one_thread")

BASE = "--env.suite catch --network.torso mlp --algorithm.unroll_length 6 --learner.batch_size 4 --actor.environments 2"


CATCH_OPTIONS = (
    "--loss.correction one_step",
    "--loss.correction epsilon --loss.log_epsilon 1e-3",
    "--loss.correction none",
    "--loss.clip_rho_threshold 2.0",
    "--loss.clip_c_threshold 0.5",
    "--loss.clip_pg_rho_threshold 3.0",
    "--loss.lambda_ 0.9",
    "--loss.q_estimate value",
    "--loss.reduction mean",
    "--loss.baseline_cost 0",
    "--loss.entropy_cost 0",
    "--loss.advantage_normalization batch",
    "--algorithm.discount 0",
    "--algorithm.unroll_length 1",
    "--algorithm.reward_shaping soft_asymmetric",
    "--algorithm.reward_shaping soft_asymmetric_printed",
    "--algorithm.reward_shaping log_asymmetric",
    "--algorithm.reward_shaping clip",
    "--value_scaling.kind multi_head --env.tasks catch,catch_instructed",
    "--value_scaling.kind popart",
    "--optimizer.schedule constant",
    "--optimizer.momentum 0.9",
    "--optimizer.max_gradient_norm 0.1",
    "--optimizer.kind adam",
    "--optimizer.decay 0",
    "--optimizer.epsilon 0.1",
    "--network.core lstm --network.core.size 16",
    "--network.last_action_and_reward true",
    "--network.initialization truncated_normal",
    "--network.layer_norm true",
    "--network.language true --env.tasks catch_instructed",
    "--env.frame_stack 3",
    "--seed 2",
)
DICE, ADAM, ADAMW = "--loss.kind dice", "--optimizer.kind adam", "--optimizer.kind adamw"
MUON = "--optimizer.kind muon --optimizer.schedule_env_frames 2000"
PIXELS = "--auxiliary.kind pixel_control --auxiliary.cell_size 1 --env.frame_height 16 --env.frame_width 16"
OPTIONS = {
    "": CATCH_OPTIONS,
    DICE: (
        "--loss.retrace_bootstrap taken",
        "--loss.ablation entropy",
        "--loss.q_cost 1",
        "--loss.policy_cost 1",
        "--value_scaling.kind popart",
        "--loss.baseline_cost 10",
        "--algorithm.burn_in 2 --network.core lstm",
    ),
    ADAM: (
        "--optimizer.beta1 0.5",
        "--optimizer.beta2 0.9",
        "--optimizer.epsilon 0.1",
        "--optimizer.schedule_env_frames 2000",
    ),
    MUON: ("--optimizer.momentum 0.5", "--optimizer.beta1 0.5", "--optimizer.beta2 0.9", "--optimizer.epsilon 0.1"),
    PIXELS: ("--auxiliary.cost 0.1", "--auxiliary.discount 0.5", "--auxiliary.cell_size 2"),
    ADAMW: (
        "--optimizer.weight_decay 10",
        "--optimizer.warmup_updates 2",
        "--optimizer.beta1 0.5",
        "--optimizer.beta2 0.9",
        "--optimizer.epsilon 0.1",
    ),
}


def updated(words: str) -> dict[str, torch.Tensor]:
    """Train two updates and return the weights."""
    settings = load_settings([], [*BASE.split(), *words.split()], {})
    trainer = trainer_of(settings)
    for seed in range(2):
        rates = settings.optimizer.rates(env_frames=1000 * seed, learner_updates=seed)
        assert trainer(batch_of(settings, seed), rates).is_finite
    return trainer.weights()


@pytest.mark.parametrize(("base", "words"), [(base, words) for base, options in OPTIONS.items() for words in options])
def test_every_option_changes_the_updated_weights(base: str, words: str) -> None:
    weights, default = updated(f"{base} {words}"), updated(base)
    assert all(torch.isfinite(tensor).all() for tensor in weights.values())
    comparable = {name for name, tensor in weights.items() if name in default and tensor.shape == default[name].shape}
    assert comparable != weights.keys() or not all(torch.equal(weights[name], default[name]) for name in comparable)
