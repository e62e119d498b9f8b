"""Temperatures from a run's bandit service, one for each game. E environments."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from herd.acting.temperatures import Temperatures
from herd.telemetry.logs import warn_limited

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from herd.protocols.bandit.client import BanditClient


class ServedTemperatures(Temperatures):
    """Requests a temperature for the first game of each environment, and uses each answer when its game starts.

    Subclasses request the temperatures of the following games.
    """

    def __init__(self, client: BanditClient, num_environments: int) -> None:
        self._client = client
        for environment in range(num_environments):
            client.ask(environment, 0)

    def of_row(self, game_reset: NDArray[np.bool_]) -> NDArray[np.float32]:
        """See `Temperatures.of_row`. Waits for the service when games start. After a limit, the last tau is kept, which is 1 at first."""
        if game_reset.any():
            self._client.begin(np.flatnonzero(game_reset))
            if self._client.is_silent:
                reason = self._client.refused or "no answer"
                warn_limited("bandit", "games start with the last temperatures of their environments", reason=reason)
        else:
            self._client.poll()
        return self._client.inverse_temperatures
