"""The error of the Python API for everything except settings (`herd.SettingsError`)."""

from __future__ import annotations


class RunError(Exception):
    """A run cannot be opened, played or trained to its end; one line."""
