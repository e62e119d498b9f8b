"""Writes the page of commands: the output of each ``herd COMMAND --help``."""

from __future__ import annotations

import contextlib
import io
import os
from unittest import mock

from herd.cli.main import COMMANDS, main, usage

COLUMNS = 110
"""Width of the help texts in characters, which fits a page without scrolling."""


def commands_page() -> str:
    """Return the page, as Markdown."""
    parts = [
        "# Commands",
        "This page is generated from the parsers: it shows what `--help` prints.",
        f"```text\n{usage()}\n```",
    ]
    parts += [f"## herd {name}\n\n```text\n{help_text(name)}\n```" for name in COMMANDS]
    return "\n\n".join(parts) + "\n"


def help_text(command: str) -> str:
    """Return the output of ``herd COMMAND --help``."""
    printed = io.StringIO()
    plain = mock.patch.dict(os.environ, {"COLUMNS": str(COLUMNS), "NO_COLOR": "1"})
    with plain, contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        main([command, "--help"])
    return printed.getvalue().rstrip()
