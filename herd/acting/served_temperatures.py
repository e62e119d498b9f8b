"""Temperatures that a run's bandit service hands out, one for each game. E environments."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from herd.acting.temperatures import Temperatures
from herd.telemetry.logs import warn_limited

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from herd.wire.bandit_client import BanditClient


class ServedTemperatures(Temperatures):
    """Asks for the first game of each environment, and takes each answer where its game starts; subclasses ask for the games after."""

    def __init__(self, client: BanditClient, num_environments: int) -> None:
        self._client = client
        for environment in range(num_environments):
            client.ask(environment, 0)

    def of_row(self, game_reset: NDArray[np.bool_]) -> NDArray[np.float32]:
        """See `Temperatures.of_row`. Waits for the service where games start, with a bound; then tau stays what it was, 1 at first."""
        if game_reset.any():
            self._client.begin(np.flatnonzero(game_reset))
            if self._client.is_silent:
                reason = self._client.refused or "no answer"
                warn_limited("bandit", "games begin under the last temperatures of their environments", reason=reason)
        else:
            self._client.poll()
        return self._client.inverse_temperatures
