"""What one environment offers that plays in a process of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Seen(NamedTuple):
    """What an environment shows."""

    frame: NDArray[np.uint8]
    """[H, W, C]; read before the environment is asked again."""
    instruction: str = ""


class Played(NamedTuple):
    """What one agent step led to."""

    seen: Seen | None
    """None where the end of a game leaves nothing to look at: what was seen before stands."""
    reward: float
    """Summed over the step's env frames."""
    terminated: bool = False
    truncated: bool = False


class SoloEnvironment(Protocol):
    """One environment of one task. An exception of any of these is a crash of its process."""

    def reset(self, seed: int) -> Seen:
        """Start a new game; ``seed`` in 0..2^31-1 decides what it draws."""

    def step(self, action: int) -> Played:
        """One agent step with an action that exists, in a game that goes on."""

    def close(self) -> None:
        """Release what does not go with the process: files, processes of its own."""
