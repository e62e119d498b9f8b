"""What the user got wrong, as one line and exit code 2."""

from __future__ import annotations

EXIT_BAD_INPUT = 2


class CommandError(Exception):
    """One line for the person at the terminal."""
