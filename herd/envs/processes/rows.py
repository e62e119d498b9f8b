"""The memory that the process of a batch shares with those of its environments.

Shapes: E environments, H W C one frame, L words of an instruction. What is seen lies there twice: one buffer is written while the other
is still read (`herd.envs.api.BatchedEnvironment` keeps the arrays of the last call as they are).
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
"""Bytes of a cache line."""
COMPLAINT_BYTES = 512


@dataclass(frozen=True, slots=True)
class Sizes:
    """What the layout follows from."""

    num_environments: int
    frame_shape: tuple[int, int, int]
    """(H, W, C)."""
    num_words: int
    """L; 0 without instructions."""


class SharedRows:
    """Arrays in one block of memory, laid out alike in every process that is given the same sizes."""

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
    """[E, COMPLAINT_BYTES]: UTF-8, then zeros: why an environment's process ended."""

    def __init__(self, memory: mmap, sizes: Sizes) -> None:
        offset = 0
        for name, (shape, dtype) in _fields(sizes).items():
            setattr(self, name, np.frombuffer(memory, dtype, math.prod(shape), offset).reshape(shape))
            offset = _after(offset, shape, dtype)

    @staticmethod
    def num_bytes(sizes: Sizes) -> int:
        """Of the block."""
        offset = 0
        for shape, dtype in _fields(sizes).values():
            offset = _after(offset, shape, dtype)
        return offset

    def complain(self, environment: int, text: str) -> None:
        """Leave word of why the process of ``environment`` ends, in one line."""
        said = " ".join(text.split()).encode()[:COMPLAINT_BYTES]
        self.complaints[environment, : len(said)] = np.frombuffer(said, np.uint8)

    def complaint(self, environment: int) -> str:
        """What it left; empty if nothing."""
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
