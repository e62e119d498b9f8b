"""The interface of all suites: a batch of E environments that are stepped together.

Shapes: E environments, S frames in a stack, H W C one frame, D numbers of a vector, L words of an instruction, M entries of a
mask.

Autoreset is gymnasium's NextStep: a step that ends a game returns the game's last observation. The following step ignores its action and
only starts the next game (``valid`` is False). So the last observation is an ordinary row of an unroll, and a truncated game bootstraps
from its value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from herd.contract.spaces import ActionSpace, EnvSpec


@dataclass(frozen=True, slots=True)
class Observation:
    """One row of E environments, before an action."""

    stack: NDArray[np.uint8]
    """[E, S * C, H, W]; channel s * C + c, s = 0 the oldest. Planes before the game's first frame are 0. Empty if the suite's observations
    have no frames."""
    game_reset: NDArray[np.bool_]
    """[E]: whether this row's newest frame is the first of its game."""
    instructions: NDArray[np.int64] | None
    """[E, L] hashed words, 0 = padding; None if the suite has no instructions."""
    vector: NDArray[np.float32] | None = None
    """[E, D], finite; None if the suite's observations have only frames."""
    action_masks: NDArray[np.bool_] | None = None
    """[E, M]: what is allowed, at least one value of each number of an action; None if the suite's actions have no mask."""


@dataclass(frozen=True, slots=True)
class FinishedGame:
    """A game that ended in this step, by its own rules or by the time limit. A lost life does not end a game."""

    environment: int
    """Index in the batch, 0..E-1."""
    task_id: int
    """Number of the task."""
    episode_return: float
    """Undiscounted sum of the raw rewards of the whole game."""
    agent_steps: int
    """Steps taken in the game."""


@dataclass(frozen=True, slots=True)
class Transition:
    """The result of E actions."""

    observation: Observation
    """The next row."""
    rewards: NDArray[np.float32]
    """[E]: raw rewards, summed over the step's env frames, neither clipped nor shaped."""
    terminated: NDArray[np.bool_]
    """[E]: whether the game ended, or a life was lost with ``env.life_loss_ends_episode`` (in that case the game continues)."""
    truncated: NDArray[np.bool_]
    """[E]: whether the time limit ended the game; never together with ``terminated``."""
    valid: NDArray[np.bool_]
    """[E]: False if the step only started the next game. Its action had no effect, its reward is 0, and nothing ended."""
    finished: tuple[FinishedGame, ...]
    """Games that ended in this step, by environment."""


class Slots(NamedTuple):
    """The environments of a run that one process plays."""

    num_environments: int
    """Number of environments (E)."""
    first_slot: int
    """The run's number of environment 0; the others follow."""
    seed: int
    num_threads: int
    """Largest number of threads that step emulators at a time."""
    raise_errors: bool = False
    """For a debugger: errors of environments in this process reach the caller as they are, and no environment is replaced by a new one."""
    beat: Callable[[], None] = lambda: None
    """Called after the step of each environment that is stepped by itself, so that many slow ones are not taken for one that hangs."""
    replaced: Callable[[], None] = lambda: None
    """Called when an environment has failed and is replaced by a new one."""

    def task_ids(self, spec: EnvSpec) -> NDArray[np.int32]:
        """Return the task of each environment, [E]."""
        return dealt_task_ids(num_environments=self.num_environments, first_slot=self.first_slot, num_tasks=len(spec.task_names))


class BatchedEnvironment(Protocol):
    """E environments in one process.

    The arrays that a call returns are valid until the next call but one. A caller that needs them longer must copy them.
    """

    spec: EnvSpec
    num_environments: int
    task_ids: NDArray[np.int32]
    """[E]; global slot g plays task g modulo the number of tasks."""

    def reset(self) -> Observation:
        """Start a new game in every environment. The first call seeds; later calls continue the same random streams."""

    def step(self, actions: NDArray[Any]) -> Transition:
        """Take ``actions``, [E, *shape] of ``spec.actions``; ValueError if an action or their number is wrong."""

    def close(self) -> None:
        """Release threads and memory; a second call does nothing."""


class UnknownTaskError(ValueError):
    """``env.tasks`` names a task that cannot be played; one line.

    The suite does not have it (the line names close matches), refuses it, or its packages are missing.
    """


class BrokenEnvironmentError(RuntimeError):
    """An environment failed and cannot continue; one line that names its task and its slot."""


def checked_actions(actions: NDArray[Any], *, num_environments: int, space: ActionSpace) -> NDArray[Any]:
    """Return ``actions`` as contiguous [E, *shape] of the space's dtype; ValueError unless each is one of the space.

    The emulator's own check fails in a worker thread, and the caller would then wait forever. Continuous numbers need only be finite,
    because environments clip them to their bounds.
    """
    actions = np.ascontiguousarray(actions, dtype=space.dtype)
    if actions.shape != (num_environments, *space.shape):
        raise ValueError(f"actions must have shape {(num_environments, *space.shape)}, not {actions.shape}")
    if space.is_discrete:
        # As unsigned numbers, negative ones are the largest, so one reduction checks both limits.
        if actions.view(np.uint32).max() >= space.num_actions:
            raise ValueError(f"actions must be in 0..{space.num_actions - 1}, got {actions.tolist()}")
        return actions
    is_integer = np.array(space.is_integer)
    integers = actions[:, is_integer]
    if (integers < 0).any() or (integers > np.array(space.high)[is_integer]).any() or not np.isfinite(actions).all():
        raise ValueError(f"actions must be {space}, got {actions.tolist()}")
    return actions


def dealt_task_ids(*, num_environments: int, first_slot: int, num_tasks: int) -> NDArray[np.int32]:
    """Return the task of each environment, [E]: the global slots from ``first_slot`` on play the tasks round-robin."""
    return ((first_slot + np.arange(num_environments)) % num_tasks).astype(np.int32)


class Games:
    """What every suite keeps of its running games: counts the return and the steps of each game until it ends."""

    def __init__(self, task_ids: NDArray[np.int32]) -> None:
        self._task_ids = task_ids
        self._returns = np.zeros(len(task_ids), np.float64)
        self._steps = np.zeros(len(task_ids), np.int64)
        self.over = np.zeros(len(task_ids), np.bool_)
        """[E]: whether the game has ended, so that the next step only starts another."""

    def begin(self) -> None:
        """Start a new game in every environment."""
        self._returns[:], self._steps[:] = 0.0, 0
        self.over = np.zeros_like(self.over)

    def count(self, starting: NDArray[np.bool_], rewards: NDArray[np.floating], over: NDArray[np.bool_]) -> tuple[FinishedGame, ...]:
        """Count one step of each game, except where it was ``starting``; return the games that are ``over``. All [E]."""
        self._returns[starting], self._steps[starting] = 0.0, 0
        self._returns += np.where(starting, 0.0, rewards)
        self._steps += ~starting
        self.over = over
        return tuple(
            FinishedGame(int(e), int(self._task_ids[e]), float(self._returns[e]), int(self._steps[e])) for e in np.flatnonzero(over)
        )


class FrameStacks:
    """The newest S frames of each environment. Planes before a game's first frame are 0."""

    def __init__(self, spec: EnvSpec, num_environments: int) -> None:
        height, width, channels = spec.frame_shape
        shape = (num_environments, spec.frame_stack, channels, height, width)
        # Two buffers are used in turn, so that the result of the previous call stays valid.
        self._older, self._newer = np.zeros(shape, np.uint8), np.zeros(shape, np.uint8)

    def add(self, frames: NDArray[np.uint8], game_reset: NDArray[np.bool_]) -> NDArray[np.uint8]:
        """Return the stacks with ``frames`` [E, C, H, W] as the newest, [E, S * C, H, W]; those at ``game_reset`` [E] restart."""
        newer = self._newer
        newer[:, :-1] = self._older[:, 1:]
        newer[game_reset] = 0
        newer[:, -1] = frames
        self._older, self._newer = newer, self._older
        return newer.reshape(len(newer), -1, *newer.shape[3:])
