"""Converts headers to frames and back. Reading raises only ``MalformedMessage``."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgpack
from pydantic import ValidationError

from herd.rpc.envelope import ARRAY_HEADERS, MAX_HEADER_BYTES, PROTOCOL_VERSION, TYPES, ArrayHeader, Message

if TYPE_CHECKING:
    from collections.abc import Mapping

    from herd.transport import Frame

MAX_ELEMENTS = 4096
"""Maximum length of a list: as many episodes may end in one message."""
FEW_ELEMENTS = 16
"""Length that any list may have; shapes and versions are shorter."""
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


def encode(message: Message) -> list[Frame]:
    """Return the header frame of ``message``, in a list to which payload frames may be added.

    Raises:
        ValueError: it is larger than ``MAX_HEADER_BYTES``.

    """
    return [pack_header(message.model_dump())]


def pack_header(header: Mapping[str, Any]) -> bytes:
    """Return a header frame; raises ``ValueError`` if it is larger than ``MAX_HEADER_BYTES``."""
    packed: bytes = msgpack.packb(header)
    if len(packed) > MAX_HEADER_BYTES:
        raise ValueError(f"header of {len(packed)} bytes exceeds {MAX_HEADER_BYTES}")
    return packed


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
        return validated(header)
    except ValidationError as error:
        _recognise_other_protocol(header)
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(str(part)[:64] for part in first["loc"][:4])
        raise MalformedMessage(f"header {where or 'map'}: {first['msg']}") from error


def validated(header: Any) -> Message:
    """Return the message of a decoded header.

    Raises:
        MalformedMessage: its type is unknown.
        ValidationError: a field is missing, unknown or invalid.

    """
    if not isinstance(header, dict):
        raise MalformedMessage("header is not a map")
    kind = header.get("type")
    known = TYPES.get(kind) if isinstance(kind, str) else None
    if known is None:
        raise MalformedMessage(f"header type: {str(kind)[:64]!r} is not a type of message")
    return known.model_validate(header)


def _limits(packed: bytes) -> dict[str, Any]:
    """Options for unpacking a header, which bound memory before validation. Tuples, because strict validation rejects lists."""
    most_elements = min(MAX_ELEMENTS, FEW_ELEMENTS + len(packed) // LEAST_ELEMENT_BYTES)
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
        return validated(header) if unpacker.tell() == len(packed) else None
    except (*NOT_MESSAGEPACK, RecursionError, MalformedMessage):  # a ValidationError is a ValueError
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
        validated({**header, "agent": 0})
    except (ValidationError, MalformedMessage):
        return
    raise OtherProtocol(1, answered)
