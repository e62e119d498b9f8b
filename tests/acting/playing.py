"""Runs an actor's loop without sockets, with the weights of a learner."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from herd_actor.loop import Group, play_rows
from herd_actor.meters import Meters
from herd_actor.unroll import UnrollBuilder
from numpy.typing import NDArray

from herd.acting.policy import LocalPolicy, Policy
from herd.acting.row_state import RowState
from herd.acting.temperatures import Temperatures
from herd.components.suites import environment_spec, make_environments
from herd.components.suites.api import BatchedEnvironment, Transition
from herd.config.run import RunSettings
from herd.config.run_contract import run_layout
from herd.telemetry import Telemetry
from herd.training.trainer import Trainer
from tests.training.small_runs import trainer_of

Unroll = dict[str, NDArray[Any]]
_NOBODY: Any = None


def confident_trainer(settings: RunSettings) -> Trainer:
    """A trainer whose policy is far from uniform; otherwise a wrong input would hardly change the importance ratios."""
    trainer = trainer_of(settings)
    assert trainer.agent.policy_head is not None
    with torch.no_grad():
        trainer.agent.policy_head.weight.mul_(300.0)
    return trainer


def local_policy(trainer: Trainer) -> LocalPolicy:
    """A copy of the trainer's policy, which samples alike every time."""
    return LocalPolicy(trainer.agent, seed=5, precision=torch.float32)


def play_unrolls(settings: RunSettings, trainer: Trainer, num_unrolls: int) -> list[Unroll]:
    """Play unrolls of the actor's environments, one after the other, with the trainer's policy."""
    group = make_group(settings, settings.actor.environments)
    policy = local_policy(trainer)
    unrolls = [play_unroll(settings, [group], policy) for _ in range(num_unrolls)]
    group.environments.close()
    return unrolls


def make_group(
    settings: RunSettings,
    num_environments: int,
    *,
    first_slot: int = 0,
    temperatures: Temperatures | None = None,
    wrap: Callable[[BatchedEnvironment], BatchedEnvironment] = lambda environments: environments,
) -> Group:
    """Create the run's environments and reset them."""
    spec = environment_spec(settings.env)
    environments = wrap(make_environments(settings.env, num_environments=num_environments, first_slot=first_slot, seed=3, num_threads=1))
    state = RowState(spec, settings.network, temperatures or Temperatures(), num_environments=num_environments)
    builder = UnrollBuilder(run_layout(settings, spec), state, task_ids=environments.task_ids, first_slot=first_slot)
    in_message = slice(first_slot, first_slot + num_environments)
    group = Group(environments, state, builder, _NOBODY, in_message)
    group.reset()
    return group


def play_unroll(
    settings: RunSettings,
    groups: Sequence[Group],
    policy: Policy[Any],
    *,
    version: int = 0,
    arrays: Unroll | None = None,
    on_step: Callable[[Group, Transition], None] = lambda *_: None,
) -> Unroll:
    """Play one unroll in every environment; ``on_step`` is called with each step after it is recorded."""
    layout = run_layout(settings, environment_spec(settings.env))
    if arrays is None:
        arrays = layout.allocate(sum(group.environments.num_environments for group in groups))
    for group in groups:
        group.policy = policy
        group.builder.begin({name: array[group.in_message] for name, array in arrays.items()}, group.observation)
    meters = Meters(Telemetry("actor", "run"))
    for group, transition in play_rows(groups, layout.new_steps, before_row=lambda _: True, meters=meters):
        on_step(group, transition)
    for group in groups:
        group.builder.finish()
    arrays["policy_version"][...] = (1, version)
    return arrays
