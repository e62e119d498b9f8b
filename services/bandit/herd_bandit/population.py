"""Makes the ensembles of all agents and tasks from the settings. No I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from herd.protocols.bandit.tiling import tiling_of
from herd_bandit import bandits_vote
from herd_bandit.task_bandit import CENTRAL, Groups, Tally, TaskBandit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from herd.config.run import RunSettings
    from herd.config.services import BanditSettings
    from herd_bandit.bandits_vote import BanditsVote

TaskBandits = dict[tuple[int, int], TaskBandit]
"""By (agent, task_id)."""

_DESIGN, _DRAWS = 0, 1
"""Streams of random numbers: one for making bandits, one for their draws."""


def groups_of(settings: RunSettings, num_tasks: int) -> Groups:
    """Return which environments share an ensemble (``bandit.ensembles``). ``bandit.max_ensembles`` is divided over agents and tasks."""
    slots_each = {"task": None, "actor": settings.actor.environments, "environment": 1}[settings.bandit.ensembles]
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
