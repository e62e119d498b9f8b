"""Plays a game with a run's newest checkpoint, as a GIF for the page."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

SHORTEST_SECONDS = 8.0
"""Least length: short games are repeated."""
LONGEST_SECONDS = 20.0
"""Longest recording, which takes a few megabytes of the page."""


@dataclass(frozen=True, slots=True)
class Game:
    """A recorded game."""

    gif: bytes
    caption: str


def play_game(agent: Path, *, max_seconds: float = LONGEST_SECONDS) -> Game:
    """Play with the newest checkpoint of an agent's directory.

    Raises:
        EvaluationError: there is no checkpoint or no picture.
        BrokenEnvironmentError: the environment failed.
        ImportError: a package that playing needs is not installed.

    """
    from herd.evaluation.watch import record_episode  # noqa: PLC0415  loads torch

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "game.gif"
        recording = record_episode(agent, file, min_seconds=SHORTEST_SECONDS, max_seconds=max_seconds)
        ended = recording.result if recording.episode_returns else f"the first {recording.seconds:.0f} seconds of a game"
        return Game(file.read_bytes(), f"{recording.task_name}: {ended}")
