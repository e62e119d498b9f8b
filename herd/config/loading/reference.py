"""The list of settings: in ``--help``, and as docs/configuration.md (``make docs``)."""

from __future__ import annotations

import re
import sys
import textwrap
from itertools import groupby
from typing import TYPE_CHECKING

from herd.config.loading.keys import ENVIRONMENT_PREFIX, keys_by_variant, section_help, section_variants, setting_keys

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from herd.config.loading.keys import SettingKey

_HEAD = f"""# Configuration

This page is generated from the settings' docstrings by `make docs`; do not edit it by hand.

You can set each setting in several places. If more than one of them has a value, the last one in this list wins:

1. The default.
2. Run files (YAML), in the order given: `herd train base.yaml mine.yaml`. Sections are merged; a list replaces a list.
3. The environment: `{ENVIRONMENT_PREFIX}LEARNER__BATCH_SIZE=64`, with two underscores for the dot.
4. The command line: `--learner.batch_size 64` or `--learner.batch_size=64`. Write a list as JSON, separated by commas, or by repeating
   the option. Write `null` if the type allows it. A boolean option without a value means true.

Some sections, such as `env`, `loss` and `optimizer`, come in variants. Each variant has a table of its own, and the first key of the
table chooses it. You cannot set a setting of another variant. If a later source chooses a different variant, all earlier values of that
section are discarded. The name of a variant may stand for the whole section, as in `loss: dice`.

A misspelt name is an error everywhere, including in the environment. The only other variables that start with `{ENVIRONMENT_PREFIX}` are
`{ENVIRONMENT_PREFIX}CURVE_...`, which hold keys (see `security`), and the options of a single process, such as
`{ENVIRONMENT_PREFIX}LISTEN`. You can write `2e6` for an integer.
"""


def settings_help(columns: int, *, without: Collection[str] = ()) -> str:
    """List every setting by section with its type, default and help, except those of the sections ``without``."""
    by_name: dict[str, list[SettingKey]] = {}
    for key in keys_by_variant():
        by_name.setdefault(key.dotted, []).append(key)
    lines = []
    for section, keys in groupby(setting_keys(), key=lambda key: key.section):
        if section in without:
            continue
        lines.append(f"\n{section or 'run'}: {section_help()[section]}")
        for key in keys:
            variants = by_name[key.dotted]
            lines.append(f"  --{key.dotted} ({_common_type(each.type_text for each in variants)}; {_common_default(key, variants)})")
            lines.append(textwrap.indent(textwrap.fill(key.help.replace("``", ""), max(34, columns - 6)), " " * 6))
    return "\n".join(lines)


def _common_type(texts: Iterable[str]) -> str:
    """Describe what any variant of a section accepts for a setting; without bounds, if variants differ."""
    different = dict.fromkeys(texts)
    if len(different) == 1:
        return next(iter(different))
    bare = [re.sub(r" [<>].*?(?= or |$)", "", text) for text in different]
    kinds = dict.fromkeys(kind for text in bare for part in text.split(" or ") for kind in part.split(", "))
    return ", ".join(kind for kind in kinds if kind != "null") + (" or null" if "null" in kinds else "")


def _common_default(key: SettingKey, variants: Iterable[SettingKey]) -> str:
    texts = {each.default_text for each in variants}
    variants_of_section = section_variants().get(key.section)
    if len(texts) == 1 or variants_of_section is None:
        return key.default_text if key.default_text == "required" else f"default {key.default_text}"
    if key.path[-1] == variants_of_section.discriminator:
        return f"default {variants_of_section.default}"
    return f"default depends on {key.section}.{variants_of_section.discriminator}"


def reference_markdown() -> str:
    """Every setting with its type, default and help, by section."""
    parts = [_HEAD]
    for (section, variant), keys in groupby(keys_by_variant(), key=lambda key: (key.section, *key.variants[:1], "")[:2]):
        chooser = f"{section}.{section_variants()[section].discriminator}" if variant else ""
        title = f"{section} ({chooser}: {variant})" if variant else section or "The run"
        parts.append(f"## {title}\n\n{section_help()[f'{section}.{variant}' if variant else section]}\n")
        rows = [f"| `{key.dotted}` | {key.type_text} | {_default_cell(key)} | {_cell(key.help)} |" for key in keys]
        parts.append("\n".join(["| setting | type | default | meaning |", "| --- | --- | --- | --- |", *rows]) + "\n")
    return "\n".join(parts)


def _default_cell(key: SettingKey) -> str:
    return key.default_text if key.default_text == "required" else f"`{key.default_text}`"


def _cell(text: str) -> str:
    """Between backticks Markdown shows an entity as it is written, so only other text has one."""
    pieces = text.replace("``", "`").replace("|", "\\|").split("`")
    return "`".join(piece if number % 2 else piece.replace("<", "&lt;") for number, piece in enumerate(pieces))


if __name__ == "__main__":
    sys.stdout.write(reference_markdown())
