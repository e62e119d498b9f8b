"""One pass of the network over a batch: the input common to all losses.

Legend: T trained agent steps, B unrolls, P parameters of an action distribution, A actions, K value heads, F features.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor, nn

from herd.agent import AgentOutput
from herd.algorithms.rewards import clip_last_rewards, shape_rewards
from herd.components.losses.api import Forward
from herd.networks.frame_stack import restack

if TYPE_CHECKING:
    from collections.abc import Sequence

    from herd.agent import Agent
    from herd.components.value_scaling.api import Statistics, ValueScaling
    from herd.config.run import AlgorithmSettings
    from herd.training.batch import TrainBatch


class Network(Protocol):
    """The agent, called directly or through the shards; arguments and result are those of ``Agent.forward``."""

    def __call__(  # noqa: PLR0917 - a module's forward takes its tensors in order
        self,
        frames: Tensor | None,
        core_reset: Tensor,
        core_state: Tensor,
        last_actions: Tensor,
        last_rewards: Tensor,
        instructions: Tensor | None,
        vectors: Tensor | None,
        num_tail_rows: int,
        reset_rows: Sequence[int] | None,
        /,
    ) -> tuple[AgentOutput, Tensor]:
        """Run all rows."""


def run_forward(
    batch: TrainBatch,
    *,
    agent: Agent,
    network: Network,
    algorithm: AlgorithmSettings,
    value_scaling: ValueScaling,
    statistics: Statistics,
    num_trained: Tensor,
    has_replay: bool = False,
    trains_online: bool = True,
) -> Forward:
    """Stack frames, shape rewards, update the core's state over the burn-in, then run the network over the other rows.

    ``network`` is ``agent``, with the auxiliary head if there is one, as called by the shards. ``statistics`` are those of
    ``value_scaling``. ``has_replay`` and ``trains_online`` say what batches of this run hold and train on.
    """
    core_reset = batch.core_reset
    rewards = shape_rewards(batch.rewards, algorithm.reward_shaping)
    actions = batch.actions if batch.actions.is_floating_point() else batch.actions.long()
    # A row's last action and reward are those of the previous row; the first row of an episode has none.
    last_actions = torch.cat([batch.last_action.unsqueeze(0).to(actions.dtype), actions])
    last_rewards = clip_last_rewards(torch.cat([batch.last_reward.unsqueeze(0), batch.rewards])).masked_fill(core_reset, 0.0)
    frames = None
    if batch.history_frames is not None and batch.frames is not None:
        frames = restack(batch.history_frames, batch.frames, batch.game_reset)
    instructions = None if batch.instructions is None else batch.instructions.long()
    core_state = agent.core.initial_state(batch.num_unrolls) if batch.initial_core_state is None else batch.initial_core_state

    def inputs(rows: slice, core_state: Tensor) -> tuple[Tensor | None, Tensor, Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
        return (
            None if frames is None else frames[rows],
            core_reset[rows],
            core_state,
            last_actions[rows],
            last_rewards[rows],
            None if instructions is None else instructions[rows],
            None if batch.observations is None else batch.observations[rows],
        )

    if batch.burn_in:
        with torch.no_grad():
            _, core_state = network(*inputs(slice(batch.burn_in), core_state), 0, batch.reset_rows(0, batch.burn_in))
    rows = slice(batch.burn_in, None)
    # The next unroll repeats the last row of this one; its burn-in repeats the rows before that.
    reset_rows = batch.reset_rows(batch.burn_in, len(core_reset))
    output, next_core_state = network(*inputs(rows, core_state), batch.burn_in + 1, reset_rows)
    task_ids, inverse_temperature = batch.task_ids.long(), batch.inverse_temperature[rows]
    values, value_scale = value_scaling.values(statistics, output.values, task_ids)
    masks = None if batch.action_masks is None else batch.action_masks[rows]
    policies = partial(agent.distribution.at, inverse_temperature=inverse_temperature, mask=None if masks is None else masks[:-1])
    return Forward(
        features=output.features,
        auxiliary=output.auxiliary,
        frames=None if batch.frames is None else batch.frames[rows],
        game_reset=batch.game_reset[rows],
        distribution=agent.distribution,
        parameters=output.parameters,
        action_masks=masks,
        target=policies(output.parameters[:-1]),
        behaviour=policies(batch.behaviour_parameters[rows]),
        values=values,
        value_scale=value_scale,
        inverse_temperature=inverse_temperature,
        actions=actions[rows],
        rewards=rewards[rows],
        terminated=batch.terminated[rows],
        truncated=batch.truncated[rows],
        trained=batch.trained,
        is_replayed=batch.is_replayed,
        has_replay=has_replay,
        has_entropy_bonus=~batch.is_replayed if trains_online else torch.ones_like(batch.is_replayed),
        task_ids=task_ids,
        discount=algorithm.discount,
        next_core_state=next_core_state.detach(),
        num_trained=num_trained,
    )


class WithAuxiliary(nn.Module):
    """The agent and the head as one module, called like the agent, so that shards sum the gradients of both."""

    def __init__(self, agent: Agent, head: nn.Module) -> None:
        super().__init__()
        self.agent = agent
        self.head = head

    def forward(self, *inputs: Tensor | int | None) -> tuple[AgentOutput, Tensor]:
        """Run ``Agent.forward``, with ``auxiliary`` filled in if gradients are enabled, which excludes the burn-in."""
        output: AgentOutput
        output, core_state = self.agent(*inputs)
        if torch.is_grad_enabled():
            # Not `_replace`, whose result torch.compile cannot return in every release.
            output = AgentOutput(output.parameters, output.values, output.features, self.head(output.features))
        return output, core_state


class Replayer:
    """The core's states of R replay slots, S numbers each, on the device (LASER, arXiv:1909.11583, section 5.1 and appendix B).

    A replay slot is a place in the batch that works through one episode from its first step, one unroll per batch, like an actor's
    environment. The training forward pass's final state of an unroll is the initial state of the next. An episode therefore runs under
    the newest weights, and nothing is computed twice. A batch without replayed unrolls does not change the slots.

    Call `begin` and `end` around every batch; the slots are its last unrolls, in order.
    """

    def __init__(self) -> None:
        self._states: Tensor | None = None
        """[R, S] before the first row of each slot's next unroll; None before the first replayed ones."""
        self._num_slots = 0
        """Number of replayed unrolls in the current batch."""

    @torch.no_grad()
    def begin(self, batch: TrainBatch, num_replayed: int) -> None:
        """Write the states into the batch's ``num_replayed`` last unrolls: R or 0. The first row of an episode resets them."""
        self._num_slots = num_replayed
        if self._num_slots and self._states is not None:
            assert batch.initial_core_state is not None
            batch.initial_core_state[batch.num_unrolls - self._num_slots :] = self._states

    def end(self, next_core_states: Tensor) -> None:
        """Store the batch's final states, [B, S]. Non-finite states must not affect later updates."""
        if self._num_slots:
            self._states = next_core_states[-self._num_slots :].nan_to_num(posinf=0.0, neginf=0.0)
