"""What is wrong with a run's learning, in words, from the newest point of its curve; docs/runbook.md says for each what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

MOST_DEAD_SHARE = 0.25
"""Of a first layer's filters. Networks start with none to a quarter of them dead, by the game's background; more is lost capacity."""
MOST_DEAD_SHARE_LATER = 0.75
"""Of any later layer: ReLU units of these are often selective, and on a few hundred rows many look dead that are not."""
MOST_ALWAYS_ON_SHARE = 0.75
"""Of a first layer's filters: what is always on is linear."""
MOST_CLIPPED_SHARE = 0.9
"""Beyond it the gradients' lengths are lost, and the learning rate alone decides how far an update goes."""
LEAST_EFFECTIVE_SAMPLE_SIZE = 0.3
"""Of the rows: below, most of a batch hardly counts."""
LEAST_EXPLAINED_VARIANCE = 0.0
"""Below, a constant would be the better value function."""
FIRST_VALUES_UPDATES = 2000
"""Until then values may be worse than a constant: they have hardly been trained."""
MOST_UPDATE_KL = 0.1
"""Nats. PPO's targets are 0.003 to 0.03 for a whole round of updates (arXiv:1707.06347)."""


def health_warnings(point: Mapping[str, Any]) -> tuple[str, ...]:
    """Of a point of metrics.jsonl; empty where nothing is wrong, or nothing is known."""
    found = []
    clipped = _number(point.get("clipped_share"))
    if clipped is not None and clipped > MOST_CLIPPED_SHARE:
        found.append(f"{clipped:.0%} of updates are clipped")
    health = point.get("health")
    if not isinstance(health, Mapping):
        return tuple(found)
    layers = health.get("layers")
    found += _of_layers(layers if isinstance(layers, Sequence) else ())
    effective = _number(health.get("effective_sample_size"))
    if effective is not None and effective < LEAST_EFFECTIVE_SAMPLE_SIZE:
        found.append(f"importance ratios leave {effective:.0%} of the samples")
    explained = _number(health.get("explained_variance"))
    if explained is not None and explained < LEAST_EXPLAINED_VARIANCE and (point.get("learner_updates") or 0) >= FIRST_VALUES_UPDATES:
        found.append(f"values are worse than a constant (explained variance {explained:.2f})")
    moved = _number(health.get("update_kl"))
    if moved is not None and moved > MOST_UPDATE_KL:
        found.append(f"one update moves the policy by {moved:.2f} nats")
    return tuple(found)


def _of_layers(layers: Sequence[Any]) -> list[str]:
    found = []
    for number, layer in enumerate(layers, start=1):
        total, dead, always_on, kind = layer["total"], layer["dead"], layer["always_on"], layer["kind"]
        where = "the first layer" if number == 1 else f"layer {number}"
        if dead > (MOST_DEAD_SHARE if number == 1 else MOST_DEAD_SHARE_LATER) * total:
            found.append(f"{dead} of {total} {kind} of {where} never fire")
        if number == 1 and always_on > MOST_ALWAYS_ON_SHARE * total:
            found.append(f"{always_on} of {total} {kind} of {where} always fire")
    return found


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None
