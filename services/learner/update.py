"""One learner update: IMPALA's losses on one batch, then RMSProp. Knows nothing of sockets.

T agent steps, B unrolls in the batch, b unrolls in a micro-batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from herd.algorithms.actor_critic import LossTerms, actor_critic_loss
from herd.algorithms.rewards import shape_rewards
from herd.algorithms.rmsprop import RMSProp
from herd.checkpoints.store import CheckpointError
from herd.config.contract import NO_ACTION
from herd.networks.agent import Agent
from herd.networks.frame_stack import restack
from herd.networks.torsos import recommended_micro_batch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from herd.config.contract import EnvSpec
    from herd.config.settings import RunSettings

Batch = dict[str, Tensor]
"""Fields of docs/messaging.md, [B, ...] or [b, ...]."""


class Losses(NamedTuple):
    """Of one batch, per valid agent step, whichever reduction is optimized."""

    total: float
    policy: float
    value: float
    entropy: float
    mean_rho: float


@dataclass(frozen=True, slots=True)
class UpdateStatistics:
    """Of one update."""

    losses: Losses
    gradient_norm: float
    is_finite: bool
    """False: the gradient was not finite, and the update was skipped."""


class Update:
    """Agent and optimizer, and the step that changes them."""

    def __init__(self, settings: RunSettings, spec: EnvSpec, device: torch.device, precision: torch.dtype) -> None:
        self._algorithm = settings.algorithm
        self._max_gradient_norm = settings.optimizer.max_gradient_norm
        self._device = device
        self._micro_batch_size = settings.learner.micro_batch_size or recommended_micro_batch(settings.network.torso, device.type)
        torch.manual_seed(settings.seed)
        self.agent = Agent(spec=spec, network=settings.network).to(device)
        self.agent.compute_dtype = precision
        self._parameters = dict(self.agent.named_parameters())
        self.optimizer = RMSProp(
            self._parameters.values(),
            lr=settings.optimizer.learning_rate,
            decay=settings.optimizer.decay,
            epsilon=settings.optimizer.epsilon,
            momentum=settings.optimizer.momentum,
        )

    def to_device(self, batch: Batch) -> Batch:
        """The batch on the device; without a copy where it is there already."""
        return {name: tensor.to(self._device, non_blocking=True) for name, tensor in batch.items()}

    def forward_backward(self, batch: Batch) -> Losses:
        """Accumulate the gradient of the whole batch in micro-batches of b unrolls."""
        self.optimizer.zero_grad(set_to_none=True)
        num_valid = batch["row_valid"].sum().clamp(min=1)
        # Losses are sums, so those of the parts add up to the whole's.
        losses = torch.zeros(len(Losses._fields), device=self._device)
        for start in range(0, len(batch["actions"]), self._micro_batch_size):
            terms = self._loss({name: tensor[start : start + self._micro_batch_size] for name, tensor in batch.items()}, num_valid)
            terms.total.backward()  # type: ignore[no-untyped-call]
            losses += torch.stack([terms.total.detach(), terms.policy, terms.value, terms.entropy, terms.mean_rho])
        if self._algorithm.loss_reduction == "sum":
            losses[:4] /= num_valid
        return Losses(*losses.tolist())

    def finish(self, losses: Losses, learning_rate: float) -> UpdateStatistics:
        """Clip the accumulated gradient by its global norm and take RMSProp's step."""
        limit = float("inf") if self._max_gradient_norm is None else self._max_gradient_norm
        gradient_norm = float(torch.nn.utils.clip_grad_norm_(self._parameters.values(), limit, foreach=True))
        # One poisoned batch must not destroy the weights of a run that took days.
        is_finite = gradient_norm < float("inf")
        if is_finite:
            self.optimizer.param_groups[0]["lr"] = learning_rate
            self.optimizer.step()
        return UpdateStatistics(losses, gradient_norm, is_finite)

    def __call__(self, batch: Batch, learning_rate: float) -> UpdateStatistics:
        """One update on a batch of host tensors."""
        return self.finish(self.forward_backward(self.to_device(batch)), learning_rate)

    def optimizer_tensors(self) -> dict[str, Tensor]:
        """The optimizer's state as flat named tensors: ``<parameter>/<slot>``."""
        return {
            f"{name}/{slot}": tensor.detach().cpu()
            for name, parameter in self._parameters.items()
            for slot, tensor in self.optimizer.state[parameter].items()
        }

    def load_optimizer_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Inverse of `optimizer_tensors`.

        Raises:
            CheckpointError: a tensor belongs to no parameter, or its shape differs.
        """
        for key, tensor in tensors.items():
            name, _, slot = key.rpartition("/")
            parameter = self._parameters.get(name)
            if parameter is None or parameter.shape != tensor.shape:
                raise CheckpointError(f"optimizer state {key} {list(tensor.shape)} fits no parameter of this network")
            # In the parameter's own memory order: in another one, the optimizer's fused operations fall back to slow ones.
            self.optimizer.state[parameter][slot] = torch.empty_like(parameter, requires_grad=False).copy_(tensor)

    def _loss(self, unrolls: Batch, num_valid: Tensor) -> LossTerms:
        core_reset = unrolls["core_reset"].t()
        rewards = shape_rewards(unrolls["rewards"].t(), self._algorithm.reward_shaping)
        first_reward = shape_rewards(unrolls["last_reward"], self._algorithm.reward_shaping)
        actions = unrolls["actions"].t().long()
        # A row's last action and reward are those of the row before; an episode begins without.
        last_actions = torch.cat([unrolls["last_action"].long().unsqueeze(0), actions]).masked_fill(core_reset, NO_ACTION)
        last_rewards = torch.cat([first_reward.unsqueeze(0), rewards]).masked_fill(core_reset, 0.0)
        num_unrolls = core_reset.shape[1]
        output, _ = self.agent(
            restack(unrolls.get("history_frames", unrolls["frames"][:, :0]), unrolls["frames"], unrolls["game_reset"]),
            core_reset,
            unrolls.get("initial_core_state", self.agent.initial_core_state(num_unrolls)),
            last_actions,
            last_rewards,
            unrolls["instructions"].transpose(0, 1).long() if "instructions" in unrolls else None,
        )
        return actor_critic_loss(
            target_logits=output.policy_logits[:-1],
            values=output.values,
            behaviour_logits=unrolls["behaviour_logits"].transpose(0, 1),
            actions=actions,
            rewards=rewards,
            terminated=unrolls["terminated"].t(),
            row_valid=unrolls["row_valid"].t(),
            discount=self._algorithm.discount,
            algorithm=self._algorithm,
            normaliser=num_valid,
        )
