"""Writes the page of commands: the output of each ``herd COMMAND --help``."""

from __future__ import annotations

import contextlib
import io
import os
from unittest import mock

from herd.cli.main import COMMANDS, main, usage

COLUMNS = 110
"""Width of the help texts in characters, which fits a page without scrolling."""
MORE = {"bench": ["bench learner"]}
"""Subcommands that have their own help text."""


def commands_page() -> str:
    """Return the page, as Markdown."""
    parts = [
        "# Commands",
        "This page is generated from the parsers: it shows what `--help` prints.",
        f"```text\n{usage()}\n```",
    ]
    shown = [words for name in COMMANDS for words in (name, *MORE.get(name, []))]
    parts += [f"## herd {words}\n\n```text\n{help_text(words.split())}\n```" for words in shown]
    return "\n\n".join(parts) + "\n"


def help_text(words: list[str]) -> str:
    """Return the output of ``herd WORDS --help``."""
    printed = io.StringIO()
    plain = mock.patch.dict(os.environ, {"COLUMNS": str(COLUMNS), "NO_COLOR": "1"})
    with plain, contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        main([*words, "--help"])
    return printed.getvalue().rstrip()
