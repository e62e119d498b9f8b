"""Frame stacks of many environments on the device: each row contains only the newest planes.

N places, B environments of a batch, S frames in a stack, C H W one frame.
"""

from __future__ import annotations

import sys
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from torch import Tensor

from herd.networks.frame_stack import shift_in, words_as_channels

if TYPE_CHECKING:
    from collections.abc import Sequence

    from herd_inference.sessions import Span


class Where:
    """The places of a batch's B environments, in order: a few ranges of consecutive places, or single places."""

    def __init__(self, spans: Sequence[Span], device: torch.device) -> None:
        """``spans`` in ascending order."""
        self._spans = spans
        self._device = device
        ends = [0, *(number for number, (one, other) in enumerate(pairwise(spans), 1) if one[1] != other[0]), len(spans)]
        self.stretches = [slice(spans[first][0], spans[end - 1][1]) for first, end in pairwise(ends)]
        """Ranges of consecutive places."""

    @property
    def key(self) -> slice | Tensor:
        """The index of the places: a slice, which copies nothing, if they are consecutive; otherwise int64 [B] on the device."""
        if len(self.stretches) == 1:
            return self.stretches[0]
        return torch.from_numpy(np.concatenate([np.arange(*span) for span in self._spans])).to(self._device)


class Stacks(Protocol):
    """The frame stack of every environment at its last row."""

    def restore(self, where: slice, stacks: Tensor) -> None:
        """Store the planes before the newest ones of ``stacks``, uint8 [E, S * C, H, W] on the device, oldest first."""

    def push(self, where: Where, newest: Tensor, game_reset: Tensor) -> Tensor:
        """Add the next row.

        Args:
            where: places of the row's environments.
            newest: uint8 [B, C, H, W] on the device.
            game_reset: bool [B] on the CPU: the planes before it are 0.

        Returns:
            uint8 [B, S * C, H, W], oldest first, valid until the next call.
        """


def make_stacks(num_places: int, frame_stack: int, frame_shape: tuple[int, int, int], device: torch.device) -> Stacks:
    """Allocate memory for ``num_places`` environments; ``frame_shape`` is (H, W, C)."""
    height, width, channels = frame_shape
    if frame_stack == 4 and channels == 1 and sys.byteorder == "little":
        return WordStacks(num_places, height, width, device)
    return PlaneStacks(num_places, frame_stack, frame_shape, device)


class WordStacks:
    """Four grey planes in one 32-bit word per pixel, which a network reads as channels_last memory without reordering."""

    def __init__(self, num_places: int, height: int, width: int, device: torch.device) -> None:
        # Uninitialised memory is never read, because every session starts by writing its stacks.
        self._words = torch.empty(num_places, height, width, dtype=torch.int32, device=device)
        self._channels = words_as_channels(self._words)
        self.pushes_in_place = device.type == "cpu"
        """Index range by range, or all at once in a copy, because on a GPU launches cost more than copies."""

    def restore(self, where: slice, stacks: Tensor) -> None:
        """See `Stacks`."""
        self._channels[where, 1:] = stacks[:, :-1]  # the next push shifts them by one

    def push(self, where: Where, newest: Tensor, game_reset: Tensor) -> Tensor:
        """See `Stacks`."""
        planes = newest.squeeze(1).to(torch.int32)
        if len(where.stretches) == 1 or self.pushes_in_place:
            return words_as_channels(self._push_in_place(where.stretches, planes, game_reset))
        key = where.key
        words = self._words[key]
        shift_in(words, planes, game_reset)
        self._words[key] = words
        return words_as_channels(words)

    def _push_in_place(self, stretches: Sequence[slice], planes: Tensor, game_reset: Tensor) -> Tensor:
        first, pushed = 0, []
        for stretch in stretches:
            words = self._words[stretch]
            end = first + len(words)
            shift_in(words, planes[first:end], game_reset[first:end])
            pushed.append(words)
            first = end
        return pushed[0] if len(pushed) == 1 else torch.cat(pushed)


class PlaneStacks:
    """Frame stacks for any S and C."""

    def __init__(self, num_places: int, frame_stack: int, frame_shape: tuple[int, int, int], device: torch.device) -> None:
        height, width, self._channels = frame_shape
        self._planes = torch.empty(num_places, frame_stack * self._channels, height, width, dtype=torch.uint8, device=device)

    def restore(self, where: slice, stacks: Tensor) -> None:
        """See `Stacks`."""
        self._planes[where, self._channels :] = stacks[:, : -self._channels]

    def push(self, where: Where, newest: Tensor, game_reset: Tensor) -> Tensor:
        """See `Stacks`."""
        key = where.key
        stacks = torch.cat([self._planes[key][:, self._channels :], newest], dim=1)
        if game_reset.any():
            stacks[game_reset.nonzero().squeeze(1).to(stacks.device), : -self._channels] = 0
        self._planes[key] = stacks
        return stacks
