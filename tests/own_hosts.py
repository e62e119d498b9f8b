"""Where processes run if each is alone on its host, as in Compose and in the chart."""

from __future__ import annotations

from typing import TYPE_CHECKING

from herd.launch.placement import Spot
from herd.service.identity import ANY_PORT, Endpoint
from herd.topology import METRICS_PORT

if TYPE_CHECKING:
    from collections.abc import Callable

    from herd.launch.placement import Place


def on_own_hosts(host_of: Callable[[Place], str]) -> Callable[[Place], Spot]:
    """Return where processes run if each is alone on its host: a container of Compose, or a pod."""

    def spot_of(place: Place) -> Spot:
        service = place.component.service
        listen = ANY_PORT if service.port is None else Endpoint("*", service.port)
        return Spot(host_of(place), listen, Endpoint("*", METRICS_PORT), service.group_port or 0)

    return spot_of
