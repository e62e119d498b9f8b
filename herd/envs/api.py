"""What every suite of environments offers: one batch of E environments, stepped together.

Shapes: E environments, S frames in a stack, H W C one frame, D numbers of a vector, L words of an instruction.

Autoreset is gymnasium's NextStep: a step that ends a game returns the game's last observation, and the following step only
starts the next game, whatever its action (``valid`` False there). So the last observation is an ordinary row of an unroll,
and a truncated game bootstraps from its value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from herd.config.contract import EnvSpec


@dataclass(frozen=True, slots=True)
class Observation:
    """One row of E environments, before they act."""

    stack: NDArray[np.uint8]
    """[E, S * C, H, W]; channel s * C + c, s = 0 the oldest. Planes from before the game's first frame are 0. Without elements
    where the suite's observations have no frames."""
    game_reset: NDArray[np.bool_]
    """[E]: this row's newest frame is the first of its game."""
    instructions: NDArray[np.int64] | None
    """[E, L] hashed words, 0 = padding; None where the suite has no instructions."""
    vector: NDArray[np.float32] | None = None
    """[E, D], finite; None where the suite's observations are frames alone."""


@dataclass(frozen=True, slots=True)
class FinishedGame:
    """A game that ended in this step, by its own rules or by the time limit; a lost life ends no game."""

    environment: int
    """Index in the batch, 0..E-1."""
    task_id: int
    """Which task was played."""
    episode_return: float
    """Undiscounted sum of the raw rewards of the whole game."""
    agent_steps: int
    """Steps taken in the game."""


@dataclass(frozen=True, slots=True)
class Transition:
    """What E actions led to."""

    observation: Observation
    """The next row."""
    rewards: NDArray[np.float32]
    """[E], raw: summed over the step's env frames, neither clipped nor shaped."""
    terminated: NDArray[np.bool_]
    """[E]: the game ended, or a life was lost where ``env.life_loss_ends_episode`` is set (that game goes on)."""
    truncated: NDArray[np.bool_]
    """[E]: the time limit ended the game; never together with ``terminated``."""
    valid: NDArray[np.bool_]
    """[E]: False where the step only started the next game: its action had no effect, its reward is 0, nothing ended."""
    finished: tuple[FinishedGame, ...]
    """Games that ended in this step, by environment."""


class BatchedEnvironment(Protocol):
    """E environments of one process.

    The arrays that a call returns stay as they are until the next-but-one call; whoever needs them longer copies them.
    """

    spec: EnvSpec
    num_environments: int
    task_ids: NDArray[np.int32]
    """[E]; global slot g plays task g modulo the number of tasks."""

    def reset(self) -> Observation:
        """Start a new game everywhere. The first call seeds; later calls go on with the same random streams."""

    def step(self, actions: NDArray[np.int32]) -> Transition:
        """Take ``actions`` [E], each in 0..A-1; ValueError if one is not, or if their number is not E."""

    def close(self) -> None:
        """Release threads and memory; a second call does nothing."""


class UnknownTaskError(ValueError):
    """``env.tasks`` names what cannot be played; one line.

    The suite does not have it (the line says what comes close), or refuses it, or its packages are missing.
    """


class BrokenEnvironmentError(RuntimeError):
    """An environment broke down and cannot go on; one line that names its task and its slot."""


def checked_actions(actions: NDArray[np.int32], *, num_environments: int, num_actions: int) -> NDArray[np.int32]:
    """``actions`` as contiguous int32 [E]; ValueError unless all are in 0..num_actions-1.

    The emulator's own check fails in a worker thread, and the caller then waits for ever.
    """
    actions = np.ascontiguousarray(actions, dtype=np.int32)
    if actions.shape != (num_environments,):
        raise ValueError(f"actions must have shape ({num_environments},), not {actions.shape}")
    # Seen as unsigned, negative numbers are the largest: one reduction checks both ends.
    if actions.view(np.uint32).max() >= num_actions:
        raise ValueError(f"actions must be in 0..{num_actions - 1}, got {actions.tolist()}")
    return actions


def dealt_task_ids(*, num_environments: int, first_slot: int, num_tasks: int) -> NDArray[np.int32]:
    """Task of each environment [E]: global slots ``first_slot``.. play the tasks round-robin."""
    return ((first_slot + np.arange(num_environments)) % num_tasks).astype(np.int32)
