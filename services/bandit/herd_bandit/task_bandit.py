"""The ensembles of each agent on each task: their state and their counts. No I/O."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from herd.protocols.bandit.tiling import inverse_temperature_of, tiling_of, x_of
from herd_bandit import bandits_vote

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from herd.config.run import RunSettings
    from herd.config.services import BanditSettings
    from herd_bandit.bandits_vote import BanditsVote, FloatArray, IntArray

MAX_RETURN = 1e100
"""Larger returns are invalid. Sums of millions of returns are still finite."""
_RANGE_ROUND_OFF = 1e-6
"""1/tau is rounded to float32, with an error of at most half a unit of 6e-8."""

Fault = Literal["non_finite", "out_of_range"]


class Groups(NamedTuple):
    """Assigns environments to ensembles. Environments are numbered over all actors of an agent, and groups likewise."""

    slots_each: int | None = None
    """Number of environments in a group; None: all environments are one group."""
    most: int = 1
    """Largest number of groups of an agent and task. Beyond it environments share groups, so that memory is bounded."""

    def of_slot(self, slot: int) -> int:
        """Return the group of environment ``slot``. It does not change after restarts, or for an actor that returns with its index."""
        return 0 if self.slots_each is None else slot // self.slots_each % self.most


CENTRAL = Groups()
"""One ensemble for all."""


@dataclass(slots=True)
class Tally:
    """Counts for each tile since the run began, [K] each."""

    votes: IntArray
    """Number of proposed candidates."""
    handed_out: IntArray
    """Number of temperatures drawn for training."""
    reports: IntArray
    """Number of counted returns, learned from or not."""
    return_sums: FloatArray
    """Sum of those returns."""
    env_frames: int = 0
    """Env frames of the counted games."""

    @classmethod
    def zero(cls, num_tiles: int) -> Tally:
        """Return the tally before the first game."""
        votes, handed_out, reports = np.zeros((3, num_tiles), np.int64)
        return cls(votes, handed_out, reports, np.zeros(num_tiles))

    @property
    def episodes(self) -> int:
        """Number of counted games."""
        return int(self.reports.sum())


@dataclass(slots=True)
class TaskBandit:
    """The ensembles of one agent on one task. They draw float32 values, so that all services count by exactly equal numbers."""

    agent: int
    task: str
    ensemble: BanditsVote
    """Ensemble of group 0."""
    tally: Tally
    """Tally of all groups."""
    groups: Groups = CENTRAL
    design: Callable[[int], BanditsVote] | None = field(default=None, repr=False)
    """Makes the untried ensemble of a group; None if there is only one group."""
    others: dict[int, BanditsVote] = field(default_factory=dict)
    """Ensembles of groups from 1 on, once a game of the group was reported."""
    # For the metrics thread: values, and the ensembles that they were computed from.
    _evaluated: tuple[tuple[BanditsVote, ...], FloatArray] | None = field(default=None, repr=False)

    @property
    def ensembles(self) -> tuple[BanditsVote, ...]:
        """All ensembles that exist; safe from any thread."""
        return (self.ensemble, *list(self.others.values()))

    @property
    def evaluation(self) -> FloatArray:
        """Return the mean value of each tile, [K], over bandits and the ensembles that tried it (or all); safe from any thread."""
        ensembles, known = self.ensembles, self._evaluated
        if known is None or len(known[0]) != len(ensembles) or any(a is not b for a, b in zip(known[0], ensembles, strict=True)):
            known = self._evaluated = (ensembles, _evaluation(ensembles))
        return known[1]

    def hand_out(self, settings: BanditSettings, generator: np.random.Generator, slot: int = 0) -> float:
        """Draw 1/tau for a training game of environment ``slot``."""
        ensemble = self._of_group(self.groups.of_slot(slot))
        vote = bandits_vote.draw(ensemble, num_candidates=settings.candidates, ucb_scale=settings.ucb_scale, generator=generator)
        inverse_temperature = _rounded(inverse_temperature_of(vote.x))
        num_tiles = len(self.tally.votes)
        self.tally.votes += np.bincount(vote.candidate_tiles.ravel(), minlength=num_tiles)
        self.tally.handed_out[self._tile(inverse_temperature)] += 1
        return inverse_temperature

    def hand_out_best(self, generator: np.random.Generator) -> float:
        """Draw 1/tau for an evaluation from the best tile, with ties broken at random; nothing is counted."""
        tile = int(generator.choice(self.best_tiles))
        return _rounded(inverse_temperature_of(bandits_vote.draw_within(self.ensemble.tiling, tile, generator)))

    @property
    def best_tiles(self) -> IntArray:
        """Return the best tiles among those that any ensemble tried, or all tiles before the first return."""
        counts = np.sum([ensemble.counts for ensemble in self.ensembles], axis=0)
        return bandits_vote.best_tiles(self.evaluation, counts)

    def fault(self, inverse_temperature: float, episode_return: float) -> Fault | None:
        """Return why a report cannot be counted, or None if it can."""
        if not (math.isfinite(inverse_temperature) and abs(episode_return) <= MAX_RETURN):
            return "non_finite"
        tiling = self.ensemble.tiling
        lowest = tiling.min_inverse_temperature * (1 - _RANGE_ROUND_OFF)
        highest = tiling.max_inverse_temperature * (1 + _RANGE_ROUND_OFF)
        return None if lowest <= inverse_temperature <= highest else "out_of_range"

    def count(self, inverse_temperature: float, episode_return: float, env_frames: int, *, learn: bool, slot: int = 0) -> None:
        """Count a valid report of environment ``slot``. ``learn`` False does not change the ensembles."""
        tile = self._tile(inverse_temperature)
        self.tally.reports[tile] += 1
        self.tally.return_sums[tile] += episode_return
        self.tally.env_frames += env_frames
        if learn:
            group = self.groups.of_slot(slot)
            updated = bandits_vote.update(self._of_group(group), x_of(inverse_temperature), episode_return)
            if group == 0:
                self.ensemble = updated
            else:
                self.others[group] = updated

    def _of_group(self, group: int) -> BanditsVote:
        if group == 0 or self.design is None:
            return self.ensemble
        return self.others.get(group) or self.others.setdefault(group, self.design(group))

    def _tile(self, inverse_temperature: float) -> int:
        return self.ensemble.tiling.tile(x_of(inverse_temperature))


TaskBandits = dict[tuple[int, int], TaskBandit]
"""By (agent, task_id)."""

_DESIGN, _DRAWS = 0, 1
"""Streams of random numbers: one for making bandits, one for their draws."""


def groups_of(settings: RunSettings, num_tasks: int) -> Groups:
    """Return which environments share an ensemble (``bandit.ensembles``). ``bandit.max_ensembles`` is divided over agents and tasks."""
    # Slot g plays task g modulo the number of tasks, so as many neighbouring slots have one environment of each task.
    slots_each = {"task": None, "actor": settings.actor.environments, "environment": num_tasks}[settings.bandit.ensembles]
    if slots_each is None:
        return CENTRAL
    return Groups(slots_each, max(1, settings.bandit.max_ensembles // (settings.agents * num_tasks)))


def new_bandits(
    settings: BanditSettings, task_names: Sequence[str], *, seed: int, num_agents: int = 1, groups: Groups = CENTRAL
) -> TaskBandits:
    """Make untried ensembles per agent and task, the same ones for the same seed."""
    tiling = tiling_of(settings)
    bandits = {}
    for agent in range(num_agents):
        for task_id, task in enumerate(task_names):

            def design(group: int, agent: int = agent, task_id: int = task_id) -> BanditsVote:
                return bandits_vote.new_ensemble(
                    tiling,
                    num_bandits=settings.bandits,
                    modes=settings.modes,
                    learning_rates=settings.learning_rates,
                    widths=settings.tile_widths,
                    generator=np.random.default_rng([seed, _DESIGN, agent, task_id, *([group] if group else [])]),
                )

            tally = Tally.zero(tiling.num_tiles)
            bandits[agent, task_id] = TaskBandit(agent, task, design(0), tally, groups, None if groups == CENTRAL else design)
    return bandits


def draw_generator(bandits: TaskBandits, *, seed: int) -> np.random.Generator:
    """Return the random generator of all further draws. It depends on the number of past draws, so that a restart repeats none."""
    handed_out = sum(int(bandit.tally.handed_out.sum()) for bandit in bandits.values())
    return np.random.default_rng([seed, _DRAWS, handed_out])


def _evaluation(ensembles: tuple[BanditsVote, ...]) -> FloatArray:
    """Return the mean value of each tile, weighted by how often each ensemble tried the tile."""
    if len(ensembles) == 1:
        return bandits_vote.evaluation(ensembles[0])
    values = np.stack([bandits_vote.evaluation(ensemble) for ensemble in ensembles])
    counts = np.stack([ensemble.counts for ensemble in ensembles])
    weights = np.where(counts.sum(axis=0) > 0, counts, 1)
    means: FloatArray = (weights * values).sum(axis=0) / weights.sum(axis=0)
    return means


def _rounded(inverse_temperature: float) -> float:
    return float(np.float32(inverse_temperature))
