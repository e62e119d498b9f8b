"""Consoles for tables."""

from __future__ import annotations

from rich.console import Console

_FILE_COLUMNS = 240
"""Width of output to a file, so that no line is wrapped."""


def table_console(console: Console | None = None) -> Console:
    """Return a console that prints where ``console`` does (default: standard output) and wraps lines only on a terminal."""
    console = console or Console()
    return console if console.is_terminal else Console(width=_FILE_COLUMNS, file=console.file)
