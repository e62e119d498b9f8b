"""Publishes weights: each shard its slice of the parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from herd.run.tensors import encode_weights, is_finite
from herd.training.readback import Readback

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from herd.config.run import RunSettings
    from herd.telemetry.telemetry import Telemetry
    from herd.training.trainer import Trainer
    from herd_learner.group.collectives import ShardGroup
    from herd_learner.intake.io_thread import IoThread


class Version(NamedTuple):
    """Weights as they are published."""

    lineage: int
    learner_updates: int
    payload: bytes


class Publication:
    """A version is complete when all shards have published theirs."""

    def __init__(self, settings: RunSettings, trainer: Trainer, group: ShardGroup, io: IoThread, telemetry: Telemetry) -> None:
        self._trainer = trainer
        self._io = io
        self._telemetry = telemetry
        self._dtype = torch.bfloat16 if settings.learner.weights_dtype == "bfloat16" else torch.float32
        # If credit bounds the lag, it is granted next, for unrolls that must not begin with the previous version. In a run that repeats,
        # the actor sends nothing before it has this one.
        self._waits = settings.actor.credit == "before_unroll" or settings.repeats
        num_bytes = {name: tensor.numel() * tensor.element_size() for name, tensor in trainer.agent.state_dict().items()}
        self._names = deal_tensors(num_bytes, group.size)[group.rank]
        self._versions: Readback[Version | None] = Readback()
        self.is_unusable = False
        """Whether weights were not published because they are not finite. No later update can mend them."""

    @property
    def may_follow(self) -> bool:
        """Whether the version before has been sent."""
        return self._io.is_published and not self._versions.is_under_way

    def publish(self, lineage: int, learner_updates: int) -> None:
        """Begin to publish the weights as they are, if they are finite; on a GPU they are read back later."""
        tensors, names, dtype = self._trainer.weights(), self._names, self._dtype

        def encoded(here: list[Tensor]) -> Version | None:
            if not all(map(is_finite, here)):
                return None
            return Version(lineage, learner_updates, encode_weights(dict(zip(names, here, strict=True)), dtype))

        chosen = [tensors[name].detach() for name in names]
        # Statistics in float64 and counts in int64 are not rounded.
        self._versions.send([tensor.to(dtype) if tensor.dtype == torch.float32 else tensor for tensor in chosen], encoded)
        self.hand_over(wait=self._waits)

    def hand_over(self, *, wait: bool = False) -> None:
        """Give the I/O thread the versions that have been read back; with ``wait``, all."""
        for version in self._versions.arrived(wait=wait):
            if version is None:
                self.is_unusable = True
                continue
            self._io.publish(*version)
            self._telemetry.set_weights_version(version.lineage, version.learner_updates)


def deal_tensors(num_bytes: Mapping[str, int], num_shards: int) -> list[list[str]]:
    """Return names by shard: the largest tensor goes to the shard with the fewest bytes, equal ones by name, so all shards agree."""
    slices: list[list[str]] = [[] for _ in range(num_shards)]
    totals = [0] * num_shards
    for name in sorted(num_bytes, key=lambda name: (-num_bytes[name], name)):
        least = totals.index(min(totals))
        slices[least].append(name)
        totals[least] += num_bytes[name]
    return slices
