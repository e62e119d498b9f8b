"""What a caller can mend, beside settings (`herd.SettingsError`)."""

from __future__ import annotations


class RunError(Exception):
    """A run that cannot be opened, played or trained to its end; one line."""
