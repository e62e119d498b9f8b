"""Frames of bytes over ZeroMQ. It knows neither messages nor the meaning of keys' names."""

from __future__ import annotations

Frame = bytes | memoryview
"""One frame of a message: bytes, or a view of one contiguous buffer that must not change until the message is acknowledged."""
MAX_FRAMES = 260
"""Frames kept of one message, including the route and the header. No valid message has this many, so longer ones are refused."""
ALWAYS_ALLOWED_BYTES = 1 << 20
"""Every socket accepts frames of this size, whatever its own limit: headers."""
