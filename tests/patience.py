"""How long tests wait for events that must happen. Deadlines guard against hanging; they never measure speed."""

from __future__ import annotations

import os

PATIENCE = float(os.environ.get("TEST_PATIENCE", "1"))
"""Factor for every deadline and every test's time-out; ``make test-slow`` sets it."""


def patient(seconds: float) -> float:
    """A deadline; ``seconds`` should be far more than a busy machine needs."""
    return seconds * PATIENCE
