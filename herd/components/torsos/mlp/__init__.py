"""Fully connected layers."""

from __future__ import annotations

from typing import Literal

from herd.components.registry import Part
from herd.components.torsos import TorsoSettings


class MLPTorsoSettings(TorsoSettings):
    """Two fully connected layers, for vectors and for boards such as Catch."""

    kind: Literal["mlp"] = "mlp"
    """Two fully connected layers, for vectors and for boards such as Catch."""

    cpu_micro_batch = 1024


PART = Part("mlp", MLPTorsoSettings, f"{__name__}.board:board_torso")
