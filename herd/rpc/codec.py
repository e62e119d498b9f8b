"""Converts headers to frames and back. Reading raises only ``MalformedMessage``."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import msgpack
from pydantic import ValidationError

from herd.rpc.envelope import MAX_HEADER_BYTES, PROTOCOL_VERSION, Message, Refused

if TYPE_CHECKING:
    from herd.transport import Frame

MAX_ELEMENTS = 4096
"""Maximum length of a list: as many episodes may end in one message."""
FEW_ELEMENTS = 16
"""Length that any list may have; shapes and versions are shorter."""
MIN_ELEMENT_BYTES = 32
"""Minimum size of an element of longer lists: a starting game takes 40 bytes. msgpack allocates the announced length of a list, so without
this limit nested lists of three bytes each would take 10,000 times their size."""
MAX_KEYS = 32
"""Maximum size of a map; headers have fewer entries."""
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
    """A message of another protocol version; servers refuse it with ``reason``, under its ``id`` if it has one."""

    def __init__(self, version: int, id: int) -> None:  # noqa: A002  the field's name
        super().__init__(
            f"the message is of protocol version {version}, and this process speaks version {PROTOCOL_VERSION}: "
            "run the same release of Herd in every process of the run",
            "protocol",
        )
        self.id = id


def payload_digest(payload: Frame) -> str:
    """Return the hex SHA-256 of a slice of weights."""
    return hashlib.sha256(payload).hexdigest()


def encode(message: Message) -> list[Frame]:
    """Return the header frame of ``message``, in a list to which payload frames may be added.

    Raises:
        ValueError: it is larger than ``MAX_HEADER_BYTES``.

    """
    packed: bytes = msgpack.packb(message.header())
    if len(packed) > MAX_HEADER_BYTES:
        raise ValueError(f"header of {len(packed)} bytes exceeds {MAX_HEADER_BYTES}")
    return [packed]


class Conversation:
    """The messages between a server and its clients. Whoever takes part in it understands no others."""

    def __init__(self, server: str, *messages: type[Message]) -> None:
        """``server``: its name in reasons, such as ``bandit``. `Refused` belongs to every conversation."""
        self.server = server
        kinds: tuple[type[Message], ...] = (*messages, Refused)
        self.types: dict[str, type[Message]] = {kind.model_fields["type"].default: kind for kind in kinds}

    def decode(self, frame: Frame) -> Message:
        """Return the message in a header frame.

        Raises:
            OtherProtocol: a message of another protocol version.
            MalformedMessage: any other error in it.

        """
        if len(frame) > MAX_HEADER_BYTES:
            raise MalformedMessage(f"header of {len(frame)} bytes exceeds {MAX_HEADER_BYTES}", "size")
        try:
            # Limits that bound memory before validation. Tuples, because strict validation rejects lists.
            header: Any = msgpack.unpackb(
                frame,
                use_list=False,
                max_str_len=1024,
                max_bin_len=0,
                max_array_len=min(MAX_ELEMENTS, FEW_ELEMENTS + len(frame) // MIN_ELEMENT_BYTES),
                max_map_len=MAX_KEYS,
                max_ext_len=0,
            )
        except NOT_MESSAGEPACK as error:
            raise MalformedMessage(f"header is not MessagePack within limits: {type(error).__name__}") from error
        if not isinstance(header, dict):
            raise MalformedMessage("header is not a map")
        name = header.get("type")
        if not isinstance(name, str):
            raise MalformedMessage("header without a type")
        _check_version(header)
        kind = self.types.get(name)
        if kind is None:
            raise MalformedMessage(f"{name[:64]!r} is not a message to or from a {self.server}", "unexpected")
        try:
            return kind.model_validate(header, extra="forbid" if kind.has_payload else "ignore")
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            where = ".".join(str(part)[:64] for part in first["loc"][:4])
            raise MalformedMessage(f"header {where}: {first['msg']}") from error


def _check_version(header: dict[Any, Any]) -> None:
    """Raise ``OtherProtocol`` if a header has another version. Those of version 2 and before have none, or ``protocol``."""
    version = header.get("version", header.get("protocol", 2))
    if version == PROTOCOL_VERSION and type(version) is int and "version" in header:
        return
    if type(version) is not int or not 0 <= version < 2**63:
        raise MalformedMessage("header version: not a number")
    number = header.get("id", header.get("request_id"))
    raise OtherProtocol(version, number if type(number) is int and 0 <= number < 2**63 else 0)
