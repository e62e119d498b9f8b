"""One learner update: the losses on one batch, then the optimizer's step. Knows nothing of sockets.

T agent steps, B unrolls in the batch, b unrolls in a micro-batch.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from herd.algorithms.actor_critic import LossTerms, actor_critic_loss
from herd.algorithms.dice import DiceTerms, dice_loss
from herd.algorithms.rewards import shape_rewards
from herd.checkpoints.weights import load_into
from herd.config.contract import NO_ACTION
from herd.networks.agent import Agent
from herd.networks.frame_stack import restack
from herd.networks.torsos import recommended_micro_batch
from herd_learner.optimizers import Rates, load_state_tensors, new_optimizer, state_tensors
from herd_learner.shards.group import ShardGroup
from herd_learner.shards.parts import part_like, whole
from herd_learner.shards.rendezvous import Place
from herd_learner.shards.replicas import Replicas

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
    q: float = 0.0
    """Of DiCE only."""


class Launched(NamedTuple):
    """Work under way on the device."""

    losses: Tensor
    """[6], this shard's, in the order of `Losses`."""
    num_valid: Tensor
    """Valid agent steps of all shards' parts."""


@dataclass(frozen=True, slots=True)
class UpdateStatistics:
    """Of one update."""

    losses: Losses
    gradient_norm: float
    is_finite: bool
    """False: the gradient was not finite, and the update was skipped."""


class Update:
    """Agent and optimizer, and the step that changes them: of a whole batch, or of a shard's part of it together with the other shards."""

    def __init__(
        self, settings: RunSettings, spec: EnvSpec, device: torch.device, precision: torch.dtype, group: ShardGroup | None = None
    ) -> None:
        """``group``: the shards that share each batch; None: one alone."""
        self._group = group or ShardGroup(Place(0, 1))
        self._algorithm = settings.algorithm
        self._loss_settings = settings.loss
        self._max_gradient_norm = settings.optimizer.max_gradient_norm
        self._device = device
        self._copies = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        self._micro_batch_size = settings.learner.micro_batch_size or recommended_micro_batch(settings.network.torso, device.type)
        torch.manual_seed(settings.seed)
        self.agent = Agent(spec=spec, network=settings.network, head=settings.loss.head).to(device)
        self.agent.compute_dtype = precision
        mode = settings.learner.compile
        self._compiled_loss = None if mode == "off" else torch.compile(self._loss, mode=mode, dynamic=False)
        self._replicas = Replicas(self.agent, self._group, device, settings.learner.sharding)
        self._parameters = dict(self.agent.named_parameters())
        self._optimizer_kind = settings.optimizer.kind
        self.optimizer = new_optimizer(settings.optimizer, self._parameters.values())

    def to_device(self, batch: Batch) -> Batch:
        """The batch on the device; without a copy where it is there already. On a GPU the copy runs beside what computes there."""
        with nullcontext() if self._copies is None else torch.cuda.stream(self._copies):
            return {name: tensor.to(self._device, non_blocking=True) for name, tensor in batch.items()}

    def forward_backward(self, batch: Batch) -> Losses:
        """Accumulate the gradient of the whole batch in micro-batches of b unrolls."""
        return self.losses_of(self.launch(batch))

    def launch(self, batch: Batch) -> Launched:
        """As `forward_backward`, but on a GPU it returns as soon as all work is queued there: time for the next batch."""
        if self._copies is not None:
            computing = torch.cuda.current_stream(self._device)
            computing.wait_stream(self._copies)
            for tensor in batch.values():
                tensor.record_stream(computing)
        self.optimizer.zero_grad(set_to_none=True)
        num_valid = self._group.add_up(batch["row_valid"][:, self._algorithm.burn_in :].sum()).clamp(min=1)
        # Losses are sums, so those of the parts add up to the whole's.
        losses = torch.zeros(len(Losses._fields), device=self._device)
        starts = range(0, len(batch["actions"]), self._micro_batch_size)
        for start in starts:
            with self._replicas.reducing(start == starts[-1]):
                micro_batch = {name: tensor[start : start + self._micro_batch_size] for name, tensor in batch.items()}
                terms = (self._compiled_loss or self._loss)(micro_batch, num_valid)
                self._replicas.backward(terms.total)
            q = terms.q if isinstance(terms, DiceTerms) else torch.zeros_like(terms.value)
            losses += torch.stack([terms.total.detach(), terms.policy, terms.value, terms.entropy, terms.mean_rho, q])
        return Launched(losses, num_valid)

    def losses_of(self, launched: Launched) -> Losses:
        """Wait for what was launched."""
        means = Losses(*self._group.add_up(launched.losses).tolist())
        if self._loss_settings.reduction == "mean":
            return means
        rows = float(launched.num_valid)
        sums = {name: value / rows for name, value in means._asdict().items() if name != "mean_rho"}
        return means._replace(**sums)

    def finish(self, losses: Losses, rates: Rates | float) -> UpdateStatistics:
        """Clip the accumulated gradient by its global norm and take the optimizer's step at ``rates``, or at a learning rate alone."""
        limit = float("inf") if self._max_gradient_norm is None else self._max_gradient_norm
        gradient_norm = float(whole(torch.nn.utils.clip_grad_norm_(self._parameters.values(), limit, foreach=True)))
        # One poisoned batch must not destroy the weights of a run that took days.
        is_finite = gradient_norm < float("inf")
        if is_finite:
            group = self.optimizer.param_groups[0]
            if isinstance(rates, Rates):
                group["lr"], group["weight_decay"] = rates
            else:
                group["lr"] = rates
            self.optimizer.step()
        return UpdateStatistics(losses, gradient_norm, is_finite)

    def __call__(self, batch: Batch, rates: Rates | float) -> UpdateStatistics:
        """One update on a batch of host tensors."""
        return self.finish(self.forward_backward(self.to_device(batch)), rates)

    def weights(self) -> dict[str, Tensor]:
        """The network's tensors, whole, on its device. Every shard asks at once."""
        return {name: whole(tensor.detach()) for name, tensor in self.agent.state_dict().items()}

    def load_weights(self, tensors: Mapping[str, Tensor]) -> None:
        """Inverse of `weights`, from any device.

        Raises:
            CheckpointError: as `load_into`.
        """
        own = self.agent.state_dict()
        fits = {name for name, tensor in tensors.items() if name in own and own[name].shape == tensor.shape}
        load_into(self.agent, {name: part_like(tensor, own[name]) if name in fits else tensor for name, tensor in tensors.items()})

    def optimizer_tensors(self) -> dict[str, Tensor]:
        """The optimizer's state as flat named tensors, whole, on the CPU: ``<parameter>/<slot>``. Every shard asks at once."""
        return state_tensors(self.optimizer, self._parameters)

    def load_optimizer_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Inverse of `optimizer_tensors`.

        Raises:
            CheckpointError: a tensor belongs to no parameter, its shape differs, or it is of another kind of optimizer.
        """
        load_state_tensors(self.optimizer, self._optimizer_kind, self._parameters, tensors)

    def _loss(self, unrolls: Batch, num_valid: Tensor) -> LossTerms | DiceTerms:
        core_reset = unrolls["core_reset"].t()
        rewards = shape_rewards(unrolls["rewards"].t(), self._algorithm.reward_shaping)
        first_reward = shape_rewards(unrolls["last_reward"], self._algorithm.reward_shaping)
        actions = unrolls["actions"].t().long()
        # A row's last action and reward are those of the row before; an episode begins without.
        last_actions = torch.cat([unrolls["last_action"].long().unsqueeze(0), actions]).masked_fill(core_reset, NO_ACTION)
        last_rewards = torch.cat([first_reward.unsqueeze(0), rewards]).masked_fill(core_reset, 0.0)
        num_unrolls = core_reset.shape[1]
        frames = None
        if "frames" in unrolls:
            frames = restack(unrolls.get("history_frames", unrolls["frames"][:, :0]), unrolls["frames"], unrolls["game_reset"])
        vectors = unrolls["observations"].transpose(0, 1) if "observations" in unrolls else None
        instructions = unrolls["instructions"].transpose(0, 1).long() if "instructions" in unrolls else None
        core_state = unrolls.get("initial_core_state", self.agent.initial_core_state(num_unrolls))
        burn_in = self._algorithm.burn_in
        if burn_in:
            head = slice(0, burn_in)
            with torch.no_grad():
                _, core_state = self.agent(
                    None if frames is None else frames[head],
                    core_reset[head],
                    core_state,
                    last_actions[head],
                    last_rewards[head],
                    None if instructions is None else instructions[head],
                    None if vectors is None else vectors[head],
                )
        rows = slice(burn_in, None)
        output, _ = self._replicas(
            None if frames is None else frames[rows],
            core_reset[rows],
            core_state,
            last_actions[rows],
            last_rewards[rows],
            None if instructions is None else instructions[rows],
            None if vectors is None else vectors[rows],
        )
        actions, rewards = actions[rows], rewards[rows]
        behaviour_logits = unrolls["behaviour_logits"].transpose(0, 1)[rows]
        terminated, row_valid = unrolls["terminated"].t()[rows], unrolls["row_valid"].t()[rows]
        if self._loss_settings.kind == "dice":
            return dice_loss(
                advantages=output.policy_logits,
                values=output.values,
                behaviour_logits=behaviour_logits,
                inverse_temperature=unrolls["inverse_temperature"].t()[rows],
                actions=actions,
                rewards=rewards,
                terminated=terminated,
                row_valid=row_valid,
                discount=self._algorithm.discount,
                algorithm=self._loss_settings,
                normaliser=num_valid,
            )
        return actor_critic_loss(
            target_logits=output.policy_logits[:-1],
            values=output.values,
            behaviour_logits=behaviour_logits,
            actions=actions,
            rewards=rewards,
            terminated=terminated,
            row_valid=row_valid,
            discount=self._algorithm.discount,
            algorithm=self._loss_settings,
            normaliser=num_valid,
        )
