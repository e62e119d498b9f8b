"""Slow transcription of appendix A of DiCE (arXiv:2106.00707), algorithm 2 and equations (9)-(11), on Python floats.

Indices start at 0, as in the paper. Where the paper says nothing: weights start at 0, averages at the ends of the range use only
existing tiles, the right boundary belongs to the last tile, and a spread of zero gives score 0 before the bonus.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import permutations


@dataclass
class Bandit:
    """B = Bandit(mode, l, r, acc, width, lr, w, N, d)."""

    mode: str
    l: float  # noqa: E741
    r: float
    acc: float
    width: int
    lr: float
    d: int
    c: float
    w: list[float] = field(default_factory=list)
    N: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.num_tiles = math.floor((self.r - self.l) / self.acc)
        self.w = [0.0] * self.num_tiles
        self.N = [0] * self.num_tiles

    def locate(self, x: float) -> int:
        """The index i of (10)."""
        i = math.floor((min(max(x, self.l), self.r) - self.l) / self.acc)
        return min(i, self.num_tiles - 1)

    def window(self, i: int) -> list[int]:
        """The existing tiles among k = i - width, ..., i + width."""
        return [k for k in range(i - self.width, i + self.width + 1) if 0 <= k < self.num_tiles]

    def value(self, i: int) -> float:
        """V_i of (9)."""
        total = 0.0
        for k in self.window(i):
            total += self.w[k]
        return total / len(self.window(i))

    def update(self, x: float, g: float) -> None:
        """Update (10)."""
        i = self.locate(x)
        v_i = self.value(i)
        for j in self.window(i):
            self.w[j] = self.w[j] + self.lr * (g - v_i)
        self.N[i] = self.N[i] + 1

    def scores(self) -> list[float]:
        """Scores (11)."""
        values = [self.value(j) for j in range(self.num_tiles)]
        mu = sum(values) / len(values)
        sigma = math.sqrt(sum((v - mu) ** 2 for v in values) / len(values))
        result = []
        for i in range(self.num_tiles):
            standardised = (values[i] - mu) / sigma if sigma > 0.0 else 0.0
            bonus = math.sqrt(math.log(1 + sum(self.N)) / (1 + self.N[i]))
            result.append(standardised + self.c * bonus)
        return result

    def top_scores(self) -> list[float]:
        """The d highest scores, in descending order."""
        return sorted(self.scores(), reverse=True)[: self.d]

    def chance_of_being_sampled(self) -> list[float]:
        """Probability of each tile to be among d tiles drawn one after the other without replacement, with the scores as logits.

        Sums over every ordered outcome, so it is usable for few tiles only.
        """
        odds = [math.exp(score) for score in self.scores()]
        chance = [0.0] * self.num_tiles
        for drawn in permutations(range(self.num_tiles), self.d):
            probability, left = 1.0, sum(odds)
            for i in drawn:
                probability *= odds[i] / left
                left -= odds[i]
            for i in drawn:
                chance[i] += probability
        return chance


def temperature_of(x: float) -> float:
    """tau = 1 / (exp(x) - 1)."""
    return math.inf if x == 0.0 else 1.0 / (math.exp(x) - 1.0)


def x_of(tau: float) -> float:
    """x = log(1 + 1 / tau)."""
    return math.log(1.0 + 1.0 / tau)


def average_evaluation(bandits: list[Bandit], i: int) -> float:
    """Section 3.3: the final evaluation of a tile is the average over the bandits."""
    return sum(bandit.value(i) for bandit in bandits) / len(bandits)
