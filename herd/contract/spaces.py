"""The contract: what two processes must agree on before they exchange unrolls and weights, which is spaces, network and unroll layout.

Settings of the learner alone (learning rate, batch size, loss costs) are not part of it, so they may change in a rolling upgrade.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from herd.config.settings import RunSettings

NO_ACTION = -1
"""Stands for the previous action in a game's first row."""
NO_FRAMES = (0, 0, 0)
"""The frame shape of observations without frames."""


@dataclass(frozen=True, slots=True)
class EnvSpec:
    """Spaces of the environments, known without starting an environment."""

    task_names: tuple[str, ...]
    """Names of the tasks, indexed by task_id."""
    frame_shape: tuple[int, int, int]
    """(H, W, C) of the newest frame, uint8; NO_FRAMES if observations are vectors only."""
    frame_stack: int
    """Number of frames in one observation (S)."""
    num_actions: int
    """Number of discrete actions (A)."""
    action_repeat: int
    """Env frames per agent step."""
    instruction_length: int
    """Number of hashed words per instruction; 0 if the suite has no instructions."""
    num_words: int = 1000
    """Hashed words are in 0..num_words-1, 0 = padding (scalable_agent's 1000 buckets)."""
    vector_size: int = 0
    """Number of float32 values in an observation, beside or instead of its frames (D)."""

    @property
    def has_frames(self) -> bool:
        """Whether observations contain frames."""
        return self.frame_shape != NO_FRAMES

    @property
    def observation_channels(self) -> int:
        """Channels of the stacked observation, S * C; channel s * C + c, s = 0 the oldest."""
        return self.frame_stack * self.frame_shape[2]


def contract_digest(settings: RunSettings, spec: EnvSpec) -> str:
    """Hex SHA-256 of the contract part of ``settings``; equal in all processes of a run."""
    spaces = asdict(spec)
    if not spec.vector_size:
        del spaces["vector_size"]  # so that contracts without vectors keep the digest that they had before vectors existed
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
