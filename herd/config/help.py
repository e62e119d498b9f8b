"""The list of settings in ``--help``."""

from __future__ import annotations

import textwrap
from itertools import groupby
from typing import TYPE_CHECKING

from herd.config.keys import section_help, setting_keys
from herd.config.reference import default_text

if TYPE_CHECKING:
    from collections.abc import Collection

    from herd.config.keys import SettingKey


def settings_help(columns: int, *, without: Collection[str] = ()) -> str:
    """List every setting by section with its type, default and help, except those of the sections ``without``."""
    parts = []
    for section, keys in groupby(setting_keys(), key=lambda key: key.section):
        if section in without:
            continue
        parts.append(f"\n{section or 'run'}: {section_help()[section]}")
        parts.extend(_setting_help(key, columns) for key in keys)
    return "\n".join(parts)


def _setting_help(key: SettingKey, columns: int) -> str:
    head = f"  --{key.dotted} ({key.type_text}; default {default_text(key)})"
    body = textwrap.fill(key.help.replace("``", ""), max(40, columns), initial_indent=" " * 6, subsequent_indent=" " * 6)
    return f"{head}\n{body}"
