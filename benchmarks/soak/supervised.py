"""``herd train`` with its connections redirected through proxies: ``python -m benchmarks.soak.supervised FOLDER FILE [--section.key ...]``.

Plan, supervisor and shutdown are those of ``herd train``; only addresses and ports of the children's command lines differ. The two
processes communicate through files, because the children start many times: this one writes FOLDER/links.json (all connections), waits for
FOLDER/wiring.json, and reads it again whenever it starts a child.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from benchmarks.soak.wiring import read_wiring, rewired
from herd.cli.preflight import check_installed
from herd.cli.train import read_settings
from herd.launch.plan import placed_here, plan_children
from herd.launch.run_directory import claim_run_directory, hold_run_directory
from herd.launch.supervisor import Supervisor
from herd.run.paths import planned_agent_directories
from herd.view.terminal import make_view

if TYPE_CHECKING:
    from collections.abc import Sequence

LINKS = "links.json"
WIRING = "wiring.json"
WIRING_SECONDS = 60.0
"""Timeout for the other process to open its proxies."""


def main(argv: Sequence[str]) -> int:
    """Train; return the exit code of ``herd train``."""
    started = time.monotonic()
    folder, words = Path(argv[0]), argv[1:]
    settings = read_settings(words, os.environ)
    check_installed(settings)
    console = Console()
    with placed_here(settings) as placed, hold_run_directory(settings := claim_run_directory(settings)) as held:
        run_dir = held.path
        plans = plan_children(settings, run_dir, placed, os.environ)
        wiring = read_wiring(plans)
        links = {"links": [asdict(link) for link in wiring.links], "ports": wiring.ports}
        write_json(folder / LINKS, {"children": [plan.name for plan in plans], "num_agents": settings.agents, **links})
        wait_for(folder / WIRING)
        agents = planned_agent_directories(settings)
        view = make_view(console, settings.name, settings.stop, plans, agents)
        try:
            led = [rewired(plan, lambda: json.loads((folder / WIRING).read_text())) for plan in plans]
            outcome = Supervisor(led, run_dir, settings.stop, view, agent_directories=agents, started=started).run()
        finally:
            view.close()
    if outcome.message:
        print(f"herd: {outcome.message}", *outcome.log_lines, sep="\n  ", file=sys.stderr, flush=True)
    return outcome.exit_code


def write_json(path: Path, contents: dict[str, Any]) -> None:
    """Write the file atomically, because another process reads it meanwhile."""
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(contents))
    temporary.replace(path)


def wait_for(path: Path) -> None:
    """Wait until ``path`` exists.

    Raises:
        TimeoutError: it did not appear.
    """
    deadline = time.monotonic() + WIRING_SECONDS
    while not path.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{path} did not come within {WIRING_SECONDS:g} s")
        time.sleep(0.02)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
