"""The check at the entry of the equations: a tensor that would broadcast, or a mask that is not bool, is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

_MASKS = frozenset({"counts", "row_valid", "terminated", "trace_mask"})
"""Tensors that are inverted: ``~`` on a uint8 is not a logical not."""


def check_rows(shape: Sequence[int], **tensors: Tensor | None) -> None:
    """Raise ``ValueError`` with its name for a tensor of another shape than ``shape``, or a mask of another dtype than bool."""
    for name, tensor in tensors.items():
        if tensor is not None and list(tensor.shape) != list(shape):
            raise ValueError(f"{name} must be {list(shape)}, got {list(tensor.shape)}")
        if tensor is not None and name in _MASKS and tensor.dtype != torch.bool:
            raise ValueError(f"{name} must be bool, got {tensor.dtype}")
