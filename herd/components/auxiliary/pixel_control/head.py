"""The head of pixel control: turns features into action values for each cell of the picture (PopArt's appendix, arXiv:1809.04474).

Shapes: T rows, B unrolls, N = T * B, A actions, F features, Y x X cells.

For 72 x 96 pixels in cells of 4: a layer to 6 x 9 x 32, a deconvolution 3x3 to 8 x 11 x 32, then two of 4x4 with stride 2 to 18 x 24,
one of a single channel for V and one of A channels for the advantages. They read the same image, so here they are one of 1 + A channels.
"""

from __future__ import annotations

import torch.nn.functional as F  # noqa: N812 - the field's name for it
from torch import Tensor, nn

from herd.networks.layers import RELU_GAIN, Deconvolution, Dense

CHANNELS = 32


class PixelControlHead(nn.Module):
    """Dueling action values of every cell."""

    def __init__(self, num_features: int, num_actions: int, grid: tuple[int, int]) -> None:
        """``grid``: Y and X, even and at least 8."""
        super().__init__()
        # From the output backwards: 4x4 with stride 2 turns n into 2 n + 2, 3x3 turns n into n + 2.
        self._first = (grid[0] // 2 - 3, grid[1] // 2 - 3)
        self.dense = Dense(num_features, self._first[0] * self._first[1] * CHANNELS)
        self.hidden = Deconvolution(CHANNELS, CHANNELS, 3, gain=RELU_GAIN)
        # Pseudo-rewards are small, so values start near 0 for features of any scale.
        self.dueling = Deconvolution(CHANNELS, 1 + num_actions, 4, stride=2, gain=0.01)

    def forward(self, features: Tensor) -> Tensor:
        """float32 [T, B, F] -> [T, B, A, Y, X]: ``Q = V + A - mean A`` (arXiv:1511.06581, equation 9)."""
        hidden = F.relu_(self.dense(features.flatten(0, 1)))
        images = hidden.view(-1, *self._first, CHANNELS).permute(0, 3, 1, 2)
        both: Tensor = self.dueling(F.relu_(self.hidden(images)))
        value, advantages = both[:, :1], both[:, 1:]
        action_values = value + advantages - advantages.mean(dim=1, keepdim=True)
        return action_values.view(*features.shape[:2], *action_values.shape[1:])
