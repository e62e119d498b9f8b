"""Device and precision of a network on this machine, from the settings `device` and `precision`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch

from herd.service.host import choose_precision, cpu_gains_from_bfloat16
from herd.service.startup import BadInputError

if TYPE_CHECKING:
    from herd.service.host import Precision


def device_of(wanted: str, key: str) -> torch.device:
    """Return the GPU, or the CPU if ``auto`` finds none; ``key`` is the name of the setting.

    Raises:
        BadInputError: cuda is wanted, and torch finds no GPU.

    """
    has_gpu = torch.cuda.is_available()
    if wanted == "cuda" and not has_gpu:
        raise BadInputError(f"{key} cuda: torch finds no GPU here; choose auto or cpu")
    return torch.device("cuda" if has_gpu and wanted != "cpu" else "cpu")


def precision_of(wanted: Precision | Literal["auto"], device: torch.device) -> torch.dtype:
    """Return the type in which convolutions and matrix products are computed on ``device``."""
    gains = torch.cuda.is_bf16_supported() if device.type == "cuda" else cpu_gains_from_bfloat16()
    return torch.bfloat16 if choose_precision(wanted, gains_from_bfloat16=gains) == "bfloat16" else torch.float32
