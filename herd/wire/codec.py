"""Converts headers and arrays to frames and back.

Reading raises only ``MalformedMessage``, and writes nothing before every check has passed.
"""

from __future__ import annotations

import hashlib
import threading
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

import msgpack
import numpy as np
from pydantic import ValidationError

from herd.contract.unroll import DTYPES, Array, Arrays, UnrollLayout
from herd.wire.messages import (
    ARRAY_HEADERS,
    MAX_EPISODES,
    MAX_HEADER_BYTES,
    MESSAGE,
    PROTOCOL_VERSION,
    ArrayHeader,
    Compression,
    InsertUnrolls,
    Message,
    Unrolls,
)
from herd.wire.unroll_arrays import plan_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from herd.wire.unroll_arrays import UnrollArrays

Frame = bytes | memoryview
"""One ZeroMQ frame: bytes, or a view of one contiguous buffer that must not change until the message is acknowledged."""

MIN_COMPRESSED_BYTES = 4096
"""Smaller arrays are sent uncompressed, because a call costs about 2 us. In messages of 32 unrolls, all fields except frames, logits and
core state are smaller."""

FEW_ELEMENTS = 16
"""Maximum length of any list; shapes and versions are shorter."""
LEAST_ELEMENT_BYTES = 32
"""Minimum size of an element of longer lists: a starting game takes 40 bytes, and an array 25, in a list of at most 32. msgpack allocates
the announced length of a list, so without this limit nested lists of three bytes each would take 10,000 times their size."""

MAX_KEYS = 32
"""Maximum size of a map; headers have fewer entries."""
ARRAYS_KEY = msgpack.packb("arrays")
ARRAYS_KEPT = 64
"""Number of descriptions of arrays that are cached by their bytes, at most 6 kB each. A run has few: one for each size of message and each
choice of compressed arrays."""
NOT_MESSAGEPACK = (ValueError, TypeError, OverflowError, msgpack.UnpackException)

MAX_REASON_CHARACTERS = 200
"""Maximum length of the reason for a malformed message, which may quote the message."""


def printable(text: str, max_characters: int) -> str:
    """Return the beginning of ``text`` in printable ASCII: foreign text must not control a terminal or forge a log line."""
    text = text[:max_characters]
    return (text if text.isascii() and text.isprintable() else ascii(text)[1:-1])[:max_characters]


class MalformedMessage(Exception):  # noqa: N818  named after the message
    """A message breaks the protocol.

    ``reason`` is one short line for the log, printable whatever the message contains; ``label`` is its category in the metrics.
    """

    def __init__(self, reason: str, label: str = "header") -> None:
        self.reason = printable(reason, MAX_REASON_CHARACTERS)
        super().__init__(self.reason)
        self.label = label


class OtherProtocol(MalformedMessage):
    """A message of another protocol version; servers refuse it with ``reason``, under ``request_id`` if it has one."""

    def __init__(self, version: int, request_id: int | None) -> None:
        super().__init__(
            f"the message is of protocol version {version}, and this process speaks version {PROTOCOL_VERSION}: "
            "run the same release of Herd in every process of the run",
            "protocol",
        )
        self.request_id = request_id


def payload_digest(payload: Frame) -> str:
    """Return the hex SHA-256 of a slice of weights."""
    return hashlib.sha256(payload).hexdigest()


def encode(message: Message, arrays: Arrays | None = None, compression: Compression = "none") -> list[Frame]:
    """Return the frames of ``message``: the header, then one frame per array in the order given.

    Contiguous uncompressed arrays are not copied: their frames are views. ``message.arrays`` is set to the description of ``arrays``.

    Raises:
        TypeError: this type of message has no arrays, or a dtype is not allowed on the wire.
        ValueError: the header is larger than ``MAX_HEADER_BYTES`` (too many episode reports).

    """
    header = message.model_dump()
    frames: list[Frame] = []
    if arrays is not None:
        if not isinstance(message, Unrolls | InsertUnrolls):
            raise TypeError(f"{message.type} carries no arrays")
        described = []
        for name, array in arrays.items():
            if array.dtype.str not in DTYPES:
                raise TypeError(f"array {name} has dtype {array.dtype}, which is not allowed")
            used, frame = _pack(array, compression)
            described.append({"name": name, "dtype": array.dtype.str, "shape": array.shape, "compression": used})
            frames.append(frame)
        header["arrays"] = described
    packed: bytes = msgpack.packb(header)
    if len(packed) > MAX_HEADER_BYTES:
        raise ValueError(f"header of {len(packed)} bytes exceeds {MAX_HEADER_BYTES}")
    return [packed, *frames]


def decode_header(frame: Frame) -> Message:
    """Return the message in a header frame.

    Raises:
        OtherProtocol: a message of another protocol version.
        MalformedMessage: any other error in it.

    """
    if len(frame) > MAX_HEADER_BYTES:
        raise MalformedMessage(f"header of {len(frame)} bytes exceeds {MAX_HEADER_BYTES}", "size")
    packed = bytes(frame)
    if ARRAYS_KEY in packed and (message := _with_known_arrays(packed)) is not None:
        return message
    try:
        header = msgpack.unpackb(packed, **_limits(packed))
    except NOT_MESSAGEPACK as error:
        raise MalformedMessage(f"header is not MessagePack within limits: {type(error).__name__}") from error
    try:
        return MESSAGE.validate_python(header)
    except ValidationError as error:
        _recognise_other_protocol(header)
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(str(part)[:64] for part in first["loc"][:4])
        raise MalformedMessage(f"header {where or 'map'}: {first['msg']}") from error


def _limits(packed: bytes) -> dict[str, Any]:
    """Options for unpacking a header, which bound memory before validation. Tuples, because strict validation rejects lists."""
    most_elements = min(MAX_EPISODES, FEW_ELEMENTS + len(packed) // LEAST_ELEMENT_BYTES)
    return {
        "use_list": False,
        "max_str_len": 1024,
        "max_bin_len": 0,
        "max_array_len": most_elements,
        "max_map_len": MAX_KEYS,
        "max_ext_len": 0,
    }


def _with_known_arrays(packed: bytes) -> Message | None:
    """Return the message in a header, with the description of its arrays taken from a cache; None if anything is unusual.

    The description is most of a header and is the same in all messages of an actor. The result is the same as without the cache.
    """
    unpacker = msgpack.Unpacker(max_buffer_size=len(packed), **_limits(packed))
    header: dict[str, Any] = {}
    try:
        unpacker.feed(packed)
        num_keys = unpacker.read_map_header()
        if num_keys > MAX_KEYS:
            return None
        for _ in range(num_keys):
            key = unpacker.unpack()
            start = unpacker.tell()
            if key == "arrays":
                unpacker.skip()
                header[key] = _array_headers(packed[start : unpacker.tell()])
            elif isinstance(key, str):
                header[key] = unpacker.unpack()
            else:
                return None
        return MESSAGE.validate_python(header) if unpacker.tell() == len(packed) else None
    except (*NOT_MESSAGEPACK, RecursionError):  # a ValidationError is a ValueError
        return None


@lru_cache(maxsize=ARRAYS_KEPT)
def _array_headers(packed: bytes) -> tuple[ArrayHeader, ...]:
    return ARRAY_HEADERS.validate_python(msgpack.unpackb(packed, **_limits(packed)))


def _recognise_other_protocol(header: Any) -> None:
    """Raise ``OtherProtocol`` if ``header``, which is invalid in this version, is a message of another version.

    A hello contains its version. A message of version 1 differs only in that it has no agent.
    """
    if not isinstance(header, dict):
        return
    protocol, request_id = header.get("protocol"), header.get("request_id")
    answered = request_id if type(request_id) is int and 0 <= request_id < 2**63 else None
    if header.get("type") == "hello" and type(protocol) is int and protocol != PROTOCOL_VERSION:
        raise OtherProtocol(protocol, answered)
    if "agent" in header or "run_id" not in header:
        return
    try:
        MESSAGE.validate_python({**header, "agent": 0})
    except ValidationError:
        return
    raise OtherProtocol(1, answered)


def receive_arrays(message: Unrolls | InsertUnrolls, frames: Sequence[Frame], layout: UnrollLayout) -> UnrollArrays:
    """Return the arrays in the payload ``frames`` (without the header) of ``message``. They keep large frames of pixels in memory.

    Raises:
        MalformedMessage: names, order, dtype, shape, length, compression or values do not fit ``layout``.

    """
    plan = plan_of(layout, message.num_unrolls)
    try:
        is_compressed = plan.is_compressed(message.arrays)
    except ValueError as error:
        raise MalformedMessage(str(error), "array") from error
    if len(frames) != len(plan.sizes):
        raise MalformedMessage(f"{len(frames)} payload frames, expected {len(plan.sizes)}", "array")
    raw = frames
    if is_compressed:
        raw = [
            frame if header.compression == "none" else decompress(header.name, header.compression, frame, num_bytes)
            for header, frame, num_bytes in zip(message.arrays, frames, plan.sizes, strict=True)
        ]
    if (sizes := list(map(len, raw))) != plan.sizes:
        position = next(position for position, size in enumerate(sizes) if size != plan.sizes[position])
        name = plan.fields[position].name
        raise MalformedMessage(f"array {name} has {sizes[position]} bytes, expected {plan.sizes[position]}", "size")
    arrays = plan.arrays(raw)
    if (name_of_misfit := plan.first_misfit(arrays)) is not None:
        raise MalformedMessage(f"array {name_of_misfit} contains a value out of range", "array")
    return arrays


def read_arrays(message: Unrolls | InsertUnrolls, frames: Sequence[Frame], layout: UnrollLayout, out: Mapping[str, Array]) -> None:
    """Copy what `receive_arrays` returns into ``out``, one memcpy per field.

    Args:
        message: its header.
        frames: one per entry of ``message.arrays``.
        layout: what the receiver expects.
        out: by field name, writable views [U, *shape] with U = ``message.num_unrolls``; they may be strided.

    Raises:
        MalformedMessage: as in `receive_arrays`; ``out`` is unchanged.
        ValueError: ``out`` does not fit the layout.

    """
    arrays = dict(receive_arrays(message, frames, layout))
    for name, array in arrays.items():
        target = out[name]
        if target.shape != array.shape or target.dtype != array.dtype:
            raise ValueError(f"out[{name!r}] is {target.dtype} {target.shape}, expected {array.dtype} {array.shape}")
    for name, array in arrays.items():
        out[name][...] = array


def _pack(array: Array, compression: Compression) -> tuple[Compression, Frame]:
    if array.nbytes == 0:
        return "none", b""
    contiguous = np.ascontiguousarray(array)
    raw = contiguous.reshape(-1).view(np.uint8).data
    if compression == "none" or array.nbytes < MIN_COMPRESSED_BYTES:
        return "none", raw
    packed = compress(compression, raw)
    return (compression, packed) if len(packed) < len(raw) else ("none", raw)


def compress(compression: Compression, raw: Frame) -> bytes:
    """Return ``raw`` as one ``lz4`` block, or as one ``zstd`` frame that states its size."""
    # Imported here, because a process without compressed frames does not need these packages.
    if compression == "lz4":
        import lz4.block  # noqa: PLC0415

        return bytes(lz4.block.compress(raw, mode="fast", store_size=False))
    return bytes(_zstd().compressor.compress(raw))


class _Zstd(threading.local):
    """Contexts of zstandard. Threads must not share them."""

    def __init__(self) -> None:
        import zstandard  # noqa: PLC0415

        self.package = zstandard
        self.compressor = zstandard.ZstdCompressor(level=1, write_content_size=True)
        self.decompressor = zstandard.ZstdDecompressor()


@cache
def _zstd() -> _Zstd:
    return _Zstd()


def decompress(name: str, compression: Compression, frame: Frame, num_bytes: int) -> bytes:
    """Return ``frame`` decompressed; at most ``num_bytes`` are allocated.

    Raises:
        MalformedMessage: the size is not ``num_bytes``, or the data is invalid; the reason contains ``name``.

    """
    if compression == "lz4":
        import lz4.block  # noqa: PLC0415

        try:
            return bytes(lz4.block.decompress(frame, uncompressed_size=num_bytes))
        except (lz4.block.LZ4BlockError, ValueError, OverflowError) as error:
            raise MalformedMessage(f"array {name} does not decompress: {type(error).__name__}", "compression") from error
    zstd = _zstd()
    zstandard = zstd.package
    try:
        # The library trusts the frame's own content size over max_output_size, so it is compared first.
        if zstandard.frame_content_size(frame) != num_bytes:
            raise MalformedMessage(f"array {name} does not declare {num_bytes} bytes", "compression")
        return bytes(zstd.decompressor.decompress(frame, max_output_size=num_bytes, allow_extra_data=False))
    except (zstandard.ZstdError, ValueError) as error:
        raise MalformedMessage(f"array {name} does not decompress: {type(error).__name__}", "compression") from error
