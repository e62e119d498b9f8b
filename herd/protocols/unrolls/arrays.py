"""The arrays of one received message: their places in memory, and the check of their values.

Fields of one dtype are adjacent and are checked together. So the number of calls, which dominates the cost of a message with one unroll,
does not grow with the number of fields.
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

from herd.contract.unroll import Array, Arrays
from herd.protocols.compression import compress, decompress
from herd.rpc.codec import MalformedMessage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from herd.contract.unroll import FieldSpec, UnrollLayout
    from herd.protocols.unrolls.messages import Compression
    from herd.transport import Frame

APART_BYTES = 1 << 16
"""Frames of pixels of at least this size stay in libzmq's memory, where each has its own block. Smaller ones are copied, because each would
keep alive a block of 8 KiB that it shares with others."""
MIN_COMPRESSED_BYTES = 4096
"""Smaller arrays are sent uncompressed, because a call costs about 2 us. In messages of 32 unrolls, all fields except frames, logits and
core state are smaller."""
PLANS_KEPT = 32
"""Number of cached plans. All messages of an actor have the same size, so a run needs few."""


@dataclass(frozen=True, slots=True)
class _Place:
    """The place of a field in memory."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    """[U, ...]."""
    count: int
    """Number of elements."""
    start: int | None
    """Offset in the packed bytes; None if the field is not packed."""


@dataclass(frozen=True, slots=True)
class _Group:
    """A range of packed bytes with the fields of one dtype."""

    dtype: np.dtype[Any]
    start: int
    stop: int
    lowest: Array | None
    """Lowest values [elements], of an integer dtype."""
    spans: Array | None
    """[elements], unsigned: the largest difference of each from its lowest value."""

    def fits(self, packed: npt.NDArray[np.uint8]) -> bool:
        """Return whether every value is valid."""
        return _all_valid(packed[self.start : self.stop].view(self.dtype), self.lowest, self.spans)


class MessagePlan:
    """The structure of messages with a given number of unrolls of one layout."""

    def __init__(self, layout: UnrollLayout, num_unrolls: int) -> None:
        self.fields = layout.fields
        self.num_unrolls = num_unrolls
        self.sizes = [num_unrolls * field.bytes_per_unroll for field in self.fields]
        """Bytes of each field, in wire order."""
        is_apart = [field.dtype.str == "|u1" and size >= APART_BYTES for field, size in zip(self.fields, self.sizes, strict=True)]
        self.apart = [position for position, apart in enumerate(is_apart) if apart]
        """Positions of the fields that are not packed."""
        # Widest dtypes first, so that each field begins at a multiple of its element's size.
        self.packed = sorted(
            (position for position, apart in enumerate(is_apart) if not apart),
            key=lambda position: (-self.fields[position].dtype.itemsize, self.fields[position].dtype.str),
        )
        """Positions of the packed fields, in the order in which they are packed."""
        starts: dict[int, int | None] = dict.fromkeys(self.apart)
        starts |= zip(self.packed, accumulate((self.sizes[position] for position in self.packed), initial=0), strict=False)
        self.places = {
            field.name: _Place(field.dtype, (num_unrolls, *field.shape), num_unrolls * math.prod(field.shape), starts[position])
            for position, field in enumerate(self.fields)
        }
        """The fields by name."""
        self._groups: list[_Group] = []
        for dtype in dict.fromkeys(self.fields[position].dtype for position in self.packed):
            if dtype.str != "|u1":  # any byte is a pixel
                self._groups.append(self._group(dtype, num_unrolls))

    def arrays(self, raw: Sequence[bytes | memoryview]) -> UnrollArrays:
        """Return the arrays in ``raw``, the bytes of each field in wire order and of the right sizes."""
        packed = b"".join([raw[position] for position in self.packed])
        return UnrollArrays(self, packed, {self.fields[position].name: raw[position] for position in self.apart})

    def first_misfit(self, arrays: UnrollArrays) -> str | None:
        """Return the name of the first field with an invalid value; None if there is none."""
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
        lowest, spans = (
            np.concatenate([np.broadcast_to(bound, (num_unrolls, *field.shape)).ravel() for field, bound in zip(fields, each, strict=True)])
            for each in zip(*map(_bounds, fields), strict=True)
        )
        return _Group(dtype, start, stop, lowest, spans)


@lru_cache(maxsize=PLANS_KEPT)
def plan_of(layout: UnrollLayout, num_unrolls: int) -> MessagePlan:
    """Return the cached plan of these messages."""
    return MessagePlan(layout, num_unrolls)


class UnrollArrays(Mapping[str, Array]):
    """By field name, read-only arrays [U, *shape]: views of the bytes of one message."""

    __slots__ = ("_apart", "packed", "plan")

    def __init__(self, plan: MessagePlan, packed: bytes, apart: Mapping[str, bytes | memoryview]) -> None:
        self.plan = plan
        self._apart = apart
        self.packed = packed
        """All packed fields."""

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
    """Messages of one unroll each, of one layout. A batch is copied from them field by field instead of message by message."""

    def __init__(self, messages: Sequence[UnrollArrays]) -> None:
        self._messages = messages
        self._rows = np.frombuffer(b"".join([message.packed for message in messages]), np.uint8).reshape(len(messages), -1)

    def parts(self, name: str) -> list[Array]:
        """Return arrays [N, *shape] with this field of consecutive unrolls."""
        place = self._messages[0].plan.places[name]
        if place.start is None:
            return [message[name] for message in self._messages]
        columns = self._rows[:, place.start : place.start + place.count * place.dtype.itemsize]
        return [columns.view(place.dtype).reshape(-1, *place.shape[1:])]


def values_fit(field: FieldSpec, array: Array) -> bool:
    """Return whether every value is valid.

    An action out of range would abort a CUDA process, and a NaN would spoil the parameters.
    """
    return _all_valid(array, *_bounds(field))


def _all_valid(values: Array, lowest: Array | None, spans: Array | None) -> bool:
    """Return whether every value is valid; ``lowest`` and ``spans`` are those of `_Group`, of an integer dtype."""
    if values.dtype.kind == "b":  # numpy leaves other bytes than 0 and 1 undefined
        return not (values.view(np.uint8) > 1).any()
    if values.dtype.kind == "f":
        return bool(np.isfinite(values).all())
    if lowest is None or spans is None:
        return True
    # A value below the lowest wraps around to a difference that is too large.
    return bool(((values - lowest).view(spans.dtype) <= spans).all())


def _bounds(field: FieldSpec) -> tuple[Array | None, Array | None]:
    """Return the lowest values of a field of signed integers, and the largest differences from them, unsigned; else None.

    Both are one number, or have the shape of an entry.
    """
    if field.dtype.kind != "i":
        return None, None
    of_dtype = np.iinfo(field.dtype)
    low = of_dtype.min if field.minimum is None else field.minimum
    high = of_dtype.max if field.maximum is None else field.maximum
    if isinstance(low, int) and isinstance(high, int):
        return np.array(low, field.dtype), np.array(high - low, f"<u{field.dtype.itemsize}")
    lowest, highest = (np.array(bound, np.int64) for bound in (low, high))
    shape = field.entry_shape
    return lowest.astype(field.dtype).reshape(shape), (highest - lowest).astype(f"<u{field.dtype.itemsize}").reshape(shape)


def unpack_fields(frame: Frame, fields: Sequence[tuple[FieldSpec, int]]) -> dict[str, Array]:
    """Return views [count, *entry] of fields that follow each other in one frame, by name.

    Raises:
        MalformedMessage: the frame's length or a value does not match ``fields``, each with its count of entries.

    """
    sizes = [count * math.prod(field.entry_shape) for field, count in fields]
    if len(frame) != sum(size * field.dtype.itemsize for size, (field, _) in zip(sizes, fields, strict=True)):
        raise MalformedMessage(f"{len(frame)} bytes of fields do not have the expected length", "size")
    arrays: dict[str, Array] = {}
    offset = 0
    for size, (field, count) in zip(sizes, fields, strict=True):
        array = np.frombuffer(frame, field.dtype, size, offset).reshape(count, *field.entry_shape)
        if not values_fit(field, array):
            raise MalformedMessage(f"field {field.name} contains a value out of range", "array")
        arrays[field.name] = array
        offset += array.nbytes
    return arrays


def pack_arrays(arrays: Arrays, compression: Compression = "none") -> list[Frame]:
    """Return one frame per array in the order given, compressed where that makes it shorter.

    Contiguous uncompressed arrays are not copied: their frames are views.
    """
    return [_pack(array, compression) for array in arrays.values()]


def receive_arrays(frames: Sequence[Frame], num_unrolls: int, layout: UnrollLayout, compression: Compression = "none") -> UnrollArrays:
    """Return the arrays in the payload ``frames``, one per field. They keep large frames of pixels in memory.

    A frame that is shorter than its array is compressed.

    Raises:
        MalformedMessage: number, length, compression or values do not fit ``layout``.

    """
    plan = plan_of(layout, num_unrolls)
    if len(frames) != len(plan.sizes):
        raise MalformedMessage(f"{len(frames)} payload frames, expected {len(plan.sizes)}", "array")
    raw = frames
    if list(map(len, frames)) != plan.sizes:
        raw = [
            frame if len(frame) == size else _unpack(field.name, compression, frame, size)
            for field, frame, size in zip(plan.fields, frames, plan.sizes, strict=True)
        ]
    arrays = plan.arrays(raw)
    if (name_of_misfit := plan.first_misfit(arrays)) is not None:
        raise MalformedMessage(f"array {name_of_misfit} contains a value out of range", "array")
    return arrays


def _pack(array: Array, compression: Compression) -> Frame:
    raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
    if compression == "none" or array.nbytes < MIN_COMPRESSED_BYTES:
        return raw
    packed = compress(compression, raw)
    return packed if len(packed) < len(raw) else raw


def _unpack(name: str, compression: Compression, frame: Frame, size: int) -> bytes:
    if compression == "none" or len(frame) > size:
        raise MalformedMessage(f"array {name} has {len(frame)} bytes, expected {size}", "size")
    return decompress(name, compression, frame, size)
