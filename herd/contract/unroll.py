"""The arrays of an unroll: names, dtypes, shapes and ranges, derived from the run's contract alone.

Legend: U unrolls, T agent steps, H W C one frame, D numbers in a vector, P parameters of an action distribution, S numbers of the core's
state, M entries of a mask, L instruction words. docs/messaging.md gives the meaning of each field.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from herd.contract.spaces import ActionSpace

Array = npt.NDArray[Any]
Arrays = Mapping[str, Array]

DTYPES: Mapping[str, np.dtype[Any]] = {code: np.dtype(code) for code in ("|u1", "|b1", "<i2", "<i4", "<i8", "<f4")}
"""The dtypes that may cross the wire, by their codes."""
LINK_BITS = 8
"""Lowest bits of an actor's incarnation, which identify its link to a shard; the other bits identify the process."""
MAX_EPISODE_ID = 1 << 53
"""Largest number of a game in its environment. Receivers add to it, because several games may begin in an unroll."""
LARGEST_RETURN = 1e15
"""Largest return of a game: more than a million times that of any known one, and the sum of a hundred of them is still a finite float32."""


Axis = Literal["row", "step", "plane", "unroll"]
"""``row``: rows 0..T, each before a step. ``step``: steps 0..T-1. ``plane``: older frames, before row 0. ``unroll``: one entry."""


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """One array of an unroll."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    """Shape per unroll; on the wire a leading dimension U is added."""
    axis: Axis = "unroll"
    """What the first dimension counts."""
    minimum: int | tuple[int, ...] | None = None
    """Smallest value that an integer field may hold, one for all or one for each number of an entry; None for the limit of the dtype."""
    maximum: int | tuple[int, ...] | None = None
    """Largest value, likewise."""

    @property
    def entry_shape(self) -> tuple[int, ...]:
        """Shape of one row or step, or of the whole field if it has only one entry."""
        return self.shape if self.axis == "unroll" else self.shape[1:]

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
    """Number of frames in a stack."""
    frame_shape: tuple[int, int, int]
    """(H, W, C); (0, 0, 0) if observations have no frames."""
    actions: ActionSpace
    """Space of the actions."""
    num_parameters: int
    """P, the parameters of an action distribution."""
    state_size: int = 0
    """S, the numbers of the core's state; 0 without a recurrent core."""
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
        action, shape = DTYPES[self.actions.dtype], self.actions.shape
        low, high = (tuple(map(int, bound)) if action.kind == "i" else None for bound in (self.actions.low, self.actions.high))
        last_task = None if self.num_tasks is None else self.num_tasks - 1
        last_word = None if self.num_words is None else self.num_words - 1
        fields = [
            FieldSpec("history_frames", u1, (self.frame_stack - 1, *self.frame_shape), "plane"),
            FieldSpec("frames", u1, (rows, *self.frame_shape), "row"),
            FieldSpec("observations", f4, (rows, self.vector_size), "row"),
            FieldSpec("game_reset", b1, (rows,), "row"),
            FieldSpec("core_reset", b1, (rows,), "row"),
            FieldSpec("action_masks", b1, (rows, self.actions.mask_size), "row"),
            FieldSpec("actions", action, (steps, *shape), "step", low, high),
            FieldSpec("rewards", f4, (steps,), "step"),
            FieldSpec("terminated", b1, (steps,), "step"),
            FieldSpec("truncated", b1, (steps,), "step"),
            FieldSpec("row_valid", b1, (steps,), "step"),
            FieldSpec("behaviour_parameters", f4, (steps, self.num_parameters), "step"),
            FieldSpec("inverse_temperature", f4, (steps,), "step"),
            FieldSpec("policy_version", i8, (2, 2), minimum=0),
            FieldSpec("initial_core_state", f4, (self.state_size,)),
            FieldSpec("last_action", action, shape, minimum=low, maximum=high),
            FieldSpec("last_reward", f4, ()),
            FieldSpec("instructions", i2, (rows, self.instruction_length), "row", 0, last_word),
            FieldSpec("environment_slot", i4, (), minimum=0),
            FieldSpec("task_id", i4, (), minimum=0, maximum=last_task),
            FieldSpec("episode_id", i8, (), minimum=0, maximum=MAX_EPISODE_ID),
            FieldSpec("index_in_episode", i4, (), minimum=0),
        ]
        # A field without elements (no frames, history, vector, mask, core or instructions) is not sent.
        return tuple(field for field in fields if math.prod(field.shape) > 0)

    def along(self, *axes: Axis) -> tuple[FieldSpec, ...]:
        """The fields whose first dimension is one of ``axes``, in wire order."""
        return tuple(field for field in self.fields if field.axis in axes)

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
