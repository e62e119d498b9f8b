"""``herd doctor``: what this machine has, what is missing, and what to do about it."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from herd.cli.options import OneLineParser

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from herd.cli.checks import Check


def _parser() -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog="herd doctor",
        description="Checks whether this machine has what training needs. The exit code is 0 if nothing required is missing, else 1.",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def run(argv: Sequence[str]) -> int:
    """Check this machine; returns 1 if something required is missing."""
    options = _parser().parse_args(argv)
    from herd.cli.checks import all_checks  # noqa: PLC0415  not needed for --help

    checks = all_checks()
    missing = [check for check in checks if check.required and not check.ok]
    if options.json:
        print(json.dumps({"ok": not missing, "checks": [asdict(check) for check in checks]}, indent=2))
    else:
        _print_table(checks, missing)
    return 1 if missing else 0


def _print_table(checks: Sequence[Check], missing: Sequence[Check]) -> None:
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    from herd.cli.consoles import table_console  # noqa: PLC0415

    table = Table("", "what", "found", "what to do", box=None, pad_edge=False)
    for check in checks:
        mark = (
            Text("OK", style="green") if check.ok else Text("MISSING", style="red") if check.required else Text("optional", style="yellow")
        )
        table.add_row(mark, check.name, Text(check.found), Text("" if check.ok else check.advice))
    console = table_console()
    console.print(table, highlight=False)
    verdict = "nothing that training needs is missing" if not missing else f"missing: {', '.join(check.name for check in missing)}"
    console.print(f"\n{verdict}", highlight=False)
