"""One environment that is played by itself, and the memory that a batch of them fills.

Shapes: E environments, H W C one frame, D numbers of a vector, L words of an instruction.
"""

from __future__ import annotations

from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from herd.components.suites.api import BrokenEnvironmentError, UnknownTaskError
from herd.components.suites.reading import FRAME, MASK, VECTOR, WORDS
from herd.components.user_code import failure

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

BUFFER, RESET, PREPARE = 1, 2, 4
"""Bits of a command: which of the two buffers of observations to fill; return the first row of a new game instead of taking a step; only
start that game, and return nothing yet."""
NUM_SEEDS = 2**31
COMPLAINT_BYTES = 512


class Played(NamedTuple):
    """The result of one agent step."""

    observed: Mapping[str, NDArray[Any]] | None
    """None if there is no observation after the end of a game; the previous one is then kept."""
    reward: float
    """Summed over the step's env frames."""
    terminated: bool = False
    truncated: bool = False


class SoloEnvironment(Protocol):
    """One environment of one task. An exception of any of these ends it."""

    def reset(self, seed: int) -> Mapping[str, NDArray[Any]]:
        """Start a new game with a random ``seed`` in 0..2^31-1."""

    def step(self, action: Any) -> Played:
        """Take one agent step with a valid action in a running game: an int, or the numbers [N] of an action with several."""

    def close(self) -> None:
        """Release resources that outlive the process, such as files and child processes."""


def make_solo(maker: str, settings_type: str, settings: str, task: str) -> SoloEnvironment:
    """Call ``maker`` with settings and a task. Each environment gets settings of its own, in this process as in another.

    Args:
        maker: ``module:name``.
        settings_type: ``module:name`` of the class of the settings.
        settings: JSON.
        task: name of the task.
    """
    environment: SoloEnvironment = resolve_name(maker)(resolve_name(settings_type).model_validate_json(settings), task)
    return environment


def described(error: BaseException) -> str:
    """Describe in one line what ended an environment."""
    one_line = isinstance(error, BrokenEnvironmentError | UnknownTaskError)  # they say where
    return " ".join((str(error) if one_line else failure(error)).split())


def rows_type(
    *,
    num_environments: int,
    frame_shape: Sequence[int],
    vector_size: int,
    num_words: int,
    action: str,
    action_shape: Sequence[int],
    mask_size: int,
) -> np.dtype[np.void]:
    """Return the layout of the memory, the same in every process for the same sizes and the same dtype of an ``action``.

    There are two buffers of observations. One is filled while the other is still read: a batch keeps the arrays of its last call unchanged.
    """
    height, width, channels = frame_shape
    each = (num_environments,)
    fields = [
        (WORDS, np.int64, (2, num_environments, num_words)),
        ("rewards", np.float64, each),
        (VECTOR, np.float32, (2, num_environments, vector_size)),
        ("actions", action, (num_environments, *action_shape)),
        ("terminated", np.bool_, each),
        ("truncated", np.bool_, each),
        (MASK, np.bool_, (2, num_environments, mask_size)),
        (FRAME, np.uint8, (2, num_environments, channels, height, width)),
        ("complaints", f"S{COMPLAINT_BYTES}", each),  # why a process ended, in UTF-8
    ]
    return np.dtype(fields, align=True)


class Player:
    """Carries out commands for one environment of a batch."""

    def __init__(self, environment: SoloEnvironment, rows: NDArray[np.void], index: int, entropy: Sequence[int]) -> None:
        """``rows``: the memory, [1]; ``entropy``: random seed of the seeds of its games."""
        self.environment = environment
        self._parts = {name: rows[name][0, :, index] for name in (FRAME, VECTOR, WORDS, MASK) if rows[name].size}
        self._results = {name: rows[name][0] for name in ("actions", "rewards", "terminated", "truncated")}
        self._is_single = self._results["actions"].ndim == 1
        self._index = index
        self._random = np.random.default_rng(entropy)
        self._prepared: Mapping[str, NDArray[Any]] | None = None

    def carry_out(self, command: int) -> None:
        """Step or reset the environment, and write the result into the memory."""
        buffer, results, index = command & BUFFER, self._results, self._index
        if command & (RESET | PREPARE):
            if self._prepared is None:
                self._prepared = self.environment.reset(int(self._random.integers(NUM_SEEDS)))
            if command & RESET:
                self._show(self._prepared, buffer)
                self._prepared = None
            return
        action = results["actions"][index]
        played = self.environment.step(int(action) if self._is_single else action.copy())
        self._show(played.observed, buffer)
        results["rewards"][index] = played.reward
        results["terminated"][index] = played.terminated
        results["truncated"][index] = played.truncated

    def close(self) -> None:
        """Close the environment."""
        self.environment.close()

    def _show(self, observed: Mapping[str, NDArray[Any]] | None, buffer: int) -> None:
        for name, rows in self._parts.items():
            if observed is None:
                rows[buffer] = rows[1 - buffer]
            else:
                rows[buffer] = observed[name].transpose(2, 0, 1) if name == FRAME else observed[name]
