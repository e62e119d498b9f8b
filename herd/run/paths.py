"""Paths of a run's files, relative to its directory RUN, or to RUN/agents/<k> for one agent of several.

RUN holds config.yaml, starts.jsonl, logs and processes. Each agent's learner writes its report, points and checkpoints to RUN/agents/<k>,
or to RUN itself if there is only one agent.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from herd.config.run import RunSettings

RUNS = Path("runs")
"""Folder in which ``herd train`` creates runs, and in which runs are found by name."""
CONFIG = "config.yaml"
STARTS = "starts.jsonl"
"""One line for each start: its time, its settings, and what changed."""
LOCK = ".lock"
"""Lock file, held by the run's ``herd train`` as long as it lives."""
AGENTS = "agents"
LOGS = "logs"
PROCESSES = "processes"
CHECKPOINTS = "checkpoints"
LINEAGE = "lineage.json"
REPORT = "report.json"
CURVE = "curve.png"
LEARNING = "learning.png"


def whole_run(directory: Path) -> Path:
    """Return the directory of the whole run; ``directory`` is that directory or one of its agents'."""
    path = directory.resolve()
    is_agent = path.parent.name == AGENTS and not (path / CONFIG).is_file() and (path.parents[1] / CONFIG).is_file()
    return path.parents[1] if is_agent else directory


def config_file(directory: Path) -> Path:
    """Return the settings of a run or of one of its agents; the file may be missing."""
    return whole_run(directory) / CONFIG


def agent_number(directory: Path) -> int:
    """Return the number of the agent that a directory belongs to; 0 for the directory of a whole run."""
    return int(directory.resolve().name) if whole_run(directory) != directory else 0


def agent_directories(directory: Path) -> list[Path]:
    """Return the directories of a run's agents, in order; only ``directory`` if the run has one agent or if it is an agent's directory."""
    found = [path for path in (directory / AGENTS).glob("*") if path.is_dir() and path.name.isdecimal()]
    return sorted(found, key=lambda path: int(path.name)) or [directory]


def agent_directory(settings: RunSettings, agent: int) -> Path:
    """Return the directory for the files of an agent's learner: the run directory itself if there is only one agent."""
    return settings.directory if settings.agents == 1 else settings.directory / AGENTS / str(agent)


def planned_agent_directories(settings: RunSettings) -> list[Path]:
    """Return the directory of each agent, in order; they may not exist yet."""
    return [agent_directory(settings, agent) for agent in range(settings.agents)]


def checkpoint_folders(directory: Path) -> list[Path]:
    """Return the folders of an agent's checkpoints, oldest first, whether they are intact or not."""
    return sorted(path for path in (directory / CHECKPOINTS).glob("[0-9]" * 12) if path.is_dir())
