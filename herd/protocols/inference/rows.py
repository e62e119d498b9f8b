"""Requests with rows of environments to the inference service, and its answers with actions.

A request has one payload frame with the small fields, one after the other. If observations have frames, a second payload frame holds the
newest plane of each environment, or its whole stack if the request includes the state. An answer has one payload frame.
Frames do not describe their contents: sizes follow from the run's contract and the number of environments.

Legend: E environments, S numbers of the core's state, C H W one frame, D numbers of a vector, L words of an instruction, A actions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from herd.contract.spaces import NO_ACTION
from herd.contract.unroll import DTYPES, FieldSpec
from herd.protocols.unrolls.arrays import values_fit
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

    actions: NDArray[np.int32]
    """[E]."""
    behaviour_logits: NDArray[np.float32]
    """[E, A], before a temperature is applied."""
    core_state: NDArray[np.float32]
    """[E, S] after the row."""


@dataclass(frozen=True)
class ActingLayout:
    """The fields of one environment in a request and in its answer, from the layout of the run's unrolls."""

    unroll: UnrollLayout

    @cached_property
    def row_fields(self) -> tuple[FieldSpec, ...]:
        """Fields of a request that continues from the previous row."""
        return self._present(self._of_rows())

    @cached_property
    def state_fields(self) -> tuple[FieldSpec, ...]:
        """Fields of a request that includes the state."""
        return self._present([FieldSpec("core_state", DTYPES["<f4"], (self.unroll.state_size,)), *self._of_rows()])

    @cached_property
    def answer_fields(self) -> tuple[FieldSpec, ...]:
        """Fields of an answer."""
        f4, i4, num_actions = DTYPES["<f4"], DTYPES["<i4"], self.unroll.num_actions
        return self._present(
            [
                FieldSpec("actions", i4, (), minimum=0, maximum=num_actions - 1),
                FieldSpec("behaviour_logits", f4, (num_actions,)),
                FieldSpec("core_state", f4, (self.unroll.state_size,)),
            ]
        )

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

    def _of_rows(self) -> list[FieldSpec]:
        layout = self.unroll
        b1, i2, i4, f4 = (DTYPES[code] for code in ("|b1", "<i2", "<i4", "<f4"))
        last_word = None if layout.num_words is None else layout.num_words - 1
        return [  # wide elements first, so that all are aligned
            FieldSpec("last_actions", i4, (), minimum=NO_ACTION, maximum=layout.num_actions - 1),
            FieldSpec("last_rewards", f4, ()),
            FieldSpec("inverse_temperatures", f4, ()),
            FieldSpec("vectors", f4, (layout.vector_size,)),
            FieldSpec("instructions", i2, (layout.instruction_length,), minimum=0, maximum=last_word),
            FieldSpec("game_reset", b1, ()),
            FieldSpec("core_reset", b1, ()),
        ]

    @staticmethod
    def _present(fields: Sequence[FieldSpec]) -> tuple[FieldSpec, ...]:
        return tuple(field for field in fields if math.prod(field.shape) > 0)


def pack_fields(fields: Sequence[FieldSpec], arrays: Mapping[str, Array]) -> bytes:
    """Pack ``fields`` of ``arrays`` [E, ...] into one payload frame."""
    return b"".join([np.asarray(arrays[field.name], field.dtype).tobytes() for field in fields])


def unpack_fields(fields: Sequence[FieldSpec], num_environments: int, frame: Frame) -> dict[str, Array]:
    """Return views [E, ...] of one payload frame, by name.

    Raises:
        MalformedMessage: its length or a value does not match these fields.
    """
    if len(frame) != num_environments * sum(field.bytes_per_unroll for field in fields):
        raise MalformedMessage(f"{len(frame)} bytes of fields do not fit {num_environments} environments", "size")
    arrays: dict[str, Array] = {}
    offset = 0
    for field in fields:
        count = num_environments * math.prod(field.shape)
        array = np.frombuffer(frame, field.dtype, count, offset).reshape(num_environments, *field.shape)
        if not values_fit(field, array):
            raise MalformedMessage(f"field {field.name} contains a value out of range", "array")
        arrays[field.name] = array
        offset += array.nbytes
    return arrays


def read_request(message: Act, payloads: Sequence[Frame], layout: ActingLayout) -> ActingRows:
    """Return the row of a request, as views of its ``payloads``.

    Raises:
        MalformedMessage: number, length or values of the payloads do not match.
    """
    count = message.num_environments
    shape = layout.planes_shape(has_state=message.has_state)
    if len(payloads) != 1 + (shape is not None):
        raise MalformedMessage(f"act with {len(payloads)} payload frames", "array")
    fields = unpack_fields(layout.state_fields if message.has_state else layout.row_fields, count, payloads[0])
    if shape is None:
        return ActingRows(fields, None)
    if len(payloads[1]) != count * math.prod(shape):
        raise MalformedMessage(f"{len(payloads[1])} bytes of planes do not fit {count} environments", "size")
    return ActingRows(fields, np.frombuffer(payloads[1], np.uint8).reshape(count, *shape))


def read_answer(payloads: Sequence[Frame], num_environments: int, layout: ActingLayout) -> ActedRows:
    """Return the contents of an answer.

    Raises:
        MalformedMessage: number, length or values of the payloads do not match.
    """
    if len(payloads) != 1:
        raise MalformedMessage(f"acted with {len(payloads)} payload frames", "array")
    fields = unpack_fields(layout.answer_fields, num_environments, payloads[0])
    core_state = fields.get("core_state", np.zeros((num_environments, 0), np.float32))
    return ActedRows(fields["actions"], fields["behaviour_logits"], core_state)
