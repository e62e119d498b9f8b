"""Errors of the user, reported in one line with exit code 2."""

from __future__ import annotations


class CommandError(Exception):
    """An error of the user; the message is one line."""
