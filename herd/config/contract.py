"""What two processes must agree on before they exchange unrolls and weights: spaces, network, unroll layout.

Learner-only settings (learning rate, batch size, loss costs) are not part of it, so they may change in a rolling upgrade.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from herd.config.settings import RunSettings

NO_ACTION = -1
"""In the place of the action before a game's first row."""
NO_FRAMES = (0, 0, 0)
"""The frame shape of observations without frames."""


@dataclass(frozen=True, slots=True)
class EnvSpec:
    """Spaces of the environments, known without starting one."""

    task_names: tuple[str, ...]
    """By task_id."""
    frame_shape: tuple[int, int, int]
    """(H, W, C) of one newest frame, uint8; NO_FRAMES where observations are vectors alone."""
    frame_stack: int
    """Frames in one observation (S)."""
    num_actions: int
    """Discrete actions (A)."""
    action_repeat: int
    """Env frames per agent step."""
    instruction_length: int
    """Hashed words per instruction, 0 where the suite has none."""
    num_words: int = 1000
    """Hashed words are in 0..num_words-1, 0 = padding (scalable_agent's 1000 buckets)."""
    vector_size: int = 0
    """Numbers, float32, in an observation beside or instead of its frames (D)."""

    @property
    def has_frames(self) -> bool:
        """Whether observations are pictures, at least in part."""
        return self.frame_shape != NO_FRAMES

    @property
    def observation_channels(self) -> int:
        """Channels of the stacked observation, S * C; channel s * C + c, s = 0 the oldest."""
        return self.frame_stack * self.frame_shape[2]


def contract_digest(settings: RunSettings, spec: EnvSpec) -> str:
    """Hex SHA-256 over the contract part of ``settings``; equal on every process of one run."""
    spaces = asdict(spec)
    if not spec.vector_size:
        del spaces["vector_size"]  # digests of pictures alone stay what they were before there were vectors
    contract = {
        "spec": spaces,
        "network": settings.network.model_dump(mode="json"),
        "head": settings.loss.head,
        "unroll_length": settings.algorithm.unroll_length,
        "reward_shaping": settings.algorithm.reward_shaping,
    }
    if settings.value_scaling.kind != "none":
        contract["num_values"] = settings.value_scaling.num_values(len(spec.task_names))
    if settings.algorithm.burn_in:
        contract["burn_in"] = settings.algorithm.burn_in
    return hashlib.sha256(json.dumps(contract, sort_keys=True).encode()).hexdigest()
