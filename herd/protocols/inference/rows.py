"""Requests with rows of environments to the inference service, and its answers with actions.

A request has one payload frame with the small fields, one after the other. If observations have frames, a second payload frame holds the
newest plane of each environment, or its whole stack if the request includes the state. An answer has one payload frame.
Frames do not describe their contents: sizes follow from the run's contract and the number of environments.

Legend: E environments, S numbers of the core's state, C H W one frame, D numbers of a vector, L words of an instruction, P
parameters of an action distribution.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from herd.contract.unroll import DTYPES, FieldSpec
from herd.protocols.unrolls.arrays import unpack_fields
from herd.rpc.codec import MalformedMessage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from herd.contract.unroll import Array, UnrollLayout
    from herd.protocols.inference.messages import Act
    from herd.transport import Frame


class ActingRows(NamedTuple):
    """One row of E environments, as sent to the service."""

    fields: Mapping[str, Array]
    """[E, ...] by name, see `ActingLayout.row_fields` and `ActingLayout.state_fields`."""
    planes: NDArray[np.uint8] | None
    """[E, C, H, W], the newest; with the state [E, stack * C, H, W], oldest first. None if observations have no frames."""


class ActedRows(NamedTuple):
    """The service's answer to one row of E environments."""

    actions: Array
    """[E, *shape], as in the space of the actions."""
    behaviour_parameters: NDArray[np.float32]
    """[E, P] of the distribution that the actions were drawn from, before a temperature is applied."""
    core_state: NDArray[np.float32] | None
    """[E, S] after the row; None if it was not asked for."""


@dataclass(frozen=True)
class ActingLayout:
    """The fields of one environment in a request and in its answer, from the layout of the run's unrolls."""

    unroll: UnrollLayout

    @cached_property
    def row_fields(self) -> tuple[FieldSpec, ...]:
        """Fields of a request that continues from the previous row: all of a row but its frames, which are planes."""
        rows = {field.name: field for field in self.unroll.along("row") if field.name != "frames"}
        chosen = [field for field in self.unroll.fields if field.name in {"last_action", "last_reward", "inverse_temperature", *rows}]
        # Wide elements first, so that all are aligned.
        return tuple(_of_one_row(field) for field in sorted(chosen, key=lambda field: -field.dtype.itemsize))

    @cached_property
    def state_fields(self) -> tuple[FieldSpec, ...]:
        """Fields of a request that includes the state."""
        return (*self._core_state, *self.row_fields)

    def answer_fields(self, *, has_state: bool) -> tuple[FieldSpec, ...]:
        """Return the fields of an answer, with or without the state after the row."""
        return (*self._step_fields, *(self._core_state if has_state else ()))

    @cached_property
    def _step_fields(self) -> tuple[FieldSpec, ...]:
        return tuple(_of_one_row(field) for field in self.unroll.fields if field.name in {"actions", "behaviour_parameters"})

    @cached_property
    def _core_state(self) -> tuple[FieldSpec, ...]:
        size = self.unroll.state_size
        return (FieldSpec("core_state", DTYPES["<f4"], (size,)),) if size else ()

    def planes_shape(self, *, has_state: bool) -> tuple[int, int, int] | None:
        """Return the shape of one environment's planes; None if observations have no frames."""
        height, width, channels = self.unroll.frame_shape
        if not channels:
            return None
        return (self.unroll.frame_stack * channels if has_state else channels, height, width)

    def max_frame_bytes(self, num_environments: int) -> int:
        """Return the size of the largest payload frame of a request."""
        planes = self.planes_shape(has_state=True)
        fields = sum(field.bytes_per_unroll for field in self.state_fields)
        return num_environments * max(fields, math.prod(planes) if planes else 0)


def _of_one_row(field: FieldSpec) -> FieldSpec:
    """Return a field of an unroll as a field of one of its rows."""
    return FieldSpec(field.name, field.dtype, field.entry_shape, minimum=field.minimum, maximum=field.maximum)


def pack_fields(fields: Sequence[FieldSpec], arrays: Mapping[str, Array]) -> bytes:
    """Pack ``fields`` of ``arrays`` [E, ...] into one payload frame."""
    return b"".join([np.asarray(arrays[field.name], field.dtype).tobytes() for field in fields])


def read_request(message: Act, payloads: Sequence[Frame], layout: ActingLayout) -> ActingRows:
    """Return the row of a request, as views of its ``payloads``.

    Raises:
        MalformedMessage: number, length or values of the payloads do not match.
    """
    count = message.num_environments
    shape = layout.planes_shape(has_state=message.has_state)
    if len(payloads) != 1 + (shape is not None):
        raise MalformedMessage(f"act with {len(payloads)} payload frames", "array")
    fields = _unpack(payloads[0], layout.state_fields if message.has_state else layout.row_fields, count)
    if shape is None:
        return ActingRows(fields, None)
    if len(payloads[1]) != count * math.prod(shape):
        raise MalformedMessage(f"{len(payloads[1])} bytes of planes do not fit {count} environments", "size")
    return ActingRows(fields, np.frombuffer(payloads[1], np.uint8).reshape(count, *shape))


def read_answer(payloads: Sequence[Frame], num_environments: int, layout: ActingLayout, *, has_state: bool) -> ActedRows:
    """Return the contents of an answer to a request that asked for the state, or did not.

    Raises:
        MalformedMessage: number, length or values of the payloads do not match.
    """
    if len(payloads) != 1:
        raise MalformedMessage(f"acted with {len(payloads)} payload frames", "array")
    fields = _unpack(payloads[0], layout.answer_fields(has_state=has_state), num_environments)
    return ActedRows(fields["actions"], fields["behaviour_parameters"], fields.get("core_state"))


def _unpack(frame: Frame, fields: Sequence[FieldSpec], num_environments: int) -> dict[str, Array]:
    return unpack_fields(frame, [(field, num_environments) for field in fields])
