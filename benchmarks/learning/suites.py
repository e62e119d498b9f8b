"""The suites: games, the recipe that learns them, its length and target levels; and the results of others."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

DATA = Path(__file__).parents[1] / "data"


@dataclass(frozen=True, slots=True)
class Suite:
    """One experiment on some games."""

    experiment: str
    games: tuple[str, ...]
    frames: int
    """Env frames of each run."""
    levels: tuple[float, ...]
    """Returns for which the first time of reaching them is reported."""
    words: tuple[str, ...] = ()
    """Settings that differ from the experiment's in every run."""


_FIVE = ("battle_zone", "double_dunk", "name_this_game", "phoenix", "qbert")
_CLEANBA = ("--env.action_set", "full", "--env.noop_max", "1")
"""How Cleanba's published IMPALA runs play, beside what the protocol ``dopamine`` sets (arXiv:2310.00036)."""

SUITES = {
    "pong": Suite("pong", ("pong",), 5_000_000, (0.0, 18.0)),
    "breakout": Suite("breakout", ("breakout",), 14_000_000, (30.0, 100.0, 300.0)),
    "atari5": Suite("atari-fast", _FIVE, 10_000_000, ()),
    # Settings of any game are chosen on these, never on the five games by which they are then judged.
    "atari-trials": Suite("atari-fast", ("assault", "beam_rider", "krull", "up_n_down"), 2_000_000, ()),
    "impala-atari5": Suite("atari-deep", _FIVE, 200_000_000, (), words=_CLEANBA),
    "impala-shallow": Suite("atari-shallow", ("breakout", "pong", "seaquest"), 20_000_000, (), words=_CLEANBA),
    "laser": Suite("laser-quick", ("pong", "breakout", "assault"), 3_000_000, ()),
}


@dataclass(frozen=True, slots=True)
class OthersCurve:
    """Mean training returns of one agent on one game, over the million frames that ends at each of ``env_frames``."""

    game: str
    name: str
    """Agent and network."""
    env_frames: tuple[float, ...]
    returns: tuple[float, ...]

    def at(self, env_frames: float) -> float | None:
        """Return the return after ``env_frames``, interpolated linearly; None outside the table."""
        for (left, low), (right, high) in zip(
            zip(self.env_frames, self.returns, strict=True), zip(self.env_frames[1:], self.returns[1:], strict=True), strict=False
        ):
            if left <= env_frames <= right:
                return low + (high - low) * (env_frames - left) / (right - left)
        return None


@dataclass(frozen=True, slots=True)
class OthersLevel:
    """The env frames after which an agent first reached a return."""

    game: str
    name: str
    level: float
    env_frames: float


def others_curves(game: str, path: Path = DATA / "training_returns.csv") -> list[OthersCurve]:
    """Return the curves of one game, from the columns ``at_<N>M_frames`` that have a number."""
    curves = []
    with path.open(encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            if row["game"] != game:
                continue
            points = [(1e6 * float(name[3:-8]), float(value)) for name, value in row.items() if name.startswith("at_") and value]
            frames, returns = zip(*points, strict=True)
            curves.append(OthersCurve(game, f"{row['agent']} ({row['network']})", frames, returns))
    return curves


def others_levels(game: str, path: Path = DATA / "learning_anchors.csv") -> list[OthersLevel]:
    """Return the levels of one game."""
    with path.open(encoding="utf-8") as lines:
        rows = [row for row in csv.DictReader(lines) if row["game"] == game]
    return [OthersLevel(game, row["agent"], float(row["level"]), float(row["env_frames"])) for row in rows]
