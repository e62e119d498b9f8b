"""One ensemble at work: its state, and what it has done so far. No I/O."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np

from herd.config.tiling import inverse_temperature_of, x_of
from herd_bandit import bandits_vote

if TYPE_CHECKING:
    from herd.config.settings import BanditSettings
    from herd_bandit.bandits_vote import BanditsVote, FloatArray, IntArray

MAX_RETURN = 1e100
"""What is larger is no return; sums of millions of these are still finite."""
_RANGE_ROUND_OFF = 1e-6
"""1/tau is handed out rounded to float32, half a unit of 6e-8 off at most."""

Fault = Literal["non_finite", "out_of_range"]


@dataclass(slots=True)
class Tally:
    """What happened on each tile, [K], since the run began."""

    votes: IntArray
    """Candidates proposed."""
    handed_out: IntArray
    """Temperatures handed out for training."""
    reports: IntArray
    """Returns counted, whether learned from or not."""
    return_sums: FloatArray
    """Sum of those returns."""
    env_frames: int = 0
    """Of the games counted."""

    @classmethod
    def zero(cls, num_tiles: int) -> Tally:
        """Before the first game."""
        votes, handed_out, reports = np.zeros((3, num_tiles), np.int64)
        return cls(votes, handed_out, reports, np.zeros(num_tiles))

    @property
    def episodes(self) -> int:
        """Games counted."""
        return int(self.reports.sum())


@dataclass(slots=True)
class TaskBandit:
    """The ensemble of one agent on one task. Everything it hands out is a float32, so that every account of it is exact."""

    agent: int
    task: str
    ensemble: BanditsVote
    tally: Tally
    # What the metrics thread looks at: values of the ensemble they were made of.
    _evaluated: tuple[BanditsVote, FloatArray] | None = field(default=None, repr=False)

    @property
    def evaluation(self) -> FloatArray:
        """Mean value of each tile over the bandits, [K]; safe from any thread."""
        ensemble, known = self.ensemble, self._evaluated
        if known is None or known[0] is not ensemble:
            known = self._evaluated = (ensemble, bandits_vote.evaluation(ensemble))
        return known[1]

    def hand_out(self, settings: BanditSettings, generator: np.random.Generator) -> float:
        """Draw 1/tau for a training game."""
        vote = bandits_vote.draw(self.ensemble, num_candidates=settings.candidates, ucb_scale=settings.ucb_scale, generator=generator)
        inverse_temperature = _rounded(inverse_temperature_of(vote.x))
        num_tiles = len(self.tally.votes)
        self.tally.votes += np.bincount(vote.candidate_tiles.ravel(), minlength=num_tiles)
        self.tally.handed_out[self._tile(inverse_temperature)] += 1
        return inverse_temperature

    def hand_out_best(self, generator: np.random.Generator) -> float:
        """Draw 1/tau for an evaluation, from the best-valued tile; nothing is counted."""
        return _rounded(inverse_temperature_of(bandits_vote.draw_best(self.ensemble, generator)))

    def fault(self, inverse_temperature: float, episode_return: float) -> Fault | None:
        """Say why a report cannot be counted, if it cannot."""
        if not (math.isfinite(inverse_temperature) and abs(episode_return) <= MAX_RETURN):
            return "non_finite"
        tiling = self.ensemble.tiling
        lowest = tiling.min_inverse_temperature * (1 - _RANGE_ROUND_OFF)
        highest = tiling.max_inverse_temperature * (1 + _RANGE_ROUND_OFF)
        return None if lowest <= inverse_temperature <= highest else "out_of_range"

    def count(self, inverse_temperature: float, episode_return: float, env_frames: int, *, learn: bool) -> None:
        """Take a report without fault; ``learn`` False leaves the ensemble as it is."""
        tile = self._tile(inverse_temperature)
        self.tally.reports[tile] += 1
        self.tally.return_sums[tile] += episode_return
        self.tally.env_frames += env_frames
        if learn:
            self.ensemble = bandits_vote.update(self.ensemble, x_of(inverse_temperature), episode_return)

    def _tile(self, inverse_temperature: float) -> int:
        return self.ensemble.tiling.tile(x_of(inverse_temperature))


def _rounded(inverse_temperature: float) -> float:
    return float(np.float32(inverse_temperature))
