"""Warnings about a run's learning, from the newest point of its curve. docs/runbook.md explains each of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from herd.run.journals import number_in

MAX_DEAD_SHARE = 0.25
"""Share of dead filters in the first layer. Networks start with up to a quarter of them dead, depending on the game's background."""
MAX_DEAD_SHARE_LATER = 0.75
"""Share of dead units in a later layer. ReLU units there are often selective, so many seem dead on a few hundred rows."""
MAX_ALWAYS_ON_SHARE = 0.75
"""Share of always-on filters in the first layer, which are linear."""
MAX_CLIPPED_SHARE = 0.9
"""Share of clipped updates. Above it, only the learning rate determines the size of an update, and the gradient's norm has no effect."""
MIN_EFFECTIVE_SAMPLE_SIZE = 0.3
"""Effective sample size as a share of the rows. Below it, most of a batch has almost no weight."""
MIN_EXPLAINED_VARIANCE = 0.0
"""Explained variance. Below it, a constant would be a better value function."""
FIRST_VALUES_UPDATES = 2000
"""Number of updates before which values may be worse than a constant, because they are hardly trained."""
MAX_UPDATE_KL = 0.1
"""KL divergence of an update in nats. PPO's targets are 0.003 to 0.03 for a whole round of updates (arXiv:1707.06347)."""
MIN_ENTROPY = 0.1
"""Entropy in nats. Below it, a policy of discrete actions hardly tries anything new. Experiments with Catch, CartPole, MiniGrid and Atari
end at 0.18 or more."""
MAX_MINUTES_WITHOUT_GAME = 10.0
"""Minutes in which no game ended."""
MAX_TIMES_LONGER = 8.0
"""How many times as long as before games may last that score almost nothing. In Double Dunk, agents that make the game wait reach 100."""

_ONE_SKIPPED = "1 update was skipped: its gradient was not finite"


def health_warnings(
    point: Mapping[str, Any], *, minutes_without_game: float = 0.0, times_longer: Mapping[str, float] = MappingProxyType({})
) -> tuple[str, ...]:
    """Return the warnings for a point of metrics.jsonl; empty if nothing is wrong or known. ``times_longer``: by task."""
    found = []
    if minutes_without_game > MAX_MINUTES_WITHOUT_GAME:
        found.append(f"no game has ended for {minutes_without_game:.0f} minutes")
    for task, times in times_longer.items():
        if times > MAX_TIMES_LONGER:
            found.append(f"{task}: the agent makes the game wait (games last {times:.0f} times as long as before, with few points)")
    entropy = number_in(point, "entropy")
    if entropy is not None and 0.0 <= entropy < MIN_ENTROPY:  # that of a continuous policy may be negative
        found.append(f"the policy hardly explores any more (entropy {entropy:.3f} nats)")
    skipped = number_in(point, "updates_skipped")
    if skipped:
        found.append(f"{skipped:,.0f} updates were skipped: their gradients were not finite" if skipped > 1 else _ONE_SKIPPED)
    clipped = number_in(point, "clipped_share")
    if clipped is not None and clipped > MAX_CLIPPED_SHARE:
        found.append(f"{clipped:.0%} of updates are clipped")
    health = point.get("health")
    if not isinstance(health, Mapping):
        return tuple(found)
    layers = health.get("layers")
    found += _of_layers(layers if isinstance(layers, Sequence) else ())
    effective = number_in(health, "effective_sample_size")
    if effective is not None and effective < MIN_EFFECTIVE_SAMPLE_SIZE:
        found.append(f"importance ratios reduce the effective samples to {effective:.0%}")
    explained = number_in(health, "explained_variance")
    updates = number_in(point, "learner_updates") or 0.0
    if explained is not None and explained < MIN_EXPLAINED_VARIANCE and updates >= FIRST_VALUES_UPDATES:
        found.append(f"values are worse than a constant (explained variance {explained:.2f})")
    moved = number_in(health, "update_kl")
    if moved is not None and moved > MAX_UPDATE_KL:
        found.append(f"one update moves the policy by {moved:.2f} nats")
    return tuple(found)


def _of_layers(layers: Sequence[Any]) -> list[str]:
    found = []
    for number, layer in enumerate(layers, start=1):
        total, dead, always_on, kind = layer["total"], layer["dead"], layer["always_on"], layer["kind"]
        where = "the first layer" if number == 1 else f"layer {number}"
        if dead > (MAX_DEAD_SHARE if number == 1 else MAX_DEAD_SHARE_LATER) * total:
            found.append(f"{dead} of {total} {kind} of {where} are never active")
        if number == 1 and always_on > MAX_ALWAYS_ON_SHARE * total:
            found.append(f"{always_on} of {total} {kind} of {where} are always active")
    return found
