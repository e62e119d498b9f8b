"""What is in an ensemble, for comparisons."""

from __future__ import annotations

from herd_bandit.bandits_vote import BanditsVote


def contents(ensemble: BanditsVote) -> tuple[object, ...]:
    """All of an ensemble by value."""
    design = ensemble.tiling, ensemble.modes, ensemble.learning_rates, ensemble.widths
    return *design, ensemble.weights.tolist(), ensemble.counts.tolist()
