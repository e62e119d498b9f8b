"""Torsos turn observations into features. The code of a part makes a `herd.components.torsos.api.Torso` of ``(settings, spec, design)``."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from herd.components.registry import PartSettings, Registry

if TYPE_CHECKING:
    from herd.contract.spaces import EnvSpec

# Core-microseconds per agent step (84x84x4, batch 32 x 20, restacking included) in slices of 4 / 8 / 16 / 32 unrolls, one thread
# of a shared AVX-512 CPU with bfloat16, MALLOC_MMAP_MAX_=0; minima of 5 to 30:
#   shallow bfloat16 92 / 92 / 92 / 90, with LSTM 183 / 151 / 135 / 129; nature 221 / 202 / 195 / 193; deep 1315 / 1333 / 1340 / 1334
#   shallow float32 147 / 146 / 144 / 142, without the MALLOC_ setting 151 / 155 / 196 / 210;          deep 2154 / 2248 / 2288 / 2257
# Small slices keep activations in cache, large ones spare the LSTM's steps. On two threads the deep net gains most from 4 or 8.
_GPU_MICRO_BATCH = 1024
"""A GPU wants all the work at once: of 128 unrolls with the deep network an H100 trains 53,600 steps/s in one piece, 48,000 in pieces of
32, and 22,500 in pieces of 8. The 128 take 4 GB of its memory, 512 take 15 GB."""


class TorsoSettings(PartSettings):
    """What all torsos have."""

    cpu_micro_batch: ClassVar[int] = 16
    """Number of unrolls of 20 steps per forward and backward pass that learn fastest on a CPU."""
    has_convolutions: ClassVar[bool] = False
    """Whether ``network.input_centering`` may be ``filters`` or ``mean``."""
    follows_design: ClassVar[bool] = True
    """Whether the settings of all layers (``network.initialization``, ``input_centering``, ``layer_norm``) apply."""

    def micro_batch(self, device_type: str) -> int:
        """Return the number of unrolls per forward and backward pass; more than the batch means the whole batch."""
        return self.cpu_micro_batch if device_type == "cpu" else _GPU_MICRO_BATCH


class ConvolutionalSettings(TorsoSettings):
    """Torsos that begin with convolutions."""

    has_convolutions = True

    strides: ClassVar[tuple[tuple[int, int, int], ...]] = ()
    """(channels, kernel, stride) of the convolutions without padding, for ``network.width_multiplier`` 1."""
    num_features: ClassVar[int] = 256
    """F."""

    def objection(self, spec: EnvSpec) -> str | None:
        """See `PartSettings`."""
        if not spec.has_frames:
            return f"network.torso {self.kind} needs frames, but these observations have none: use mlp"
        if min(self.sizes(spec)) < 1:
            size = "x".join(map(str, spec.frame_shape[:2]))
            small = f"too small for convolutions {self.strides}"
            return f"network.torso {self.kind} does not fit frames of {size} pixels, which are {small}: use mlp"
        return None

    def sizes(self, spec: EnvSpec) -> tuple[int, int]:
        """Return height and width of the last of ``strides``' feature maps."""
        height, width, _ = spec.frame_shape
        for _, kernel, stride in self.strides:
            height, width = (height - kernel) // stride + 1, (width - kernel) // stride + 1
        return height, width


TORSOS = Registry("network.torso", __name__, TorsoSettings, first=("shallow", "nature", "deep", "mlp", "custom"))
