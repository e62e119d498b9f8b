"""How long a test waits for what must happen. A deadline here guards against hanging, it never measures speed."""

from __future__ import annotations

import os

PATIENCE = float(os.environ.get("TEST_PATIENCE", "1"))
"""Multiplies every deadline and every test's time-out; ``make test-slow`` sets it."""


def patient(seconds: float) -> float:
    """A deadline: ``seconds`` is far more than a busy machine needs."""
    return seconds * PATIENCE
