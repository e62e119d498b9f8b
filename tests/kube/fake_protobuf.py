"""Reads the Secrets in which Helm stores its releases. Go programs send built-in kinds as protocol buffers, but accept JSON answers."""

from __future__ import annotations

import base64
from collections.abc import Iterator

from tests.kube.fake_objects import Json

CONTENT_TYPE = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"


def read_secret(body: bytes) -> Json:
    """Decode a Secret, which is field 2 of an envelope (runtime.Unknown). Field numbers are from k8s.io/api/core/v1/generated.proto."""
    assert body.startswith(_MAGIC)
    message = _fields(_fields(body[len(_MAGIC) :])[2][0])
    metadata = _fields(message[1][0])
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": metadata[1][0].decode()}
        | {
            key: {name.decode(): value.decode() for name, value in _map(metadata, number)}
            for key, number in (("labels", 11), ("annotations", 12))
        },
        "data": {name.decode(): base64.b64encode(value).decode() for name, value in _map(message, 2)},
        "type": message.get(3, [b""])[0].decode(),
    }


def _map(message: dict[int, list[bytes]], number: int) -> Iterator[tuple[bytes, bytes]]:
    for entry in message.get(number, []):
        fields = _fields(entry)
        yield fields[1][0], fields.get(2, [b""])[0]


def _fields(data: bytes) -> dict[int, list[bytes]]:
    """Contents of the fields with a length, by number; integers are skipped."""
    found: dict[int, list[bytes]] = {}
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        value, at = _varint(data, at)
        if tag & 7 == 2:
            found.setdefault(tag >> 3, []).append(data[at : at + value])
            at += value
        else:
            assert tag & 7 == 0, "only varints and lengths are in use"
    return found


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
