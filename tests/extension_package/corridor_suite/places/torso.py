from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from herd.components.torsos.api import Torso
from herd.contract.spaces import EnvSpec
from herd.networks.layers import Dense


class Places(Torso):
    def __init__(self, _settings: Any, spec: EnvSpec, _design: Any) -> None:
        super().__init__()
        self.num_features = 32
        self.embedding = Dense(spec.vector_size, self.num_features)

    def forward(self, frames: Tensor | None, vector: Tensor | None, dtype: torch.dtype) -> Tensor:  # noqa: ARG002
        assert vector is not None
        features: Tensor = self.embedding(vector)
        return features
