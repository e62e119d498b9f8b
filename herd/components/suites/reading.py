"""Reads an environment's observation as the parts of one row (frame, vector, words), for callers that step environments themselves.

Shapes: H W C one frame, D numbers of a vector, L words of an instruction.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from herd.contract.spaces import EnvSpec

FRAME, VECTOR, WORDS, MASK = "frame", "vector", "words", "mask"
"""Names of the parts."""
NUM_BUCKETS = 1000
"""Number of ids in an embedding table of words, including padding (IMPALA's language channel)."""
MAX_WORDS = 16
"""Longer instructions are truncated."""
PADDING = 0


def hash_instruction(text: str) -> list[int]:
    """Return ``MAX_WORDS`` ids for the words of ``text`` (split at white space): 1..999, then ``PADDING``.

    The hash is the same in every process and release, so actors, learners and checkpoints agree.
    """
    words = [1 + zlib.crc32(word.encode()) % (NUM_BUCKETS - 1) for word in text.split()[:MAX_WORDS]]
    return words + [PADDING] * (MAX_WORDS - len(words))


@lru_cache(maxsize=1024)
def hashed_words(text: str) -> NDArray[np.int64]:
    """Return `hash_instruction` as an array, int64 [L]; for reading only, because it is computed once for equal texts."""
    return np.array(hash_instruction(text), np.int64)


class Reader(Protocol):
    """Reads the observations of a suite's environments."""

    def rows(self, observations: Any, num_environments: int) -> Sequence[Any]:
        """Return the observations of several environments one by one; ValueError if their number is wrong."""
        ...

    def parts(self, observation: Any) -> dict[str, NDArray[Any]]:
        """Return the parts of an observation: frame uint8 [H, W, C], vector float32 [D], words int64 [L], mask bool [M].

        The mask is missing where observations do not contain it.

        Raises:
            ValueError: the observation differs from those of training; one line.
        """
        ...

    def mask(self, value: Any) -> NDArray[np.bool_]:
        """Return a mask of one environment, as it gives it, as bool [M]; ValueError if it is not one of its actions."""
        ...

    def actions(self, actions: NDArray[Any]) -> list[Any]:
        """Return a policy's actions [E, *shape] as the environments take them."""
        ...

    def batched(self, actions: Sequence[Any]) -> Any:
        """Return actions of `actions` as a vector environment takes them."""
        ...


class PlainReader:
    """Reads observations that already consist of these parts.

    An observation is a frame, uint8 [H, W, C] or [H, W] with one channel, or a vector. With several parts it is a mapping with the entries
    ``frame``, ``vector`` and ``words`` (a text, or its hashed words). Of a stack of frames, [S, H, W] or [S, H, W, C], oldest first, the
    newest frame is used.
    """

    def __init__(self, spec: EnvSpec) -> None:
        self._spec = spec
        self._wanted = [FRAME] * spec.has_frames + [VECTOR] * bool(spec.vector_size) + [WORDS] * bool(spec.instruction_length)

    def rows(self, observations: Any, num_environments: int) -> Sequence[Any]:
        """See `Reader`: arrays [E, ...], or a mapping of them."""
        if isinstance(observations, Mapping):
            columns = {name: self.rows(values, num_environments) for name, values in observations.items()}
            return [{name: values[index] for name, values in columns.items()} for index in range(num_environments)]
        if len(observations) != num_environments:
            raise ValueError(f"expected observations of {num_environments} environments, not of {len(observations)}")
        return list(observations)

    def parts(self, observation: Any) -> dict[str, NDArray[Any]]:
        """See `Reader`."""
        if not isinstance(observation, Mapping):
            if len(self._wanted) > 1:
                raise ValueError(f"expected a mapping with the entries {', '.join(self._wanted)}")
            observation = {self._wanted[0]: observation}
        if missing := [name for name in self._wanted if name not in observation]:
            raise ValueError(f"the observation has no entry {missing[0]}; it has {', '.join(map(str, observation))}")
        return {name: getattr(self, f"_{name}")(observation[name]) for name in self._wanted}

    def mask(self, value: Any) -> NDArray[np.bool_]:
        """See `Reader`."""
        array = np.asarray(value, np.bool_)
        if array.shape != (self._spec.actions.mask_size,):
            raise ValueError(f"expected a mask of {self._spec.actions.mask_size} entries, not an array of shape {array.shape}")
        return array

    def actions(self, actions: NDArray[Any]) -> list[Any]:
        """See `Reader`: ints, or arrays."""
        return list(actions) if actions.ndim > 1 else [int(action) for action in actions]

    def batched(self, actions: Sequence[Any]) -> Any:
        """See `Reader`: int64 [E], or [E, N]."""
        return np.array(actions)

    def _frame(self, value: Any) -> NDArray[np.uint8]:
        array, shape = np.asarray(value), self._spec.frame_shape
        if array.dtype != np.uint8:
            raise ValueError(f"frames are uint8, not {array.dtype}")
        plain = [shape, *([shape[:2]] if shape[2] == 1 else [])]
        stacks = [(self._spec.frame_stack, *each) for each in plain]
        if array.shape not in plain and array.shape in stacks:
            array = array[-1]
        if array.shape not in plain:
            raise ValueError(f"expected a frame of shape {shape}, not {array.shape}")
        return array.reshape(shape)

    def _vector(self, value: Any) -> NDArray[np.float32]:
        array = np.asarray(value, np.float32)
        if array.shape != (self._spec.vector_size,):
            raise ValueError(f"expected a vector of {self._spec.vector_size} numbers, not an array of shape {array.shape}")
        return array

    def _words(self, value: Any) -> NDArray[np.int64]:
        array = np.array(hash_instruction(value) if isinstance(value, str) else value, np.int64)
        if array.shape != (self._spec.instruction_length,):
            raise ValueError(f"expected a text, or {self._spec.instruction_length} hashed words, not an array of shape {array.shape}")
        return array
