"""The memory that the process of a batch shares with the processes of its environments.

Shapes: E environments, H W C one frame, L words of an instruction. There are two buffers of observations: one is written while the other
is still read (`herd.envs.api.BatchedEnvironment` keeps the arrays of the last call unchanged).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from mmap import mmap

    from numpy.typing import NDArray

_ALIGNMENT = 64
"""Alignment: the size of a cache line."""
COMPLAINT_BYTES = 512


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes that determine the layout."""

    num_environments: int
    frame_shape: tuple[int, int, int]
    """(H, W, C)."""
    num_words: int
    """L; 0 without instructions."""


class SharedRows:
    """Arrays in one block of memory, with the same layout in every process for the same sizes."""

    frames: NDArray[np.uint8]
    """[2, E, C, H, W]."""
    words: NDArray[np.int64]
    """[2, E, L]; hashed."""
    actions: NDArray[np.int32]
    """[E]."""
    rewards: NDArray[np.float64]
    """[E]."""
    terminated: NDArray[np.bool_]
    """[E]."""
    truncated: NDArray[np.bool_]
    """[E]."""
    complaints: NDArray[np.uint8]
    """[E, COMPLAINT_BYTES]: why an environment's process ended, in UTF-8, padded with zeros."""

    def __init__(self, memory: mmap, sizes: Sizes) -> None:
        offset = 0
        for name, (shape, dtype) in _fields(sizes).items():
            setattr(self, name, np.frombuffer(memory, dtype, math.prod(shape), offset).reshape(shape))
            offset = _after(offset, shape, dtype)

    @staticmethod
    def num_bytes(sizes: Sizes) -> int:
        """Return the size of the block."""
        offset = 0
        for shape, dtype in _fields(sizes).values():
            offset = _after(offset, shape, dtype)
        return offset

    def complain(self, environment: int, text: str) -> None:
        """Store one line about why the process of ``environment`` ends."""
        said = " ".join(text.split()).encode()[:COMPLAINT_BYTES]
        self.complaints[environment, : len(said)] = np.frombuffer(said, np.uint8)

    def complaint(self, environment: int) -> str:
        """Return the stored line; empty if there is none."""
        said: bytes = self.complaints[environment].tobytes()
        return said.rstrip(b"\0").decode(errors="ignore")


def _fields(sizes: Sizes) -> dict[str, tuple[tuple[int, ...], type[np.generic]]]:
    height, width, channels = sizes.frame_shape
    num_environments = sizes.num_environments
    each = (num_environments,)
    return {
        "frames": ((2, num_environments, channels, height, width), np.uint8),
        "words": ((2, num_environments, sizes.num_words), np.int64),
        "actions": (each, np.int32),
        "rewards": (each, np.float64),
        "terminated": (each, np.bool_),
        "truncated": (each, np.bool_),
        "complaints": ((num_environments, COMPLAINT_BYTES), np.uint8),
    }


def _after(offset: int, shape: tuple[int, ...], dtype: type[np.generic]) -> int:
    end = offset + math.prod(shape) * np.dtype(dtype).itemsize
    return -(-end // _ALIGNMENT) * _ALIGNMENT
