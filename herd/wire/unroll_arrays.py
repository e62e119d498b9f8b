"""The arrays of one received message: where they lie in memory, and whether their values can be used.

Fields of one dtype lie one behind the other and are checked together, so that the number of calls, which is most of what a message of
one unroll costs, does not grow with the number of fields.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from herd.wire.layout import Array

if TYPE_CHECKING:
    from collections.abc import Sequence

    from herd.wire.layout import FieldSpec, UnrollLayout
    from herd.wire.messages import ArrayHeader

APART_BYTES = 1 << 16
"""Frames of pixels from this size on stay in the memory in which they came: libzmq gave each its own. Smaller ones are copied, or each
might keep alive the 8 KiB in which it came with others."""
PLANS_KEPT = 32
"""Sizes of messages and layouts that are seen in turn: an actor's messages are all of one size."""


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a field lies."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    """[U, ...]."""
    count: int
    """Elements."""
    start: int | None
    """In the packed bytes; None where it lies apart."""


@dataclass(frozen=True, slots=True)
class _Group:
    """Packed fields of one dtype, from one byte to another."""

    dtype: np.dtype[Any]
    start: int
    stop: int
    lowest: Array | None
    """[elements] of an integer dtype."""
    spans: Array | None
    """[elements], unsigned: by how much each may exceed its lowest."""

    def fits(self, packed: npt.NDArray[np.uint8]) -> bool:
        """Tell whether every value can be used as it is."""
        values = packed[self.start : self.stop]
        if self.dtype.kind == "b":  # numpy leaves other bytes than 0 and 1 undefined
            return bool(values.max() <= 1)
        if self.dtype.kind == "f":
            return bool(np.isfinite(values.view(self.dtype)).all())
        if self.lowest is None or self.spans is None:
            return True
        # What lies below the lowest wraps around to a difference that is too large.
        return bool(((values.view(self.dtype) - self.lowest).view(self.spans.dtype) <= self.spans).all())


class MessagePlan:
    """What a message of so many unrolls of one layout looks like."""

    def __init__(self, layout: UnrollLayout, num_unrolls: int) -> None:
        self.fields = layout.fields
        self.num_unrolls = num_unrolls
        self.sizes = [num_unrolls * field.bytes_per_unroll for field in self.fields]
        """Bytes of each field, in wire order."""
        self._shapes = [(num_unrolls, *field.shape) for field in self.fields]
        self._accepted: tuple[tuple[ArrayHeader, ...], bool] = ((), False)
        is_apart = [field.dtype.str == "|u1" and size >= APART_BYTES for field, size in zip(self.fields, self.sizes, strict=True)]
        self.apart = [position for position, apart in enumerate(is_apart) if apart]
        """Positions of the fields that are not packed."""
        # Widest dtypes first: so each field begins at a multiple of its element's size.
        self.packed = sorted(
            (position for position, apart in enumerate(is_apart) if not apart),
            key=lambda position: (-self.fields[position].dtype.itemsize, self.fields[position].dtype.str),
        )
        """Positions of the others, in the order in which they are packed."""
        starts: dict[int, int | None] = dict.fromkeys(self.apart)
        starts |= zip(self.packed, accumulate((self.sizes[position] for position in self.packed), initial=0), strict=False)
        self.places = {
            field.name: _Place(field.dtype, shape, math.prod(shape), starts[position])
            for position, (field, shape) in enumerate(zip(self.fields, self._shapes, strict=True))
        }
        """By name."""
        self._groups: list[_Group] = []
        for dtype in dict.fromkeys(self.fields[position].dtype for position in self.packed):
            if dtype.str != "|u1":  # any byte is a pixel
                self._groups.append(self._group(dtype, num_unrolls))

    def is_compressed(self, arrays: tuple[ArrayHeader, ...]) -> bool:
        """Tell whether these headers, which describe such a message, say that any array is compressed.

        Raises:
            ValueError: they describe another message; the text says how.

        """
        accepted, is_compressed = self._accepted
        if arrays == accepted:  # of the same objects, where the codec has seen them before: then nothing of them is compared
            return is_compressed
        if (misfit := self._misfit(arrays)) is not None:
            raise ValueError(misfit)
        is_compressed = any(header.compression != "none" for header in arrays)
        self._accepted = (arrays, is_compressed)
        return is_compressed

    def _misfit(self, arrays: tuple[ArrayHeader, ...]) -> str | None:
        if len(arrays) != len(self.fields):
            return f"{len(arrays)} arrays, expected {len(self.fields)}"
        for header, field, shape in zip(arrays, self.fields, self._shapes, strict=True):
            if header.name != field.name:
                return f"array {header.name[:64]} where {field.name} was expected"
            if header.dtype != field.dtype.str or header.shape != shape:
                return f"array {field.name} is {header.dtype} {header.shape}, expected {field.dtype.str} {shape}"
        return None

    def arrays(self, raw: Sequence[bytes | memoryview]) -> UnrollArrays:
        """Return what lies in ``raw``: the bytes of each field, in wire order and of the right sizes."""
        packed = b"".join([raw[position] for position in self.packed])
        return UnrollArrays(self, packed, {self.fields[position].name: raw[position] for position in self.apart})

    def first_misfit(self, arrays: UnrollArrays) -> str | None:
        """The first field with a value that cannot be used; None where there is none."""
        packed = np.frombuffer(arrays.packed, np.uint8)
        if all(group.fits(packed) for group in self._groups):
            return None
        return next(field.name for field in self.fields if not values_fit(field, arrays[field.name]))

    def _group(self, dtype: np.dtype[Any], num_unrolls: int) -> _Group:
        fields = [self.fields[position] for position in self.packed if self.fields[position].dtype == dtype]
        start = self.places[fields[0].name].start or 0
        stop = start + sum(num_unrolls * field.bytes_per_unroll for field in fields)
        if dtype.kind != "i":
            return _Group(dtype, start, stop, None, None)
        bounds = [(field, *_bounds(field)) for field in fields]
        counts = [num_unrolls * math.prod(field.shape) for field in fields]
        lowest = np.repeat(np.array([low for _, low, _ in bounds], dtype), counts)
        spans = np.repeat(np.array([high - low for _, low, high in bounds], f"<u{dtype.itemsize}"), counts)
        return _Group(dtype, start, stop, lowest, spans)


@lru_cache(maxsize=PLANS_KEPT)
def plan_of(layout: UnrollLayout, num_unrolls: int) -> MessagePlan:
    """Return the plan of such messages."""
    return MessagePlan(layout, num_unrolls)


class UnrollArrays(Mapping[str, Array]):
    """By field name, read-only arrays [U, *shape]: views of the bytes of one message."""

    __slots__ = ("_apart", "packed", "plan")

    def __init__(self, plan: MessagePlan, packed: bytes, apart: Mapping[str, bytes | memoryview]) -> None:
        self.plan = plan
        self._apart = apart
        self.packed = packed
        """All fields that do not lie apart."""

    def __getitem__(self, name: str) -> Array:
        place = self.plan.places[name]
        if place.start is None:
            return np.frombuffer(self._apart[name], place.dtype).reshape(place.shape)
        return np.frombuffer(self.packed, place.dtype, place.count, place.start).reshape(place.shape)

    def __iter__(self) -> Iterator[str]:
        return (field.name for field in self.plan.fields)

    def __len__(self) -> int:
        return len(self.plan.fields)


class SingleUnrolls:
    """Messages of one unroll each, of one layout, side by side: a batch is copied from them field by field, and not message by message."""

    def __init__(self, messages: Sequence[UnrollArrays]) -> None:
        self._messages = messages
        self._rows = np.frombuffer(b"".join([message.packed for message in messages]), np.uint8).reshape(len(messages), -1)

    def parts(self, name: str) -> list[Array]:
        """Arrays [N, *shape] that hold this field of the unrolls one after the other."""
        place = self._messages[0].plan.places[name]
        if place.start is None:
            return [message[name] for message in self._messages]
        columns = self._rows[:, place.start : place.start + place.count * place.dtype.itemsize]
        return [columns.view(place.dtype).reshape(-1, *place.shape[1:])]


def values_fit(field: FieldSpec, array: Array) -> bool:
    """Tell whether every value can be used as it is.

    An action out of range would abort a CUDA process, a NaN would poison the parameters.
    """
    if array.size == 0:
        return True
    if field.dtype.kind == "f":
        return bool(np.isfinite(array).all())
    if field.dtype.kind == "b":  # numpy leaves other bytes than 0 and 1 undefined
        return bool(array.view(np.uint8).max() <= 1)
    if field.minimum is not None and array.min() < field.minimum:
        return False
    return field.maximum is None or bool(array.max() <= field.maximum)


def _bounds(field: FieldSpec) -> tuple[int, int]:
    """Lowest and highest value that an integer field may hold."""
    of_dtype = np.iinfo(field.dtype)
    low = int(of_dtype.min) if field.minimum is None else field.minimum
    return low, int(of_dtype.max) if field.maximum is None else field.maximum
