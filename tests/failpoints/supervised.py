"""``benchmarks.soak.supervised`` whose children can die at failpoints; same arguments."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.soak import supervised
from herd.launch.plan import ChildPlan, Start, plan_children


def failing(plan: ChildPlan, folder: Path) -> ChildPlan:
    """Return the plan with a command that starts the process through `tests.failpoints.child`."""

    def command(start: Start) -> list[str]:
        words = plan.command(start)
        module = words.index("-m") + 1
        return [*words[:module], "tests.failpoints.child", str(folder), plan.name, *words[module:]]

    return replace(plan, command=command)


def main(argv: Sequence[str]) -> int:
    """Train; return the exit code of ``herd train``."""

    def plan(*arguments: Any) -> tuple[ChildPlan, ...]:
        return tuple(failing(each, Path(argv[0])) for each in plan_children(*arguments))

    vars(supervised)["plan_children"] = plan
    return supervised.main(argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
