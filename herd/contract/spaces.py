"""The spaces of the environments that a run plays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from herd.contract.actions import ActionSpace

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
    actions: ActionSpace
    """Space of the actions."""
    action_repeat: int
    """Env frames per agent step."""
    instruction_length: int
    """Number of hashed words per instruction; 0 if the suite has no instructions."""
    num_words: int = 1000
    """Hashed words are in 0..num_words-1, 0 = padding (scalable_agent's 1000 buckets)."""
    vector_size: int = 0
    """Number of float32 values in an observation, beside or instead of its frames (D)."""
    vector_is_bounded: bool = True
    """False if some of these values have bounds that are wide or infinite, so that the network normalises them."""

    @property
    def has_frames(self) -> bool:
        """Whether observations contain frames."""
        return self.frame_shape != NO_FRAMES

    @property
    def plane_shape(self) -> tuple[int, int, int]:
        """(C, H, W) of one plane, as networks take it."""
        height, width, channels = self.frame_shape
        return channels, height, width

    @property
    def observation_channels(self) -> int:
        """Channels of the stacked observation, S * C; channel s * C + c, s = 0 the oldest."""
        return self.frame_stack * self.frame_shape[2]
