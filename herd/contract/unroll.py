"""The arrays of an unroll: names, dtypes, shapes and ranges, derived from the run's contract alone.

Legend: U unrolls, T agent steps, S frames in a stack, H W C one frame, D numbers in a vector, A actions, L instruction words.
docs/messaging.md gives the meaning of each field.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from herd.contract.spaces import NO_ACTION

Array = npt.NDArray[Any]
Arrays = Mapping[str, Array]

DTYPES: Mapping[str, np.dtype[Any]] = {code: np.dtype(code) for code in ("|u1", "|b1", "<i2", "<i4", "<i8", "<f4")}
"""The dtypes that may cross the wire, by their codes."""
LINK_BITS = 8
"""Lowest bits of an actor's incarnation, which identify its link to a shard; the other bits identify the process."""


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """One array of an unroll."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    """Shape per unroll; on the wire a leading dimension U is added."""
    minimum: int | None = None
    """Smallest value that an integer field may hold; None for the limit of the dtype."""
    maximum: int | None = None
    """Largest value, likewise."""

    @property
    def bytes_per_unroll(self) -> int:
        """Uncompressed size per unroll."""
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True)
class UnrollLayout:
    """Every array of an unroll, in wire order."""

    unroll_length: int
    """T, the burn-in included."""
    frame_stack: int
    """S, the frames in a stack."""
    frame_shape: tuple[int, int, int]
    """(H, W, C); (0, 0, 0) if observations have no frames."""
    num_actions: int
    """A, the number of actions."""
    state_size: int = 0
    """Numbers of the core's state; 0 without a recurrent core."""
    vector_size: int = 0
    """D; 0 if observations are frames only."""
    instruction_length: int = 0
    """L; 0 if the suite has no instructions."""
    burn_in: int = 0
    """First agent steps of an unroll, which repeat the last steps of the previous unroll and are not trained on."""
    num_tasks: int | None = None
    """Upper bound of ``task_id``; None leaves it unchecked."""
    num_words: int | None = None
    """Upper bound of ``instructions`` (ids 0..num_words-1); None leaves it unchecked."""

    @property
    def new_steps(self) -> int:
        """Agent steps that an unroll adds: its steps without the burn-in."""
        return self.unroll_length - self.burn_in

    @cached_property
    def fields(self) -> tuple[FieldSpec, ...]:
        """The fields in wire order."""
        steps, rows = self.unroll_length, self.unroll_length + 1
        u1, b1, i2, i4, i8, f4 = (DTYPES[code] for code in ("|u1", "|b1", "<i2", "<i4", "<i8", "<f4"))
        last_action = self.num_actions - 1
        last_task = None if self.num_tasks is None else self.num_tasks - 1
        last_word = None if self.num_words is None else self.num_words - 1
        fields = [
            FieldSpec("history_frames", u1, (self.frame_stack - 1, *self.frame_shape)),
            FieldSpec("frames", u1, (rows, *self.frame_shape)),
            FieldSpec("observations", f4, (rows, self.vector_size)),
            FieldSpec("game_reset", b1, (rows,)),
            FieldSpec("core_reset", b1, (rows,)),
            FieldSpec("actions", i4, (steps,), minimum=0, maximum=last_action),
            FieldSpec("rewards", f4, (steps,)),
            FieldSpec("terminated", b1, (steps,)),
            FieldSpec("truncated", b1, (steps,)),
            FieldSpec("row_valid", b1, (steps,)),
            FieldSpec("behaviour_logits", f4, (steps, self.num_actions)),
            FieldSpec("inverse_temperature", f4, (steps,)),
            FieldSpec("policy_version", i8, (2, 2), minimum=0),
            FieldSpec("initial_core_state", f4, (self.state_size,)),
            FieldSpec("last_action", i4, (), minimum=NO_ACTION, maximum=last_action),
            FieldSpec("last_reward", f4, ()),
            FieldSpec("instructions", i2, (rows, self.instruction_length), minimum=0, maximum=last_word),
            FieldSpec("environment_slot", i4, (), minimum=0),
            FieldSpec("task_id", i4, (), minimum=0, maximum=last_task),
            FieldSpec("episode_id", i8, (), minimum=0),
            FieldSpec("index_in_episode", i4, (), minimum=0),
        ]
        # A field without elements (no frames, history, vector, core or instructions) is not sent.
        return tuple(field for field in fields if math.prod(field.shape) > 0)

    def allocate(self, num_unrolls: int) -> dict[str, Array]:
        """Return zeroed arrays for ``num_unrolls`` unrolls by field name, each [U, *shape]."""
        return {field.name: np.zeros((num_unrolls, *field.shape), field.dtype) for field in self.fields}

    @property
    def bytes_per_unroll(self) -> int:
        """Uncompressed size of one unroll, all fields."""
        return sum(field.bytes_per_unroll for field in self.fields)

    def max_frame_bytes(self, num_unrolls: int) -> int:
        """Largest single payload frame of a message of ``num_unrolls`` unrolls; compression never makes it larger."""
        return num_unrolls * max(field.bytes_per_unroll for field in self.fields)
