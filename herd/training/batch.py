"""One batch of unrolls: typed tensors in one block of memory, which is copied to the device at once.

Legend: T agent steps (rows 0..T), B unrolls, H W C one frame, D numbers of a vector, P parameters of an action distribution, S
numbers of the core's state, M entries of a mask, L instruction words.

Unrolls are sent as [U, T, ...] and stored as [B, T, ...], so that each is copied at once. A `TrainBatch` shows the same memory
time-major, [T, B, ...], as views without copies.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from torch import Tensor

from herd.contract.unroll import DTYPES, FieldSpec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from herd.contract.unroll import UnrollLayout

ALIGNMENT = 64
"""Alignment of fields in bytes: a cache line, more than any dtype needs."""


@dataclass(frozen=True)
class TrainBatch:
    """B unrolls; the fields are those of docs/messaging.md. Per row they are time-major, without a row they are [B, ...]."""

    history_frames: Tensor | None
    """uint8 [stack - 1, B, H, W, C], the planes before row 0; None without frames."""
    frames: Tensor | None
    """uint8 [T+1, B, H, W, C], one new plane per row; None if observations are vectors only."""
    observations: Tensor | None
    """float32 [T+1, B, D], vectors; None if observations are frames only."""
    game_reset: Tensor
    """bool [T+1, B]."""
    core_reset: Tensor
    """bool [T+1, B]."""
    action_masks: Tensor | None
    """bool [T+1, B, M], what is allowed; None if these actions have no mask. Rows that belong to no game allow nothing."""
    actions: Tensor
    """[T, B, *shape], as in the space of the actions."""
    rewards: Tensor
    """float32 [T, B], raw."""
    terminated: Tensor
    """bool [T, B]."""
    truncated: Tensor
    """bool [T, B]."""
    row_valid: Tensor
    """bool [T, B]."""
    behaviour_parameters: Tensor
    """float32 [T, B, P]."""
    inverse_temperature: Tensor
    """float32 [T, B]."""
    last_action: Tensor
    """[B, *shape], before row 0; ignored where row 0 resets the core."""
    last_reward: Tensor
    """float32 [B], before row 0, raw."""
    task_ids: Tensor
    """int32 [B]."""
    is_replayed: Tensor
    """bool [B], whether the unroll comes from replay."""
    initial_core_state: Tensor | None
    """float32 [B, S], the core's state before row 0; None without a recurrent core."""
    instructions: Tensor | None
    """int16 [T+1, B, L]; None if the suite has no instructions."""
    burn_in: int
    """Leading agent steps that only update the core's state."""
    per_unroll: frozenset[str]
    """Names of the fields without a row."""
    host_core_reset: NDArray[np.bool_] | None
    """bool [B, T+1], ``core_reset`` in the host's memory; None if the host should not use it."""

    @property
    def num_unrolls(self) -> int:
        """B, the number of unrolls."""
        return self.actions.shape[1]

    @property
    def trained(self) -> Tensor:
        """Bool [T - burn_in, B]: the rows after the burn-in that enter the losses."""
        return self.row_valid[self.burn_in :]

    def part(self, start: int, stop: int) -> TrainBatch:
        """Return unrolls ``start`` to ``stop``, without a copy."""
        changes: dict[str, Any] = {
            name: tensor[start:stop] if name in self.per_unroll else tensor[:, start:stop] for name, tensor in self.tensors()
        }
        if self.host_core_reset is not None:
            changes["host_core_reset"] = self.host_core_reset[start:stop]
        return replace(self, **changes)

    def reset_rows(self, start: int, stop: int) -> list[int] | None:
        """Return the rows in unrolls ``start`` to ``stop`` with any ``core_reset``; None if the host cannot tell."""
        if self.host_core_reset is None:
            return None
        resets: NDArray[np.bool_] = np.logical_or.reduce(self.host_core_reset[:, start:stop], axis=0)
        rows: list[int] = np.flatnonzero(resets).tolist()
        return rows

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Yield every field that is not None, with its name."""
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Tensor):
                yield field.name, value


_OF_THE_WIRE = {"task_id": "task_ids"}
"""Fields of an unroll that have another name in a batch."""
_OF_THE_BATCH = (FieldSpec("is_replayed", DTYPES["|b1"], ()),)
"""Fields that unrolls do not contain; they are filled in when the batch is assembled."""
_NAMES = frozenset(field.name for field in fields(TrainBatch))


def trained_fields(layout: UnrollLayout) -> tuple[FieldSpec, ...]:
    """Return the arrays of an unroll that are used in training."""
    return tuple(field for field in layout.fields if _OF_THE_WIRE.get(field.name, field.name) in _NAMES)


class BatchBuffer:
    """The memory of one batch: arrays [B, ...] to write on the host, and the `TrainBatch` that shows them."""

    def __init__(self, layout: UnrollLayout, num_unrolls: int, *, pinned: bool = False) -> None:
        """Allocate zeroed memory; ``pinned``: page-locked, so that a GPU can copy from it asynchronously."""
        places = []
        end = 0
        for field in (*trained_fields(layout), *_OF_THE_BATCH):
            start = -(-end // ALIGNMENT) * ALIGNMENT
            end = start + num_unrolls * field.bytes_per_unroll
            places.append(_Place(field, (num_unrolls, *field.shape), start, end))
        self._places = tuple(places)
        self._burn_in = layout.burn_in
        self._num_unrolls = num_unrolls
        self._num_held = num_unrolls
        self.num_replayed = 0
        """Number of replayed unrolls; they are the last ones."""
        # Use numpy's allocator: its zeroed pages take up memory only when they are written.
        memory = torch.from_numpy(np.zeros(end, np.uint8))
        self._memory = memory.pin_memory() if pinned else memory
        self._whole = self._batch_over(self._memory, self.arrays["core_reset"])
        self._copied: torch.cuda.Event | None = None
        """Event of the last copy to a GPU, on the stream that it runs on."""

    @property
    def batch(self) -> TrainBatch:
        """The batch, on the host."""
        return self._held(self._whole)

    def set_counts(self, num_online: int, num_replayed: int) -> None:
        """Set the number of online unrolls, which come first, and of replayed ones after them. At the start all unrolls are online."""
        self._num_held = num_online + num_replayed
        self.num_replayed = num_replayed
        self.arrays["is_replayed"][...] = np.arange(self._num_unrolls) >= num_online

    @property
    def num_trained_rows(self) -> tuple[int, int]:
        """Rows of online and of replayed unrolls that enter the losses, which those of a burn-in and filled-up ones do not."""
        valid = self.arrays["row_valid"][: self._num_held, self._burn_in :].sum(axis=1)
        num_online = self._num_held - self.num_replayed
        return int(valid[:num_online].sum()), int(valid[num_online:].sum())

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """Arrays [B, ...] by the field's name on the wire, in the same memory as `batch`, on the host."""
        memory = self._memory.numpy()
        return {place.field.name: memory[place.start : place.end].view(place.field.dtype).reshape(place.shape) for place in self._places}

    def to(self, device: torch.device) -> TrainBatch:
        """Return the batch on ``device``, with one asynchronous copy if it is not there already."""
        memory = self._memory.to(device, non_blocking=True)
        if memory.is_cuda:
            self._copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._copied.record()
        if memory is self._memory:
            return self._held(self._whole)
        # A copy: this memory may be written again while the batch is still in use.
        return self._held(self._batch_over(memory, self.arrays["core_reset"].copy()))

    def wait_until_copied(self) -> None:
        """Wait until the memory may be written again, because a GPU may still be reading it."""
        if self._copied is not None:
            self._copied.synchronize()

    @classmethod
    def from_unrolls(cls, layout: UnrollLayout, arrays: Mapping[str, NDArray[Any]], *, pinned: bool = False) -> Self:
        """Return a copy of complete online unrolls."""
        buffer = cls(layout, len(arrays["actions"]), pinned=pinned)
        for name, target in buffer.arrays.items():
            if name in arrays:
                target[...] = arrays[name]
        return buffer

    def _held(self, batch: TrainBatch) -> TrainBatch:
        return batch if self._num_held == self._num_unrolls else batch.part(0, self._num_held)

    def _batch_over(self, memory: Tensor, host_core_reset: NDArray[np.bool_]) -> TrainBatch:
        tensors: dict[str, Tensor] = {}
        per_unroll = set()
        for place in self._places:
            name = _OF_THE_WIRE.get(place.field.name, place.field.name)
            tensor = memory[place.start : place.end].view(_TORCH_DTYPES[place.field.dtype.str]).view(place.shape)
            if place.field.axis == "unroll":
                per_unroll.add(name)
                tensors[name] = tensor
            else:
                tensors[name] = tensor.transpose(0, 1)
        frames = tensors.pop("frames", None)
        return TrainBatch(
            history_frames=tensors.pop("history_frames", None if frames is None else frames[:0]),
            frames=frames,
            observations=tensors.pop("observations", None),
            action_masks=tensors.pop("action_masks", None),
            initial_core_state=tensors.pop("initial_core_state", None),
            instructions=tensors.pop("instructions", None),
            burn_in=self._burn_in,
            per_unroll=frozenset(per_unroll),
            host_core_reset=host_core_reset,
            **tensors,
        )


@dataclass(frozen=True, slots=True)
class _Place:
    """The position of a field in the buffer."""

    field: FieldSpec
    shape: tuple[int, ...]
    """Shape [B, ...]."""
    start: int
    end: int
    """Offset in bytes."""


_TORCH_DTYPES = {"|u1": torch.uint8, "|b1": torch.bool, "<i2": torch.int16, "<i4": torch.int32, "<i8": torch.int64, "<f4": torch.float32}
