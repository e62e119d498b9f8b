"""Torsos turn frames into features: the convolutional networks of IMPALA's Fig. 3, arXiv:1802.01561 (PopArt's Table 7, arXiv:1809.04474).

Shapes: N rows (time folded into the batch), C = S * C channels of the stacked observation, H x W pixels, D numbers of a vector, F features.

The last feature map is flattened in (height, width, channel) order, which is a view of channels_last memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from herd.components.user_code import failure, load_user_code
from herd.networks.layers import (
    PIXEL_SCALE,
    PLAIN,
    RELU_GAIN,
    Convolution,
    Dense,
    LayerDesign,
    PixelConvolution,
    Rectifier,
    flatten_images,
    halve,
)

if TYPE_CHECKING:
    from herd.config.settings import NetworkSettings
    from herd.contract.spaces import EnvSpec


class TorsoError(ValueError):
    """The torso cannot be built for these observations; one line."""


class TorsoSizeError(TorsoError):
    """The frames are too small for the torso's convolutions."""


class Torso(nn.Module):
    """Turns observations into F features; ``num_features`` is F.

    ``network.torso`` also accepts ``module:Class`` from a user's own file: any ``nn.Module`` that is created from an `EnvSpec` and has
    ``num_features`` and a ``forward`` like this one.
    """

    num_features: int

    def forward(self, frames: Tensor | None, vector: Tensor | None, dtype: torch.dtype) -> Tensor:
        """Compute the features of N rows.

        Args:
            frames: uint8 [N, C, H, W] in any memory format; None if the suite's observations have no frames.
            vector: float32 [N, D]; None if they have no vector.
            dtype: precision of convolutions and products, float32 or bfloat16.

        Returns:
            Float [N, F] in any precision.
        """
        raise NotImplementedError


class StridedTorso(Torso):
    """Strided convolutions and one fully connected layer, each followed by a ReLU.

    ``layers`` gives (channels, kernel, stride) of every convolution.
    """

    def __init__(
        self,
        channels: int,
        height: int,
        width: int,
        layers: tuple[tuple[int, int, int], ...],
        num_features: int,
        *,
        design: LayerDesign = PLAIN,
    ) -> None:
        super().__init__()
        for _, kernel, stride in layers:
            height, width = (height - kernel) // stride + 1, (width - kernel) // stride + 1
        if height < 1 or width < 1:
            raise TorsoSizeError(f"frames are too small for convolutions {layers}")
        inputs = (channels, *(out for out, _, _ in layers[:-1]))
        shapes = zip(inputs, layers, strict=True)
        first, *rest = shapes
        start = design.initialization
        self.pixels = PixelConvolution(first[0], first[1][0], first[1][1], stride=first[1][2], gain=RELU_GAIN, initialization=start)
        self.convolutions = nn.ModuleList(
            Convolution(c, out, kernel, stride=stride, gain=RELU_GAIN, initialization=start) for c, (out, kernel, stride) in rest
        )
        self.dense = Dense(height * width * layers[-1][0], num_features, initialization=start)
        self.rectifiers = nn.ModuleList(
            Rectifier(out, layer_norm=design.layer_norm) for out in (*(out for out, _, _ in layers), num_features)
        )
        self.num_features = num_features

    def forward(self, frames: Tensor | None, vector: Tensor | None, dtype: torch.dtype) -> Tensor:  # noqa: ARG002  see BesideVector
        """See ``Torso``."""
        assert frames is not None
        first, *others, last = self.rectifiers
        images = first(self.pixels.convolve_pixels(frames, dtype))
        for convolution, rectify in zip(self.convolutions, others, strict=True):
            images = rectify(convolution(images))
        features: Tensor = last(self.dense(flatten_images(images)))
        return features


class ResidualBlock(nn.Module):
    """x + conv(ReLU(conv(ReLU(x)))), both 3x3/1."""

    def __init__(self, channels: int, design: LayerDesign = PLAIN) -> None:
        super().__init__()
        # In place where the overwritten tensor is a convolution's output, which its backward pass does not read.
        self.rectify_first = Rectifier(channels, layer_norm=design.layer_norm, in_place=False)
        self.first = Convolution(channels, channels, 3, padding=1, initialization=design.initialization)
        self.rectify_second = Rectifier(channels, layer_norm=design.layer_norm)
        self.second = Convolution(channels, channels, 3, padding=1, initialization=design.initialization)

    def forward(self, images: Tensor) -> Tensor:
        """[N, channels, H, W] -> the same shape; ``images`` is not modified."""
        residual: Tensor = self.second(self.rectify_second(self.first(self.rectify_first(images))))
        return residual.add_(images)


class DeepTorso(Torso):
    """Fig. 3 right: three sections of convolution 3x3/1, max-pool 3x3/2 and two residual blocks; ReLU, fc 256, ReLU."""

    def __init__(
        self,
        channels: int,
        height: int,
        width: int,
        section_channels: tuple[int, ...],
        num_features: int,
        *,
        design: LayerDesign = PLAIN,
    ) -> None:
        super().__init__()
        inputs = (channels, *section_channels[:-1])
        start = design.initialization
        self.pixels = PixelConvolution(inputs[0], section_channels[0], 3, padding=1, initialization=start)
        self.convolutions = nn.ModuleList(
            Convolution(c, out, 3, padding=1, initialization=start) for c, out in zip(inputs[1:], section_channels[1:], strict=True)
        )
        self.blocks = nn.ModuleList(nn.Sequential(ResidualBlock(out, design), ResidualBlock(out, design)) for out in section_channels)
        for _ in section_channels:
            height, width = (height + 1) // 2, (width + 1) // 2
        self.rectify_images = Rectifier(section_channels[-1], layer_norm=design.layer_norm)
        self.dense = Dense(height * width * section_channels[-1], num_features, initialization=start)
        self.rectify_features = Rectifier(num_features, layer_norm=design.layer_norm)
        self.num_features = num_features

    def forward(self, frames: Tensor | None, vector: Tensor | None, dtype: torch.dtype) -> Tensor:  # noqa: ARG002  see BesideVector
        """See ``Torso``."""
        assert frames is not None
        images = self.blocks[0](halve(self.pixels.convolve_pixels(frames, dtype)))
        for convolution, blocks in zip(self.convolutions, self.blocks[1:], strict=True):
            images = blocks(halve(convolution(images)))
        features: Tensor = self.rectify_features(self.dense(flatten_images(self.rectify_images(images))))
        return features


class BoardTorso(Torso):
    """Two fully connected layers with ReLUs, for boards such as Catch, for vectors, and for both together."""

    def __init__(self, num_pixels: int, num_features: int, *, vector_size: int = 0, design: LayerDesign = PLAIN) -> None:
        super().__init__()
        self._centre = 0.5 if design.input_centering == "half" else 0.0
        self.first = Dense(num_pixels + vector_size, num_features, initialization=design.initialization)
        self.rectify_first = Rectifier(num_features, layer_norm=design.layer_norm)
        self.second = Dense(num_features, num_features, initialization=design.initialization)
        self.rectify_second = Rectifier(num_features, layer_norm=design.layer_norm)
        self.num_features = num_features

    def forward(self, frames: Tensor | None, vector: Tensor | None, dtype: torch.dtype) -> Tensor:
        """See ``Torso``."""
        # A vector's numbers may need more digits than bfloat16 has, so they are rounded only after the first layer.
        inputs = [] if vector is None else [vector]
        if frames is not None:
            pixels = flatten_images(frames).to(dtype if vector is None else vector.dtype) * PIXEL_SCALE
            inputs.insert(0, pixels - self._centre if self._centre else pixels)
        hidden = self.rectify_first(self.first(torch.cat(inputs, dim=-1) if len(inputs) > 1 else inputs[0])).to(dtype)
        features: Tensor = self.rectify_second(self.second(hidden))
        return features


class BesideVector(Torso):
    """A torso for frames whose features are concatenated with the observation's vector; a layer with a ReLU mixes both.

    With linear heads alone, the vector could not determine the action for a picture.
    """

    def __init__(self, frames: Torso, vector_size: int, design: LayerDesign = PLAIN) -> None:
        super().__init__()
        self.frames = frames
        self.joint = Dense(frames.num_features + vector_size, frames.num_features, initialization=design.initialization)
        self.rectify = Rectifier(frames.num_features, layer_norm=design.layer_norm)
        self.num_features = frames.num_features

    def forward(self, frames: Tensor | None, vector: Tensor | None, dtype: torch.dtype) -> Tensor:
        """See ``Torso``."""
        assert vector is not None
        features: Tensor = self.frames(frames, None, dtype)
        mixed: Tensor = self.rectify(self.joint(torch.cat([features.float(), vector], dim=-1)))
        return mixed


def build_torso(spec: EnvSpec, network: NetworkSettings) -> Torso:
    """Build the torso ``network.torso`` for observations of ``spec``.

    Raises:
        TorsoError: the torso does not fit the observations, or a user's own torso does not have the interface of `Torso`; one line.
    """
    if ":" in network.torso:
        return _user_torso(spec, network.torso)
    height, width, _ = spec.frame_shape
    channels = spec.observation_channels
    if network.torso == "mlp":
        return BoardTorso(height * width * channels, 256, vector_size=spec.vector_size, design=design_of(network))
    if not spec.has_frames:
        raise TorsoError(f"network.torso {network.torso} needs frames, but these observations have none: use mlp")
    try:
        torso = _convolutions(spec, network)
    except TorsoSizeError as error:
        raise TorsoSizeError(f"network.torso {network.torso} does not fit frames of {height}x{width} pixels: {error}") from None
    return BesideVector(torso, spec.vector_size, design_of(network)) if spec.vector_size else torso


def design_of(network: NetworkSettings) -> LayerDesign:
    """Return the settings that apply to every layer."""
    return LayerDesign(network.initialization, network.layer_norm, network.input_centering)


def _convolutions(spec: EnvSpec, network: NetworkSettings) -> Torso:
    height, width, _ = spec.frame_shape
    channels, widen, design = spec.observation_channels, network.width_multiplier, design_of(network)
    torso: StridedTorso | DeepTorso
    match network.torso:
        case "shallow":
            torso = StridedTorso(channels, height, width, ((16 * widen, 8, 4), (32 * widen, 4, 2)), 256, design=design)
        case "nature":
            torso = StridedTorso(channels, height, width, ((32 * widen, 8, 4), (64 * widen, 4, 2), (64 * widen, 3, 1)), 512, design=design)
        case "deep":
            torso = DeepTorso(channels, height, width, (16 * widen, 32 * widen, 32 * widen), 256, design=design)
        case _:
            raise TorsoError(f"network.torso {network.torso} is unknown")
    torso.pixels.centre(network.input_centering, (spec.frame_shape[2], height, width))
    return torso


def _user_torso(spec: EnvSpec, name: str) -> Torso:
    """Create a user's own torso and run it on two rows, so that mistakes are found before the run starts."""
    found = load_user_code(name, "network.torso")
    try:
        torso: Torso = found(spec)
    except Exception as error:
        raise TorsoError(f"network.torso {name} cannot be created from an EnvSpec: {failure(error)}") from error
    if not isinstance(torso, nn.Module) or not isinstance(getattr(torso, "num_features", None), int):
        raise TorsoError(f"network.torso {name} must be a torch.nn.Module with the attribute num_features, an int")
    frames = torch.zeros(2, spec.observation_channels, *spec.frame_shape[:2], dtype=torch.uint8) if spec.has_frames else None
    vector = torch.zeros(2, spec.vector_size) if spec.vector_size else None
    for dtype in (torch.float32, torch.bfloat16):
        try:
            with torch.no_grad():
                features = torso.eval()(frames, vector, dtype)
        except Exception as error:
            raise TorsoError(f"network.torso {name} fails on two rows in {dtype}: {failure(error)}") from error
        if not isinstance(features, Tensor) or features.shape != (2, torso.num_features) or not features.is_floating_point():
            shape = tuple(features.shape) if isinstance(features, Tensor) else type(features).__name__
            raise TorsoError(f"network.torso {name} must return floats of shape [N, num_features] = (2, {torso.num_features}), not {shape}")
    return torso.train()


# Core-microseconds per agent step (84x84x4, batch 32 x 20, restacking included) in slices of 4 / 8 / 16 / 32 unrolls, one thread
# of a shared AVX-512 CPU with bfloat16, MALLOC_MMAP_MAX_=0; minima of 5 to 30:
#   shallow bfloat16 92 / 92 / 92 / 90, with LSTM 183 / 151 / 135 / 129; nature 221 / 202 / 195 / 193; deep 1315 / 1333 / 1340 / 1334
#   shallow float32 147 / 146 / 144 / 142, without the MALLOC_ setting 151 / 155 / 196 / 210;          deep 2154 / 2248 / 2288 / 2257
# Small slices keep activations in cache, large ones spare the LSTM's steps. On two threads the deep net gains most from 4 or 8.
_CPU_MICRO_BATCH = {"shallow": 16, "nature": 16, "deep": 4, "mlp": 1024}
_OWN_CPU_MICRO_BATCH = 16
# Not measured: a GPU wants all the work at once.
_GPU_MICRO_BATCH = 1024


def recommended_micro_batch(torso: str, device_type: str) -> int:
    """Unrolls of 20 steps per forward and backward pass that learn fastest; more than the batch means the whole batch.

    Of a user's own torso nothing is known; it is taken for a small one.
    """
    on_cpu = _CPU_MICRO_BATCH.get(torso, _OWN_CPU_MICRO_BATCH)
    return on_cpu if device_type == "cpu" else _GPU_MICRO_BATCH
