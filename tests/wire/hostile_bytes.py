"""Strategies for what a hostile client may send: noise, and valid messages that were changed."""

from __future__ import annotations

from collections.abc import Sequence

import msgpack
from hypothesis import strategies as st

EDITS = st.lists(
    st.tuples(st.sampled_from(["set", "flip", "delete", "insert", "cut", "repeat"]), st.integers(0, 2**16), st.integers(0, 255)),
    min_size=1,
    max_size=3,
)
"""Edits as (kind, position, byte)."""
NUMBERS = st.sampled_from([0, 1, -1, 2, 2**31, 2**53, 2**63 - 1, 2**63, 2**64 - 1, -(2**63)])
VALUES = st.one_of(
    NUMBERS,
    st.floats(),
    st.none(),
    st.booleans(),
    st.text(max_size=8),
    st.binary(max_size=4),
    st.lists(NUMBERS, max_size=3),
    st.dictionaries(st.text(max_size=3), NUMBERS, max_size=2),
)


def edited(data: bytes, edits: Sequence[tuple[str, int, int]]) -> bytes:
    """Return ``data`` after the edits (kind, position, byte)."""
    result = bytearray(data)
    for kind, position, byte in edits:
        where = position % max(1, len(result))
        if kind == "insert" or not result:
            result.insert(where, byte)
        elif kind == "set":
            result[where] = byte
        elif kind == "flip":
            result[where] ^= 1 << (byte % 8)
        elif kind == "delete":
            del result[where]
        elif kind == "repeat":
            result[where:where] = result[where : where + byte]
        else:
            del result[where:]
    return bytes(result)


def with_field(header: bytes, key: int, value: object) -> bytes:
    """A header with one field replaced, or a field of the last element if the chosen field is a list of maps."""
    try:
        fields = msgpack.unpackb(header)
    except (ValueError, msgpack.UnpackException):
        return header
    if not isinstance(fields, dict) or not fields:
        return header
    name = sorted(map(str, fields))[key % len(fields)]
    inner = fields.get(name)
    if isinstance(inner, list) and inner and isinstance(inner[-1], dict) and inner[-1]:
        inner[-1][sorted(inner[-1])[key % len(inner[-1])]] = value
    else:
        fields[name] = value
    try:
        packed: bytes = msgpack.packb(fields)
    except (OverflowError, ValueError, UnicodeEncodeError):
        return header
    return packed


@st.composite
def mutated_frames(draw: st.DrawFn, valid: Sequence[Sequence[bytes]]) -> list[bytes]:
    """Frames of noise, or of one of the ``valid`` messages: unchanged, or edited, mistyped, shortened, reordered or mixed with another."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.lists(st.binary(max_size=64), min_size=1, max_size=4))
    frames = [bytes(frame) for frame in draw(st.sampled_from(list(valid)))]
    for _ in range(draw(st.integers(0, 2))):
        what = draw(st.sampled_from(["bytes", "header", "field", "field", "drop", "swap", "double", "graft"]))
        where = draw(st.integers(0, len(frames) - 1))
        if what in ("bytes", "header"):
            where = 0 if what == "header" else where
            frames[where] = edited(frames[where], draw(EDITS))
        elif what == "field":
            frames[0] = with_field(frames[0], draw(st.integers(0, 20)), draw(VALUES))
        elif what == "drop" and len(frames) > 1:
            del frames[where]
        elif what == "swap":
            frames[where], frames[0] = frames[0], frames[where]
        elif what == "double":
            frames.insert(where, frames[where])
        elif what == "graft":
            frames[1:] = [bytes(frame) for frame in draw(st.sampled_from(list(valid)))[1:]]
    return frames
