"""One learner update: the gradient of a batch, then the optimizer's step. Uses no sockets.

B unrolls in the batch, b unrolls in a micro-batch.
"""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from herd.agent import build_agent
from herd.components.auxiliary import AUXILIARIES
from herd.components.losses import LOSSES
from herd.components.losses.api import LossOutput, Metric
from herd.components.optimizers import OPTIMIZERS
from herd.components.user_code import UserCodeError
from herd.components.value_scaling import VALUE_SCALINGS
from herd.components.value_scaling.api import VALUE_STATISTICS, Statistics, UnrollTargets, ValueScaling, unroll_targets
from herd.networks.centering import AverageImage
from herd.training.diagnostics import Diagnostics
from herd.training.forward import Replayer, WithAuxiliary, run_forward
from herd.training.metrics import TOTAL, Measured, MetricSums, of_online_rows
from herd.training.parallel import OneShard, ParallelModel
from herd.training.readback import Readback
from herd.training.state import ModuleState, OptimizerState, Stateful, ValueStatistics, guarded_step

if TYPE_CHECKING:
    from herd.components.auxiliary.api import Auxiliary
    from herd.components.losses import LossSettings
    from herd.components.losses.api import Forward, Loss
    from herd.components.optimizers import OptimizerSettings, Rates
    from herd.config.run import RunSettings
    from herd.contract.spaces import EnvSpec
    from herd.training.batch import BatchBuffer, TrainBatch
    from herd.training.diagnostics import Health, Seen
    from herd.training.forward import Network
    from herd.training.parallel import Shards

MODEL, AUXILIARY = "model", "auxiliary"
"""Parts of the state; the second is also the prefix of the names of its parameters."""

Losses = dict[str, Measured]
"""The metrics of the loss for one batch, per trained row if so defined, independent of the reduction that is optimized."""


class Launched(NamedTuple):
    """Work queued on the device."""

    metrics: MetricSums
    """Metrics of this shard."""
    targets: list[UnrollTargets]
    """Targets of each micro-batch; empty if no statistics need them."""
    batch: TrainBatch


@dataclass(frozen=True, slots=True)
class UpdateStatistics:
    """The statistics of one update."""

    losses: Losses
    gradient_norm: float
    is_finite: bool
    """False if the gradient was not finite and the update was skipped."""
    is_clipped: bool = False
    """Whether the gradient was clipped."""
    health: Health | None = None
    """The diagnostics, measured at regular intervals; None for other updates and for skipped ones."""


class Trainer:
    """Agent, optimizer and their update, on a whole batch or, together with other shards, on a shard's part of it.

    ``launch`` and ``finish`` are one update. Both only queue work on a GPU: nothing in them depends on a number that the host would have to
    wait for. The statistics of an update are returned by a later call of ``arrived``; on a CPU, by the next one.
    """

    def __init__(
        self, settings: RunSettings, spec: EnvSpec, device: torch.device, precision: torch.dtype, shards: Shards | None = None
    ) -> None:
        """Create agent and optimizer; ``shards`` share each batch, None for a single learner.

        Raises:
            UserCodeError: the user's loss cannot be used.
        """
        self._shards = shards or OneShard()
        self._algorithm = settings.algorithm
        self._loss = _make_loss(settings.loss)
        self._auxiliary: Auxiliary | None = AUXILIARIES.make(settings.auxiliary)
        self._reduction = settings.loss.reduction
        self._max_gradient_norm = settings.optimizer.max_gradient_norm
        self._readback: Readback[UpdateStatistics] = Readback()
        self._health_interval = settings.learner.health_interval_updates
        self._num_steps = 0
        self._has_replay = settings.replay.kind != "none"
        self._trains_online = settings.replay.train_online
        self._uses_per_batch = settings.learner.sample_reuse
        self._uses_left = 0
        """Updates that are still to be done on the batch that was begun."""
        self._num_replayed = 0
        """Unrolls of the batch that was begun."""
        replays_episodes = settings.replay.kind == "shared" and settings.network.core.state_size() > 0
        self._replayer = Replayer() if replays_episodes else None
        self._device = device
        self._copies = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        self._batch_size = settings.learner.batch_size
        self._own_micro_batch_size = settings.learner.micro_batch_size or settings.network.torso.micro_batch(device.type)
        self._micro_batch_size = self._batch_size if settings.loss.needs_whole_batch else self._own_micro_batch_size
        torch.manual_seed(settings.seed)
        self.agent = build_agent(settings, spec).to(device)
        self.agent.compute_dtype = precision
        self._average = next((module for module in self.agent.modules() if isinstance(module, AverageImage)), None)
        # After the agent, so that its initial parameters are the same with and without an auxiliary loss.
        head = None if self._auxiliary is None else self._auxiliary.head(spec, self.agent.num_features).to(device)
        self._value_scaling: ValueScaling = VALUE_SCALINGS.make(settings.value_scaling, len(spec.task_names))
        self._statistics = ValueStatistics(self._value_scaling.initial(device), device)
        mode = settings.learner.compile
        self._compiled_part = None if mode == "off" else torch.compile(self._part, mode=mode, dynamic=False)
        # A shard's part of a batch: online and replayed unrolls are distributed separately.
        per_shard = (-(-number // self._shards.size) for number in (settings.num_online_unrolls, settings.num_replayed_unrolls))
        self._most_unrolls = sum(per_shard)
        network = self.agent if head is None else WithAuxiliary(self.agent, head)
        self._network = ParallelModel(network, self._shards, device)
        self._parameters = dict(self.agent.named_parameters())
        if head is not None:
            self._parameters |= {f"{AUXILIARY}.{name}": own for name, own in head.named_parameters()}
        self.optimizer: torch.optim.Optimizer = OPTIMIZERS.make(settings.optimizer, self._parameters.values())
        self.parts: dict[str, Stateful] = {
            MODEL: ModuleState(self.agent),
            AUXILIARY: ModuleState(head, "the auxiliary head does not fit: auxiliary.kind has changed"),
            "optimizer": OptimizerState(self.optimizer, settings.optimizer, self._parameters),
            VALUE_STATISTICS: self._statistics,
        }
        """The state by file of a checkpoint, in the order in which it is loaded."""

    def update_hyperparameters(self, loss: LossSettings, optimizer: OptimizerSettings) -> None:
        """Use other settings of the same kinds from the next update on; weights and moments are kept."""
        self._loss = _make_loss(loss)
        self._reduction = loss.reduction
        self._micro_batch_size = self._batch_size if loss.needs_whole_batch else self._own_micro_batch_size
        self._max_gradient_norm = optimizer.max_gradient_norm
        # Take the constants of a new optimizer and set them in the existing parameter group, which keeps its state.
        self.optimizer.param_groups[0].update(OPTIMIZERS.make(optimizer, self._parameters.values()).defaults)

    def to_device(self, buffer: BatchBuffer) -> TrainBatch:
        """Return the batch on the device, without a copy if it is there already. On a GPU the copy overlaps with computation."""
        with nullcontext() if self._copies is None else torch.cuda.stream(self._copies):
            return buffer.to(self._device)

    def begin(self, batch: TrainBatch, num_replayed: int) -> None:
        """Prepare a batch; call this only before the first update on it.

        Replayed episodes continue from the previous batch, and the average image is updated with this batch.
        """
        self._num_replayed = num_replayed
        self._uses_left = self._uses_per_batch
        if self._replayer is None and self._average is None:
            return
        self._wait_for_copy(batch)
        if self._replayer is not None:
            self._replayer.begin(batch, num_replayed)
        if self._average is not None and batch.frames is not None:
            # Rows that belong to no game are black, and those of a burn-in repeat others.
            self._average.update(batch.frames[batch.burn_in : -1], batch.trained, self._shards.all_reduce_sum)

    def launch(self, batch: TrainBatch) -> Launched:
        """Accumulate the gradient of the batch, in micro-batches. On a GPU it returns as soon as all work is queued there."""
        self._wait_for_copy(batch)
        self.optimizer.zero_grad(set_to_none=True)
        num_trained = self._shards.all_reduce_sum(batch.trained.sum()).clamp(min=1)
        launched = Launched(MetricSums(), [], batch)
        next_core_states = []
        run_part = self._part
        if self._compiled_part is not None:
            run_part = self._compiled_part
            # Or every other pattern of resets would be compiled anew.
            batch = replace(batch, host_core_reset=None)
            # CUDA graphs write over what the update before left; gradients were let go of above.
            torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        starts = range(0, batch.num_unrolls, self._micro_batch_size)
        for start in starts:
            part = batch.part(start, start + self._micro_batch_size)
            with self._network.reducing(start == starts[-1]):
                loss, output, next_core_state = run_part(part, self._statistics.current, num_trained)
                self._network.backward(loss)
            if self._replayer is not None:
                next_core_states.append(next_core_state.clone())  # a compiled part may overwrite its outputs
            if TOTAL in output.metrics:
                raise UserCodeError(f"the loss names a metric {TOTAL}, which is the whole loss; choose another name")
            launched.metrics.add({TOTAL: Metric(output.total, part.trained.sum(), cost=1.0), **output.metrics})
            if self._value_scaling.has_statistics:
                if output.targets is None:
                    raise UserCodeError("value_scaling.kind popart needs a loss.function that returns targets (docs/extending.md)")
                rows = part.trained if output.accepted is None else output.accepted
                launched.targets.append(unroll_targets(output.targets, rows, part.task_ids, part.is_replayed))
        if self._replayer is not None:
            self._replayer.end(torch.cat(next_core_states))
        return launched

    def finish(self, launched: Launched, rates: Rates) -> None:
        """Clip the accumulated gradient by its global norm and do the optimizer's step at ``rates``.

        If the gradient is not finite, nothing changes: one bad batch must not destroy the weights of a run that took days.
        """
        gradients = [parameter.grad for parameter in self._parameters.values() if parameter.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients, foreach=True)
        is_finite = norm.isfinite()
        limit = math.inf if self._max_gradient_norm is None else self._max_gradient_norm
        if self._max_gradient_norm is not None:
            torch.nn.utils.clip_grads_with_norm_(self._parameters.values(), limit, norm, foreach=True)
        diagnostics = self._diagnose(launched.batch)
        group = self.optimizer.param_groups[0]
        group["lr"], group["weight_decay"] = rates
        guarded_step(self.optimizer, is_finite)
        seen = None if diagnostics is None else diagnostics.after()
        self._update_statistics(launched.targets, is_finite)
        self._uses_left -= 1
        if self._uses_left == 0:
            self._update_moments(launched.batch, is_finite)
        self._send(launched.metrics, [norm, is_finite, norm > limit], seen)

    def _send(self, metrics: MetricSums, of_the_step: list[Tensor], seen: Seen | None) -> None:
        """What the host is told of an update."""
        sums = metrics.sums(self._shards)
        parts = [sums, torch.stack([number.double() for number in of_the_step]), *([] if seen is None else [seen.numbers])]
        num_sums, leaves_out = len(sums), self._has_replay and not self._num_replayed

        def read(here: list[Tensor]) -> UpdateStatistics:
            numbers = here[0].tolist()
            losses = metrics.measured(numbers[:num_sums])
            norm, is_finite, is_longer, *looked = numbers[num_sums:]
            return UpdateStatistics(
                of_online_rows(losses) if leaves_out else losses,
                norm,
                bool(is_finite),
                bool(is_finite and is_longer),
                None if seen is None or not is_finite else seen.health(looked),
            )

        self._readback.send([torch.cat([part.double() for part in parts])], read)

    def arrived(self, *, wait: bool = False) -> list[UpdateStatistics]:
        """Return the statistics that have arrived since the last call, in order; with ``wait``, those of all updates.

        On a GPU it keeps the host from running further ahead than `MAX_UPDATES_AHEAD`: call it after every update.
        """
        return self._readback.arrived(wait=wait)

    def __call__(self, buffer: BatchBuffer, rates: Rates) -> UpdateStatistics:
        """Do one update on a batch in the host's memory, and wait for its statistics."""
        batch = self.to_device(buffer)
        self.begin(batch, buffer.num_replayed)
        self.finish(self.launch(batch), rates)
        return self.arrived(wait=True)[-1]

    def weights(self) -> dict[str, Tensor]:
        """Return the agent's tensors, on its device."""
        return {name: tensor.detach() for name, tensor in self.agent.state_dict().items()}

    def values_by_task(self) -> dict[str, list[float]]:
        """Return the value scaling's numbers for the learning curve, one for each task; empty if it has no state."""
        return self._value_scaling.by_task(self._statistics.current)

    def _wait_for_copy(self, batch: TrainBatch) -> None:
        if self._copies is not None:
            computing = torch.cuda.current_stream(self._device)
            computing.wait_stream(self._copies)
            batch.actions.record_stream(computing)  # all fields share one block of memory

    def _part(self, part: TrainBatch, statistics: Statistics, num_trained: Tensor) -> tuple[Tensor, LossOutput, Tensor]:
        """Return the scalar to differentiate for a micro-batch, the loss's output, and the initial core states of the next unrolls."""
        forward = self._forward(part, self._network, statistics, num_trained)
        output = self._loss(forward)
        if self._auxiliary is not None:
            output = self._auxiliary.added_to(output, forward)
        total = output.total / num_trained if self._reduction == "mean" else output.total
        return total, output, forward.next_core_state

    def _forward(self, part: TrainBatch, network: Network, statistics: Statistics, num_trained: Tensor) -> Forward:
        return run_forward(
            part,
            agent=self.agent,
            network=network,
            algorithm=self._algorithm,
            value_scaling=self._value_scaling,
            statistics=statistics,
            num_trained=num_trained,
            has_replay=self._has_replay,
            trains_online=self._trains_online,
        )

    def _diagnose(self, batch: TrainBatch) -> Diagnostics | None:
        """Start the measurement before a step, if one is due."""
        self._num_steps += 1
        if self._num_steps % self._health_interval:
            return None
        parts = [batch.part(start, start + self._micro_batch_size) for start in range(0, batch.num_unrolls, self._micro_batch_size)]
        num_trained = batch.trained.sum().clamp(min=1)

        def forward(part: TrainBatch) -> Forward:
            return self._forward(part, self._network, self._statistics.current, num_trained)

        return Diagnostics(parts, forward, agent=self.agent, loss=self._loss, shards=self._shards)

    def _update_statistics(self, parts: list[UnrollTargets], is_taken: Tensor) -> None:
        """Update the statistics with the targets of all shards, and the value layer with them, if the step was taken."""
        if not parts:
            return
        mine = UnrollTargets(*(torch.cat(tensors) for tensors in zip(*parts, strict=True)))
        before = self._statistics.current
        updated = self._value_scaling.updated(before, self._of_all_shards(mine))
        after = {name: torch.where(is_taken, updated[name], tensor) for name, tensor in before.items()}
        self._value_scaling.rescale(self.agent.value_head, before, after)
        self._statistics.current = after

    def _update_moments(self, batch: TrainBatch, is_taken: Tensor) -> None:
        """Update the moments of the observations, if the step was taken.

        Only after the last update on a batch, so that all updates on it see the same inputs. Each row of a game that was acted on counts
        once, in the unroll whose new steps begin with it: rows of a burn-in repeat others, and rows that are not valid are often empty.
        """
        if self.agent.moments is not None and batch.observations is not None:
            self.agent.moments.update(batch.observations[batch.burn_in : -1], batch.trained & is_taken, self._shards.all_reduce_sum)

    def _of_all_shards(self, mine: UnrollTargets) -> UnrollTargets:
        """Gather the targets in rank order. Parts of a batch differ by at most one unroll; a shorter part is padded with weight 0."""
        if self._shards.size == 1:
            return mine
        missing = self._most_unrolls - len(mine.mean)
        padded = (torch.nn.functional.pad(tensor.double(), (0, missing)) for tensor in mine)
        mean, mean_square, num_rows, task_ids, is_replayed = (self._shards.all_gather(tensor).flatten() for tensor in padded)
        return UnrollTargets(mean, mean_square, num_rows, task_ids.long(), is_replayed.bool())


def _make_loss(settings: LossSettings) -> Loss:
    """Return the loss of the settings; UserCodeError if it is the user's own and cannot be used."""
    settings.check()
    return partial(LOSSES.load(settings), settings=settings)
