"""Compression of payloads, with the checks that bound what a hostile frame can allocate."""

from __future__ import annotations

import threading
from functools import cache
from typing import TYPE_CHECKING

from herd.rpc.codec import MalformedMessage

if TYPE_CHECKING:
    from herd.protocols.unrolls.messages import Compression
    from herd.transport import Frame


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
    # The library trusts the frame's own content size over max_output_size, so it is compared first.
    check_declared_size(name, frame, num_bytes)
    zstd = _zstd()
    try:
        return bytes(zstd.decompressor.decompress(frame, max_output_size=num_bytes, allow_extra_data=False))
    except (zstd.package.ZstdError, ValueError) as error:
        raise MalformedMessage(f"array {name} does not decompress: {type(error).__name__}", "compression") from error


def check_declared_size(name: str, frame: Frame, num_bytes: int) -> None:
    """Check, without decompressing it, that a ``zstd`` frame states this size.

    Raises:
        MalformedMessage: it states another size or none; the reason contains ``name``.

    """
    zstandard = _zstd().package
    try:
        declared = zstandard.frame_content_size(frame)
    except (zstandard.ZstdError, ValueError):
        declared = None
    if declared != num_bytes:
        raise MalformedMessage(f"array {name} does not declare {num_bytes} bytes", "compression")
