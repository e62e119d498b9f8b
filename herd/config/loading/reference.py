"""The list of settings: in ``--help``, and as docs/configuration.md (``make docs``)."""

from __future__ import annotations

import sys
import textwrap
from itertools import groupby
from typing import TYPE_CHECKING

from herd.config.loading.keys import ENVIRONMENT_PREFIX, keys_by_variant, section_help, section_variants, setting_keys

if TYPE_CHECKING:
    from collections.abc import Collection

_HEAD = f"""# Configuration

Generated from the settings' own docstrings by `make docs`; do not edit by hand.

The value of a setting comes from the last of these sources that gives one:

1. its default;
2. run files (YAML), in the order given: `herd train base.yaml mine.yaml`; sections are merged, a list replaces a list;
3. the environment: `{ENVIRONMENT_PREFIX}LEARNER__BATCH_SIZE=64` (two underscores for the dot);
4. the command line: `--learner.batch_size 64` or `--learner.batch_size=64`; a list is JSON, comma-separated or repeated;
   `null` if the type allows it; an option of type boolean without a value means true.

A section that comes in variants (`env`, `loss`, `value_scaling`, `auxiliary`, `optimizer`) has one table for each. The key that chooses
the variant comes first; a setting of another variant is an error. If a source chooses a different variant than the sources before it,
their values for this section are discarded. The name of a variant may stand for the whole section: `loss: dice`.

An unknown name is an error in every source, including the environment. The only other variables with this prefix are
`{ENVIRONMENT_PREFIX}CURVE_...`, which hold keys (`security`). `2e6` is accepted for integers.
"""


def settings_help(columns: int, *, without: Collection[str] = ()) -> str:
    """List every setting by section with its type, default and help, except those of the sections ``without``."""
    lines = []
    for section, keys in groupby(setting_keys(), key=lambda key: key.section):
        if section in without:
            continue
        lines.append(f"\n{section or 'run'}: {section_help()[section]}")
        for key in keys:
            lines.append(f"  --{key.dotted} ({key.type_text}; default {key.default_text})")
            lines.append(textwrap.indent(textwrap.fill(key.help.replace("``", ""), max(34, columns - 6)), " " * 6))
    return "\n".join(lines)


def reference_markdown() -> str:
    """Every setting with its type, default and help, by section."""
    parts = [_HEAD]
    for (section, variant), keys in groupby(keys_by_variant(), key=lambda key: (key.section, *key.variants[:1], "")[:2]):
        chooser = f"{section}.{section_variants()[section].discriminator}" if variant else ""
        title = f"{section} ({chooser}: {variant})" if variant else section or "The run"
        parts.append(f"## {title}\n\n{section_help()[f'{section}.{variant}' if variant else section]}\n")
        rows = [f"| `{key.dotted}` | {key.type_text} | `{key.default_text}` | {_cell(key.help)} |" for key in keys]
        parts.append("\n".join(["| setting | type | default | meaning |", "| --- | --- | --- | --- |", *rows]) + "\n")
    return "\n".join(parts)


def _cell(text: str) -> str:
    return text.replace("``", "`").replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    sys.stdout.write(reference_markdown())
