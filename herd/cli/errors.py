"""Errors of the user, reported in one line with exit code 2."""

from __future__ import annotations

EXIT_BAD_INPUT = 2


class CommandError(Exception):
    """An error of the user; the message is one line."""
