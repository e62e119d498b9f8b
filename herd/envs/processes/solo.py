"""The interface of an environment that plays in its own process."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Seen(NamedTuple):
    """An observation."""

    frame: NDArray[np.uint8]
    """[H, W, C]; read before the environment's next call."""
    instruction: str = ""


class Played(NamedTuple):
    """The result of one agent step."""

    seen: Seen | None
    """None if there is no observation after the end of a game; the previous one is then kept."""
    reward: float
    """Summed over the step's env frames."""
    terminated: bool = False
    truncated: bool = False


class SoloEnvironment(Protocol):
    """One environment of one task. An exception of any of these is a crash of its process."""

    def reset(self, seed: int) -> Seen:
        """Start a new game with a random ``seed`` in 0..2^31-1."""

    def step(self, action: int) -> Played:
        """Take one agent step with a valid action in a running game."""

    def close(self) -> None:
        """Release resources that outlive the process, such as files and child processes."""
