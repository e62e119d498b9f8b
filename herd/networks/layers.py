"""Layers that compute in the dtype of their input, and conversions between pixels, images and features.

Shapes: N images, C channels, H x W pixels. Images are channels_last in memory.

A layer casts its own float32 parameters when it computes in bfloat16. On a CPU, autocast, weights cast once per update, and bfloat16 leaves
with float32 gradient sums are all within 4 % of this, which is the simplest.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812 - the field's name for it
from torch import Tensor, nn

from herd.networks.centering import AverageImage

PIXEL_SCALE = 1.0 / 255.0
"""Scales uint8 to [0, 1]. It is folded into the first layer's weights: 0..255 are exact in bfloat16 (8 significant bits) but their
multiples of 1/255 are not, and scaling 4,096 weights is cheaper than scaling 28,224 pixels per image."""

RELU_GAIN = math.sqrt(2.0)
_NORM_EPSILON = 1e-5
"""Added to the variance by a layer norm."""

Initialization = Literal["orthogonal", "truncated_normal"]
InputCentering = Literal["none", "filters", "mean"]


class LayerDesign(NamedTuple):
    """The settings that all layers of a network share; fields as in ``NetworkSettings``."""

    initialization: Initialization = "orthogonal"
    layer_norm: bool = False
    input_centering: InputCentering = "none"
    width_multiplier: int = 1


PLAIN = LayerDesign()


class Convolution(nn.Conv2d):
    """Square ``nn.Conv2d`` that computes in the dtype of its input; zero bias."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel: int,
        *,
        stride: int = 1,
        padding: int = 0,
        gain: float = 1.0,
        initialization: Initialization = "orthogonal",
    ) -> None:
        """``gain``: of orthogonal weights."""
        super().__init__(in_channels, out_channels, kernel, stride=stride, padding=padding)
        _initialise(self, gain, initialization)

    def forward(self, images: Tensor) -> Tensor:
        """[N, in_channels, H, W] -> [N, out_channels, H', W'], same dtype."""
        weight, bias = _parameters_as(self, images.dtype)
        return F.conv2d(images, weight, bias, self.stride, self.padding)


class PixelConvolution(Convolution):
    """First convolution: takes uint8 pixels, divides them by 255, and optionally centres them.

    Pixels are never negative. So a constant background moves a filter in the same direction over the whole image at every coherent update,
    until the filter is never active or always active. There are two remedies:

    - ``filters``: each filter w is used as w - mean(w), so a constant background of any value has no effect (centred weights, Huang et al.,
      ICCV 2017, section 3.1; weight standardisation, arXiv:1903.10520, without its division). The gradient goes through the mean, so a
      filter stays centred.
    - ``mean``: each pixel relative to its mean over the run, in units of its own standard deviation (`AverageImage`). Static parts of
      the picture have no effect.
    """

    centering: InputCentering = "none"
    average: AverageImage
    """Only where ``centering`` is ``mean``."""

    def centre(self, centering: InputCentering, frame_shape: tuple[int, int, int]) -> None:
        """Choose the kind of centring. ``frame_shape``: (C, H, W) of one plane."""
        self.centering = centering
        if centering == "mean":
            self.average = AverageImage(*frame_shape)

    def convolve_pixels(self, frames: Tensor, dtype: torch.dtype) -> Tensor:
        """uint8 [N, C, H, W] in any memory format -> ``dtype`` [N, out_channels, H', W'], channels_last."""
        weight, bias = self.weight, self.bias
        assert bias is not None
        if self.centering == "mean":
            return self._convolve(self.average.normalised(pixels_last(frames), dtype), weight.to(dtype), bias.to(dtype))
        if self.centering == "filters":
            weight = weight - weight.mean(dim=(1, 2, 3), keepdim=True)
        return self._convolve(pixels_last(frames).to(dtype), (weight * PIXEL_SCALE).to(dtype), bias.to(dtype))

    def _convolve(self, images: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        if images.is_cuda and images.dtype == torch.bfloat16 and self.stride == (1, 1):
            images, weight = pad_channels(images), pad_channels(weight)
        return F.conv2d(images, weight, bias, self.stride, self.padding)


def pad_channels(images: Tensor) -> Tensor:
    """Append channels of zeros to [N, C, H, W] until C is a multiple of 8, which changes no convolution.

    cuDNN has kernels on matrix units only for such C. On an H100 the deep torso's first convolution of 2,688 images with C = 4 takes
    14.7 ms without padding, a quarter of the whole forward and backward pass, and 2.3 ms with it (bfloat16; float32 has no such gap).
    """
    missing = -images.shape[1] % 8
    return F.pad(images, (0, 0, 0, 0, 0, missing)) if missing else images


class Deconvolution(nn.ConvTranspose2d):
    """Square ``nn.ConvTranspose2d`` that computes in the dtype of its input; orthogonal weights, zero bias."""

    def __init__(self, in_channels: int, out_channels: int, kernel: int, *, stride: int = 1, gain: float = 1.0) -> None:
        super().__init__(in_channels, out_channels, kernel, stride=stride)
        _initialise(self, gain, "orthogonal")

    def forward(self, images: Tensor) -> Tensor:  # type: ignore[override]  # nn.ConvTranspose2d's output_size has no use here
        """[N, in_channels, H, W] -> [N, out_channels, (H - 1) * stride + kernel, (W - 1) * stride + kernel], same dtype."""
        weight, bias = _parameters_as(self, images.dtype)
        return F.conv_transpose2d(images, weight, bias, self.stride)


class Dense(nn.Linear):
    """``nn.Linear`` that computes in the dtype of its input; zero bias."""

    def __init__(
        self, in_features: int, out_features: int, *, gain: float = RELU_GAIN, initialization: Initialization = "orthogonal"
    ) -> None:
        """``gain``: of orthogonal weights."""
        super().__init__(in_features, out_features)
        _initialise(self, gain, initialization)

    def forward(self, features: Tensor) -> Tensor:
        """[..., in_features] -> [..., out_features], same dtype."""
        weight, bias = _parameters_as(self, features.dtype)
        return F.linear(features, weight, bias)


class Rectifier(nn.Module):
    """ReLU, after a layer norm if the network has them.

    The norm uses the mean and the variance over all units of a layer; for images, over channels and positions. Each unit or channel has its
    own gain and offset. The code of PQN's authors (arXiv:2407.04811) normalises each position separately instead, which amplifies an empty
    position a thousandfold, for example on a constant background after centred filters.
    """

    def __init__(self, num_units: int, *, layer_norm: bool, in_place: bool = True) -> None:
        """``num_units``: number of units or channels of the previous layer. ``in_place``: the input may be overwritten."""
        super().__init__()
        self.num_units = num_units
        self._in_place = in_place
        self.gain = nn.Parameter(torch.ones(num_units)) if layer_norm else None
        self.offset = nn.Parameter(torch.zeros(num_units)) if layer_norm else None

    def forward(self, values: Tensor) -> Tensor:
        """[..., num_units] or [N, num_units, H, W] -> the same shape and dtype."""
        if self.gain is None or self.offset is None:
            return F.relu_(values) if self._in_place else F.relu(values)
        gain, offset = self.gain.to(values.dtype), self.offset.to(values.dtype)
        if values.dim() == 4:
            return F.relu_(F.group_norm(values, 1, gain, offset, _NORM_EPSILON))
        return F.relu_(F.layer_norm(values, (self.num_units,), gain, offset, _NORM_EPSILON))


def pixels_last(frames: Tensor) -> Tensor:
    """Return uint8 [N, C, H, W] in channels_last memory, as it is if it already is."""
    return frames.contiguous(memory_format=torch.channels_last)


def flatten_images(images: Tensor) -> Tensor:
    """[N, C, H, W] -> [N, H * W * C]; a view of channels_last memory."""
    return images.permute(0, 2, 3, 1).flatten(1)


def halve(images: Tensor) -> Tensor:
    """Max-pool 3x3/2 with TensorFlow's padding (SAME): [N, C, H, W] -> [N, C, ceil(H / 2), ceil(W / 2)].

    An odd axis is padded by one position on both sides, an even axis only at its end.
    """
    if images.requires_grad or images.device.type != "cpu":
        # With ``ceil_mode`` the last window of an even axis extends beyond its end.
        return F.max_pool2d(images, 3, stride=2, padding=(images.shape[2] % 2, images.shape[3] % 2), ceil_mode=True)
    # Without a gradient the index of the maximum is not needed; two passes of element-wise maxima then take half the time.
    return _halve_axis(_halve_axis(images, 2), 3)


def _halve_axis(images: Tensor, axis: int) -> Tensor:
    """Maximum over three neighbouring positions of ``axis``, centred at 2i where it is odd, at 2i + 1 where it is even."""
    along = images.movedim(axis, 0)
    evens, odds = along[0::2], along[1::2]
    if len(evens) == len(odds):
        maxima = torch.maximum(evens, odds)
        torch.maximum(maxima[:-1], evens[1:], out=maxima[:-1])
    else:
        maxima = evens.clone()
        torch.maximum(maxima[:-1], odds, out=maxima[:-1])
        torch.maximum(maxima[1:], odds, out=maxima[1:])
    return maxima.movedim(0, axis)


def _parameters_as(layer: nn.Conv2d | nn.ConvTranspose2d | nn.Linear, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Weight and bias in ``dtype``; gradients flow back to the layer's own parameters in theirs."""
    assert layer.bias is not None
    return layer.weight.to(dtype), layer.bias.to(dtype)


def _initialise(layer: nn.Conv2d | nn.ConvTranspose2d | nn.Linear, gain: float, initialization: Initialization) -> None:
    """Orthogonal weights times ``gain``; or Sonnet's default: normal, of standard deviation 1 / sqrt(fan-in), cut off at two of them."""
    assert layer.bias is not None
    if initialization == "orthogonal":
        nn.init.orthogonal_(layer.weight, gain)
    else:
        deviation = 1.0 / math.sqrt(layer.weight[0].numel())
        nn.init.trunc_normal_(layer.weight, std=deviation, a=-2.0 * deviation, b=2.0 * deviation)
    nn.init.zeros_(layer.bias)


EMBEDDING_SIZE = 20
LANGUAGE_SIZE = 64


class InstructionEncoder(nn.Module):
    """Turns instructions into features with an LSTM over word embeddings (IMPALA Fig. 3, language levels).

    The environment hashes words to ids; 0 is padding after the last word. The features are the LSTM's output after the last word, and zero
    for an empty instruction.
    """

    def __init__(self, num_words: int) -> None:
        """``num_words``: number of ids, including that of the padding."""
        super().__init__()
        self.embedding = nn.Embedding(num_words, EMBEDDING_SIZE)
        self.lstm = nn.LSTM(EMBEDDING_SIZE, LANGUAGE_SIZE, batch_first=True)

    def forward(self, instructions: Tensor) -> Tensor:
        """int64 ids [T, B, L] -> float32 [T, B, 64]."""
        num_rows, batch, _ = instructions.shape
        # An instruction lasts a whole game, so an unroll has few different ones: each is read once.
        words = instructions.flatten(0, 1)
        if words.is_cuda:
            # How many are distinct is a number that the host would wait for; reading all costs a GPU less.
            return self.read(words).view(num_rows, batch, LANGUAGE_SIZE)
        distinct, which = torch.unique(words, dim=0, return_inverse=True)
        return self.read(distinct)[which].view(num_rows, batch, LANGUAGE_SIZE)

    def read(self, words: Tensor) -> Tensor:
        """[N, L] -> [N, 64]; repeated instructions are read again."""
        outputs, _ = self.lstm(self.embedding(words))
        num_words = (words != 0).sum(dim=1)
        # The LSTM is causal, so its output at the last word does not depend on the padding.
        last = (num_words - 1).clamp(min=0)[:, None, None].expand(-1, 1, LANGUAGE_SIZE)
        features: Tensor = outputs.gather(1, last).squeeze(1) * (num_words > 0).unsqueeze(1)
        return features
