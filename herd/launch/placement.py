"""The processes of a run with their identities: `herd.topology` with hosts, ports and numbers.

Everything that starts processes uses it: ``herd train`` on this machine, ``herd place`` on the hosts of a Slurm job. Compose and the chart
write the same options, and the tests compare theirs with these.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from herd.config.addresses import tcp_address
from herd.service.identity import ANY_PORT, Endpoint, Identity
from herd.topology import COMPONENTS, LEARNER

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from herd.config.run import RunSettings
    from herd.topology import Asks, Component


_EVERY_INTERFACE = "*"
_MAX_LEARNERS = 1000


@dataclass(frozen=True, slots=True)
class Place:
    """One process of a run."""

    component: Component
    index: int
    """Number within its component."""
    number: int
    """Number within its service: the parameter server's replicas are numbered after the root."""

    @property
    def service(self) -> str:
        """The service whose program it runs."""
        return self.component.service.name

    @property
    def name(self) -> str:
        """Name such as ``actor-3``, also of its log and its announcement."""
        return f"{self.service}-{self.number}"


class Spot(NamedTuple):
    """Where a process runs."""

    host: str
    """Host at which the other processes reach it."""
    listen: Endpoint = ANY_PORT
    metrics: Endpoint = ANY_PORT
    group_port: int = 0
    """Port of the rendezvous of an agent's learner shards, if it is the first of them."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A process and what makes it different from the other processes of its run."""

    place: Place
    spot: Spot
    identity: Identity
    overrides: Sequence[str]
    """Settings that it must have in addition to those of the run, as words of a command line."""
    environment: Mapping[str, str]
    """torchrun's variables of a learner shard."""

    def words(self) -> list[str]:
        """Return its command line after ``--config FILE``."""
        return [*self.identity.words(), *self.overrides]


def places_of(settings: RunSettings) -> list[Place]:
    """Return every process of the run, in starting order."""
    numbers: Counter[str] = Counter()
    places = []
    for component in COMPONENTS:
        for index in range(component.count(settings)):
            places.append(Place(component, index, numbers[component.service.name]))
            numbers[component.service.name] += 1
    return places


def placement(settings: RunSettings, spot_of: Callable[[Place], Spot]) -> list[Placed]:
    """Return every process of the run with its identity, in starting order; ``spot_of`` says where each one runs."""
    spots = [(place, spot_of(place)) for place in places_of(settings)]
    addresses: dict[str, list[str]] = {}
    for place, spot in spots:
        if place.component.service.port is not None:
            addresses.setdefault(place.component.name, []).append(tcp_address(spot.host, spot.listen.port))
    learners = [spot for place, spot in spots if place.service == "learner"]

    def placed(place: Place, spot: Spot) -> Placed:
        found = {asks.service: _found(asks, place.index, addresses) for asks in place.component.asks}
        identity = Identity(
            # The actors of several agents lease their agent.
            agent=place.index // settings.learner.shards if place.service == "learner" and settings.agents > 1 else None,
            index=place.number if place.component.service.has_index else None,
            listen=spot.listen,
            metrics=spot.metrics,
            addresses={name: several for name, several in found.items() if several},
        )
        is_shard = place.service == "learner" and len(learners) > 1
        return Placed(place, spot, identity, _links(settings, place), _shard(settings, place, learners) if is_shard else {})

    return [placed(place, spot) for place, spot in spots]


def on_hosts(settings: RunSettings, hosts: Sequence[str]) -> Callable[[Place], Spot]:
    """Return where processes run on several hosts: with the ports of ``settings.placement``, or with those of containers.

    The first host has all servers. Learner shards are on consecutive hosts. Actors and the evaluator are on all hosts but the first.
    """
    players = hosts[1:] or hosts
    ports = {str(name): port for name, port in settings.placement.ports.items()}

    def spot_of(place: Place) -> Spot:
        service = place.component.service
        candidates = players if service.port is None else hosts if service is LEARNER else hosts[:1]
        # Processes of a service may share a host, so each has a port of its own.
        first = ports.get(service.name, service.port)
        listen = ANY_PORT if first is None else Endpoint(_EVERY_INTERFACE, first + place.number)
        # As far from the servers' ports as a run may have learners, and moving with them, so that two runs can share a host.
        group_port = first + _MAX_LEARNERS + place.number if service.group_port is not None and first is not None else 0
        return Spot(candidates[place.index % len(candidates)], listen, ANY_PORT, group_port)

    return spot_of


def _found(asks: Asks, index: int, addresses: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Return the addresses of a component's servers; empty if the run has no such server."""
    found = next((addresses[name] for name in asks.components if name in addresses), [])
    return tuple(found if asks.of_all else found[index % len(found) :][:1] if found else [])


def _links(settings: RunSettings, place: Place) -> list[str]:
    """Actors start at consecutive shards of their agent. A few actors need more links, or some shards would have no actor."""
    links = settings.learner.shards - settings.actors_per_agent + 1
    return ["--actor.links", str(links)] if place.service == "actor" and links > settings.actor.links else []


def _shard(settings: RunSettings, place: Place, learners: Sequence[Spot]) -> dict[str, str]:
    """Return torchrun's variables: the shards of each agent form a group, and those of one host share its CPUs and GPUs."""
    size = settings.learner.shards
    agent, rank = divmod(place.index, size)
    first, host = learners[agent * size], learners[place.index].host
    local = [number for number, learner in enumerate(learners) if learner.host == host]
    here = {"LOCAL_RANK": str(local.index(place.index)), "LOCAL_WORLD_SIZE": str(len(local))}
    return {**here, "RANK": str(rank), "WORLD_SIZE": str(size), "MASTER_ADDR": first.host, "MASTER_PORT": str(first.group_port)}
