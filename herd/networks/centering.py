"""The average image of a run, which the first convolution sees every frame relative to.

Shapes: R rows, B unrolls, S planes in a stack, C channels of a plane, H x W pixels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Callable

SLOWEST_RATE = 1e-4
"""Share of the newest batch in the average once that has settled, so that the image of a new level is learnt too."""
ROW_STRIDE = 4
"""One row in so many enters the average: neighbouring rows look alike, and reading them all costs 3 % of an update."""
_LEAST_DEVIATION = 1.0
"""In pixel units. A picture that never changes is not magnified."""


class AverageImage(nn.Module):
    """Mean of every pixel and standard deviation of all pixels about it, over what the learner was given.

    A network then sees (pixels - mean) / deviation, as random network distillation does (arXiv:1810.12894, section 2.4), but with one
    deviation for the whole image: one for each pixel would magnify pixels that almost never change. Whatever stands still in every
    frame (background, walls) is 0, and so pushes no filter and no unit in the same direction at every update. What moves is all that is
    left, at a size that does not depend on how much of the screen it covers.

    Buffers, which belong to the weights: actors compute with those that the learner published.
    """

    mean: Tensor
    """float32 [C, H, W], 0 to 255."""
    deviation: Tensor
    """float32, a scalar, in the same unit."""
    num_batches: Tensor
    """int64, a scalar."""

    def __init__(self, channels: int, height: int, width: int) -> None:
        """Before the first batch: mean 0, deviation 255."""
        super().__init__()
        self.register_buffer("mean", torch.zeros(channels, height, width))
        self.register_buffer("deviation", torch.tensor(255.0))
        self.register_buffer("num_batches", torch.zeros((), dtype=torch.int64))

    def centred(self, pixels: Tensor, dtype: torch.dtype) -> Tensor:
        """uint8 [N, S * C, H, W] to ``dtype``, minus the mean in whole numbers, which are exact in bfloat16. Not yet divided."""
        stack = pixels.shape[1] // self.mean.shape[0]
        # In the memory order of the pixels: an element-wise operation would otherwise walk through one of them in strides.
        mean = self.mean.round().to(dtype).repeat(stack, 1, 1).unsqueeze(0).contiguous(memory_format=torch.channels_last)
        return pixels.to(dtype).sub_(mean)

    @torch.no_grad()
    def follow(self, planes: Tensor, add_up: Callable[[Tensor], Tensor]) -> None:
        """Take in a batch: uint8 [R, B, H, W, C], one plane a row, this shard's part.

        ``add_up`` gives the sum over the shards, which all end with the same numbers. Batch n counts 1/n, and ``SLOWEST_RATE`` at least.
        """
        some = planes[::ROW_STRIDE].flatten(0, 1).permute(0, 3, 1, 2)
        total = add_up(torch.cat([some.sum(0, dtype=torch.float64).flatten(), some.new_full((1,), len(some), dtype=torch.float64)]))
        rows = total[-1]
        rate = (1.0 / (self.num_batches + 1)).clamp(min=SLOWEST_RATE)
        self.mean.lerp_((total[:-1] / rows).view_as(self.mean).to(self.mean.dtype), rate)
        squares = add_up((some.float() - self.mean).square_().sum(dtype=torch.float64))
        variance = squares / (rows * self.mean.numel())
        self.deviation.copy_(self.deviation.square().lerp(variance.to(self.deviation.dtype), rate).sqrt().clamp(min=_LEAST_DEVIATION))
        self.num_batches.add_(1)
