"""Where a run's files are, as seen from its directory: RUN, or RUN/agents/<k> of one agent of several.

RUN holds config.yaml, starts.jsonl, logs and processes. Each agent's learner leaves its report, points and checkpoints in RUN/agents/<k>,
or in RUN itself where it is the only agent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = "config.yaml"
STARTS = "starts.jsonl"
"""One line for each start: its time, its settings, and what changed."""
LOCK = ".lock"
"""Held by the ``herd train`` of the run for as long as it lives."""
AGENTS = "agents"


def whole_run(directory: Path) -> Path:
    """Return the run's own directory, of ``directory`` itself or of one of its agents'."""
    path = directory.resolve()
    is_agent = path.parent.name == AGENTS and not (path / CONFIG).is_file() and (path.parents[1] / CONFIG).is_file()
    return path.parents[1] if is_agent else directory


def config_file(directory: Path) -> Path:
    """Return the settings of a run or of one of its agents; the file may be missing."""
    return whole_run(directory) / CONFIG


def agent_number(directory: Path) -> int:
    """Return which agent of its run a directory is of; 0 for a run's own."""
    return int(directory.resolve().name) if whole_run(directory) != directory else 0


def agent_directories(directory: Path) -> list[Path]:
    """Return the directories of a run's agents, in order; ``directory`` alone where there is one agent, or where it is an agent's."""
    found = [path for path in (directory / AGENTS).glob("*") if path.is_dir() and path.name.isdecimal()]
    return sorted(found, key=lambda path: int(path.name)) or [directory]
