"""Which temperature a finished game was played under: its rows say so, and travel in the message that reports it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from herd.wire.messages import EpisodeReport
    from herd_learner.queue import Block


def inverse_temperature_of(block: Block, episode: EpisodeReport, burn_in: int) -> float | None:
    """1/tau of the newest row of ``episode`` in the message; None where no row is of that game."""
    arrays = block.arrays
    for unroll in np.flatnonzero(arrays["environment_slot"] == episode.environment_slot):
        # ``episode_id`` numbers the game of the first row after the burn-in; each reset from there on begins the next.
        resets = arrays["game_reset"][unroll, burn_in + 1 : -1]
        games = int(arrays["episode_id"][unroll]) + np.concatenate([[0], np.cumsum(resets)])
        rows = np.flatnonzero(games == episode.episode_id)
        if len(rows):
            return float(arrays["inverse_temperature"][unroll, burn_in + rows[-1]])
    return None
