"""Population based training as in IMPALA (arXiv:1802.01561, appendix F), one function for each of its sentences. No I/O, no clock.

"a 'burn-in' period of 20 million frames where no evolution is done. ... After collecting 5,000 episode rewards in total, the mean capped
human normalised score is calculated and a random instance in the population is selected. If the score of the selected instance is more
than an absolute 5% higher, then the selected instance weights and parameters are copied. No matter if a copy happened or not, each
parameter ... is permuted with 33% probability by multiplying with either 1.2 or 1/1.2."
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from random import Random

    from herd.config.sweep import Value
    from herd.protocols.population.journal import Settings


def is_ready(*, env_frames: int, burn_in_env_frames: int, episodes_since: int, fitness_episodes: int) -> bool:
    """Return whether a decision about a member is due: it is past the burn-in and has played enough games since the last decision."""
    return env_frames >= burn_in_env_frames and episodes_since >= fitness_episodes


def choose_partner(member: int, num_members: int, random: Random) -> int:
    """Draw another member, all with equal probability."""
    partner = random.randrange(num_members - 1)
    return partner + (partner >= member)


def is_better(partner_fitness: float, own_fitness: float, threshold: float) -> bool:
    """Return whether the partner's fitness is greater by more than ``threshold``, absolute."""
    return partner_fitness - own_fitness > threshold


def perturbed(
    settings: Mapping[str, Value], random: Random, *, probability: float, factor: float, is_allowed: Callable[[Settings], bool]
) -> Settings:
    """Return ``settings`` with each number multiplied or divided by ``factor`` with ``probability``; other values are unchanged.

    Integers are rounded in the direction of the change. A number stays unchanged if ``is_allowed`` rejects the new settings.
    """
    found = dict(settings)
    for key, value in settings.items():
        # Always drawn, so that the result for a setting does not depend on the type of the settings before it.
        moves, grows = random.random() < probability, random.random() < 0.5
        if not moves or value is None or isinstance(value, bool | str):
            continue
        moved: float | int = value * factor if grows else value / factor
        if isinstance(value, int):
            moved = math.ceil(moved) if grows else math.floor(moved)
        if is_allowed({**found, key: moved}):
            found[key] = moved
    return found
