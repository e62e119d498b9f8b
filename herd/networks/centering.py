"""Running averages of a run's observations: the network sees pictures and vectors relative to them.

Shapes: R rows, B unrolls, S planes in a stack, C channels of a plane, H x W pixels, D numbers of a vector.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Callable

SLOWEST_RATE = 1e-4
"""Final weight of the newest batch in the average, so that the average also adapts to new levels."""
ROW_STRIDE = 4
"""Only one of this many rows enters the average: neighbouring rows are similar, and reading all of them would cost 3 % of an update."""
LARGEST_PIXEL = 5.0
"""Limit of a normalised pixel, in deviations: one that was constant so far must not outweigh all others."""
LARGEST_NORMALIZED = 10.0
"""Limit of a normalised number of a vector, in deviations: one that was constant so far must not outweigh all others."""
_GRID_STRIDE = 12
"""Only one of this many rows and columns of a plane is looked at first."""
_MIN_VECTOR_DEVIATION = 1e-4
"""Lower bound of the deviation of a number of a vector, in its own unit."""
_MIN_DEVIATION = 1.0
"""Lower bound of a pixel's deviation, in its own unit."""


class _Planes(NamedTuple):
    """What normalises a stack of planes: [1, S * C, H, W], in the memory order of pixels."""

    lowest: Tensor
    """uint8; smaller pixels are set to it."""
    highest: Tensor
    """uint8; larger pixels are set to it."""
    mean: Tensor
    """Rounded, so that the difference is exact in bfloat16."""
    scale: Tensor
    """1 / deviation."""


class _Running(nn.Module):
    """A mean and a standard deviation over the learner's batches. The buffers belong to the weights: actors use the published ones."""

    mean: Tensor
    deviation: Tensor
    num_batches: Tensor
    """int64, a scalar."""

    def __init__(self, mean: Tensor, deviation: Tensor, lowest_deviation: float) -> None:
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("deviation", deviation)
        self.register_buffer("num_batches", torch.zeros((), dtype=torch.int64))
        self._lowest_deviation = lowest_deviation

    def _take(self, rows: Tensor, counts: Tensor, all_reduce_sum: Callable[[Tensor], Tensor]) -> None:
        """Update with this shard's part of a batch, of which the rows [N, *shape of the mean] count where ``counts``, bool [N], does.

        ``all_reduce_sum`` returns the sum over the shards, so that all get the same numbers. Batch n has weight 1/n, and at least
        ``SLOWEST_RATE``. Nothing changes if no row counts.
        """
        weights = counts.to(rows.dtype).view(-1, *(1 for _ in self.mean.shape))
        sums = [(rows * weights).sum(0, dtype=torch.float64).flatten(), counts.sum(dtype=torch.float64).view(1)]
        total = all_reduce_sum(torch.cat(sums))
        num_rows = total[-1]
        rate = (1.0 / (self.num_batches.double() + 1)).clamp(min=SLOWEST_RATE).to(self.mean.dtype)
        mean = self.mean.lerp((total[:-1] / num_rows).view_as(self.mean).to(self.mean.dtype), rate)
        # Exact for a weighted mean: the old mass around the new mean is its variance plus the square of the shift.
        around = all_reduce_sum((rows - mean).square_().mul_(weights).sum(0, dtype=torch.float64)) / num_rows
        variance = (self.deviation.square() + (self.mean - mean).square()).lerp(around.to(mean.dtype), rate)
        deviation = variance.sqrt().clamp(min=self._lowest_deviation)
        for own, updated in ((self.mean, mean), (self.deviation, deviation), (self.num_batches, self.num_batches + 1)):
            own.copy_(torch.where(num_rows > 0, updated, own))


class AverageImage(_Running):
    """The mean and the standard deviation of every pixel, over the learner's batches.

    The network sees (pixels - mean) / deviation, at most `LARGEST_PIXEL` in size, as in random network distillation (arXiv:1810.12894,
    section 2.4). Static parts of the picture (background, walls) become 0, so they do not move any filter or unit in the same direction at
    every update. A small thing that moves over a static background, such as a ball, is as large as one that covers half of the picture.

    ``mean`` is float32 [C, H, W], 0 to 255, and ``deviation`` in the same unit, at least 1, so that a pixel that never changes is not
    amplified.
    """

    def __init__(self, channels: int, height: int, width: int) -> None:
        """Start with mean 0 and deviation 255."""
        shape = (channels, height, width)
        super().__init__(torch.zeros(shape), torch.full(shape, 255.0), _MIN_DEVIATION)
        self._kept: tuple[Tensor, Tensor, _Planes] | None = None

    def normalised(self, pixels: Tensor, dtype: torch.dtype) -> Tensor:
        """Normalise uint8 [N, S * C, H, W], in ``dtype``.

        Older planes that are black everywhere, as those before the first frame of a game are, become 0: they count as the average image.
        Black minus a bright average would be the largest input that the network ever gets, at the first rows of every game.
        """
        channels = len(self.mean)
        stack = pixels.shape[1] // channels
        planes = self._kept_planes(stack, dtype) if _reads_freely(pixels) and not torch.is_grad_enabled() else self._planes(stack, dtype)
        # Limited as bytes, which on a CPU takes a fifth of the time.
        images = pixels.clamp(planes.lowest, planes.highest).to(dtype).sub_(planes.mean).mul_(planes.scale)
        if stack > 1:
            self._clear_missing(images[:, :-channels], pixels[:, :-channels])
        return images

    def _kept_planes(self, stack: int, dtype: torch.dtype) -> _Planes:
        """Return those of the last call while the buffers are equal to that call's.

        An actor plays many rows with the same weights, and the planes of a row of 16 games take half as long to prepare as to use.
        """
        if self._kept is not None:
            mean, deviation, planes = self._kept
            is_same = planes.mean.dtype == dtype and planes.mean.shape[1] == stack * len(self.mean)
            if is_same and torch.equal(mean, self.mean) and torch.equal(deviation, self.deviation):
                return planes
        planes = self._planes(stack, dtype)
        self._kept = (self.mean.clone(), self.deviation.clone(), planes)
        return planes

    def _planes(self, stack: int, dtype: torch.dtype) -> _Planes:
        def stacked(plane: Tensor) -> Tensor:
            # In the memory order of the pixels; otherwise an element-wise operation would access one of them in strides.
            return plane.permute(1, 2, 0).unsqueeze(2).expand(-1, -1, stack, -1).contiguous().flatten(2).permute(2, 0, 1).unsqueeze(0)

        mean, bound = self.mean.round(), (LARGEST_PIXEL * self.deviation).floor()
        lowest, highest = ((mean + side * bound).clamp(0, 255).to(torch.uint8) for side in (-1, 1))
        return _Planes(*map(stacked, (lowest, highest, mean.to(dtype), self.deviation.reciprocal().to(dtype))))

    def _clear_missing(self, images: Tensor, pixels: Tensor) -> None:
        """Set the planes of ``images`` to 0 that are black everywhere in ``pixels``; both are [N, (S - 1) * C, H, W]."""
        if not _reads_freely(pixels):
            images.mul_(self._is_present(pixels))
            return
        # Reading every pixel again would cost a sixth of the first convolution. Almost every plane has a pixel of a coarse grid.
        some = pixels[:, :, ::_GRID_STRIDE, ::_GRID_STRIDE].amax((2, 3))
        if not some.all():
            for row in (some == 0).any(1).nonzero().flatten().tolist():
                images[row : row + 1].mul_(self._is_present(pixels[row : row + 1]))

    def _is_present(self, pixels: Tensor) -> Tensor:
        """Return whether each plane has a pixel above 0: uint8 [N, s * C, H, W] -> bool [N, s * C, 1, 1]."""
        channels = len(self.mean)
        is_lit = pixels.amax((2, 3)).reshape(pixels.shape[0], -1, channels).amax(2, keepdim=True) > 0
        return is_lit.expand(-1, -1, channels).flatten(1)[:, :, None, None]

    @torch.no_grad()
    def update(self, planes: Tensor, counts: Tensor, all_reduce_sum: Callable[[Tensor], Tensor]) -> None:
        """Update with the planes uint8 [R, B, H, W, C] of this shard's part of a batch, one per row, where ``counts``, bool [R, B]."""
        some = planes[::ROW_STRIDE].flatten(0, 1).permute(0, 3, 1, 2)
        self._take(some, counts[::ROW_STRIDE].flatten(), all_reduce_sum)


def _reads_freely(pixels: Tensor) -> bool:
    """Return whether the host may read a value of ``pixels`` without waiting for a device, and outside a traced graph."""
    return pixels.device.type == "cpu" and not torch.compiler.is_compiling()


class RunningMoments(_Running):
    """The mean and the standard deviation of each number of the observations' vector, over the learner's batches.

    The network sees (x - mean) / deviation, at most `LARGEST_NORMALIZED` in size. The buffers, [D], are float64, which is published as it
    is, because a mean that is rounded to bfloat16 may be wrong by many deviations.
    """

    def __init__(self, size: int) -> None:
        """Start with mean 0 and deviation 1."""
        super().__init__(torch.zeros(size, dtype=torch.float64), torch.ones(size, dtype=torch.float64), _MIN_VECTOR_DEVIATION)

    def forward(self, vectors: Tensor) -> Tensor:
        """Normalise float32 [N, D]."""
        return ((vectors - self.mean) / self.deviation).clamp(-LARGEST_NORMALIZED, LARGEST_NORMALIZED).to(vectors.dtype)

    @torch.no_grad()
    def update(self, vectors: Tensor, counts: Tensor, all_reduce_sum: Callable[[Tensor], Tensor]) -> None:
        """Update with the vectors float32 [R, B, D] of this shard's part of a batch where ``counts``, bool [R, B]."""
        self._take(vectors.flatten(0, 1).double(), counts.flatten(), all_reduce_sum)
