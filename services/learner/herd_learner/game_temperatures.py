"""Finds the temperature of a finished game from its rows, which are in the message that reports it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from herd.contract.unroll import Arrays


def inverse_temperatures_of(arrays: Arrays, burn_in: int) -> dict[tuple[int, int], float]:
    """1/tau of the newest row of every game in the message, by (environment_slot, episode_id).

    Of U unrolls, T steps each; one pass over the rows, however many games are asked for.
    """
    # ``episode_id`` numbers the game of the first row after the burn-in; each reset from there on begins the next. [U, T]
    resets = arrays["game_reset"][:, burn_in + 1 : -1]
    is_last = np.ones((resets.shape[0], resets.shape[1] + 1), np.bool_)
    is_last[:, :-1] = resets
    unrolls, rows = np.nonzero(is_last)
    # The nth of an unroll's last rows of games belongs to its nth game.
    numbers = np.cumsum(is_last, axis=1)[unrolls, rows] - 1
    slots = arrays["environment_slot"][unrolls].tolist()
    games = (arrays["episode_id"][unrolls] + numbers).tolist()
    values = arrays["inverse_temperature"][unrolls, burn_in + rows].tolist()
    return dict(zip(zip(slots, games, strict=True), values, strict=True))
