"""The services of a run: one table that the supervisor, keys, metrics, chart, images and benchmarks read.

A *service* is a program: its package is ``herd_<name>``, its settings are the section ``<name>`` (replay's are
``replay_service``), its folder is ``services/<name>``.
A *component* is the part that a service plays in a run, and the label of the pods of a release: a parameter server is the root or a
replica. Both are listed in starting order: servers come before their clients.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from herd.config.addresses import ServerName, ServiceName
    from herd.config.encryption_keys import Role
    from herd.config.run import RunSettings

METRICS_PORT = 9400
"""Port of metrics and probes in every container."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """One program."""

    name: ServiceName
    port: int | None = None
    """Port of the socket that it binds, in containers and on several machines; None: it has no clients."""
    group_port: int | None = None
    """Port of the rendezvous of its own processes, in containers."""
    packages: Literal["", "actor", "learner", "replay"] = ""
    """Extra of the distribution that it needs in addition to those of every process."""
    has_torch: bool = False
    """Whether its processes import torch, with the tuned allocator."""
    section_name: str | None = None
    """Name of its section of settings, if it differs from the service's name."""
    has_agent: bool = False
    """Whether each of its processes belongs to one agent of the run."""
    has_index: bool = False
    """Whether its processes are numbered."""
    moves_weights: bool = False
    """Whether it makes, serves or uses the network's weights."""
    niceness: int = 0
    """Niceness on a machine that it shares with other services of the run; a lower one has priority."""

    @property
    def module(self) -> str:
        """Name of the module for ``python -m``."""
        return f"herd_{self.name}"

    @property
    def section(self) -> str:
        """Name of its section of settings."""
        return self.section_name or self.name


class Asks(NamedTuple):
    """A connection that a component makes."""

    service: ServerName
    """The service behind the address; also the name of the option that gives it."""
    components: tuple[str, ...]
    """Components that may be behind the address: on one machine, the first of these that the run has."""
    of_all: bool = False
    """Whether it gets the addresses of all processes there. Otherwise it gets one, and neighbouring processes get different ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """A part in a run."""

    service: Service
    name: str
    count: Callable[[RunSettings], int]
    """Number of processes that ``herd train`` starts; 0: the run has none."""
    asks: tuple[Asks, ...] = ()
    spare: Callable[[RunSettings], int] = lambda _: 0
    """Number of its processes (for a learner: of agents) that the run can do without if they keep failing."""

    @property
    def roles(self) -> tuple[Role, ...]:
        """Roles of its sockets, which determine its CURVE keys."""
        server: tuple[Role, ...] = ("server",) if self.service.port is not None else ()
        client: tuple[Role, ...] = ("client",) if self.asks else ()
        return (*server, *client)


PARAMSERVER = Service(name="paramserver", port=7200, has_index=True, moves_weights=True)
BANDIT = Service(name="bandit", port=7300)
REPLAY = Service(name="replay", port=7400, packages="replay", section_name="replay_service", has_index=True)
POPULATION = Service(name="population", port=7500)
INFERENCE = Service(
    name="inference",
    port=7600,
    packages="learner",
    has_torch=True,
    has_index=True,
    moves_weights=True,
    niceness=5,  # as the actors that it acts for
)
LEARNER = Service(name="learner", port=7100, group_port=29500, packages="learner", has_torch=True, has_agent=True, moves_weights=True)
ACTOR = Service(name="actor", packages="actor", has_torch=True, has_agent=True, has_index=True, moves_weights=True, niceness=5)
"""The learner goes first. With equal shares of a laptop's cores the queue fills up and every unroll ages in it (lag 15 instead of 8 updates
on two cores); this way actors use what is left, and credit keeps them from running ahead."""
EVALUATOR = Service(
    name="evaluator",
    packages="actor",
    has_torch=True,
    section_name="evaluation",
    moves_weights=True,
    niceness=10,  # after all others: how long an evaluation takes changes nothing
)
SERVICES = (PARAMSERVER, BANDIT, REPLAY, POPULATION, INFERENCE, LEARNER, ACTOR, EVALUATOR)


def _spare_actors(settings: RunSettings) -> int:
    """Return how many actors may be missing: each agent needs one, every learner shard one that is connected to it, and lockstep all."""
    if settings.actor.lockstep:
        return 0
    return settings.actor.count - settings.agents if settings.actor.links >= settings.learner.shards else 0


COMPONENTS = (
    Component(service=PARAMSERVER, name="paramserver", count=lambda _: 1),
    Component(
        service=PARAMSERVER,
        name="paramserver-replica",
        count=lambda settings: settings.paramserver.replicas,
        asks=(Asks("paramserver", ("paramserver",)),),
    ),
    Component(service=BANDIT, name="bandit", count=lambda settings: int(settings.loss.draws_temperatures)),
    Component(
        service=REPLAY,
        name="replay",
        count=lambda settings: settings.replay_service.replicas if settings.replay.kind == "shared" else 0,
    ),
    Component(service=POPULATION, name="population", count=lambda settings: int(settings.population.strategy == "pbt")),
    Component(
        service=INFERENCE,
        name="inference",
        count=lambda settings: settings.inference.replicas if settings.actor.inference == "remote" else 0,
        asks=(Asks("paramserver", ("paramserver-replica", "paramserver")),),
    ),
    Component(
        service=LEARNER,
        name="learner",
        count=lambda settings: settings.agents * settings.learner.shards,  # all shards of agent 0 first
        spare=lambda settings: settings.agents - 1,
        asks=(Asks("paramserver", ("paramserver",)), Asks("replay", ("replay",), of_all=True), Asks("population", ("population",))),
    ),
    Component(
        service=ACTOR,
        name="actor",
        count=lambda settings: settings.actor.count,
        spare=_spare_actors,
        asks=(
            Asks("learner", ("learner",), of_all=True),
            Asks("paramserver", ("paramserver-replica", "paramserver")),
            Asks("bandit", ("bandit",)),
            Asks("inference", ("inference",)),
        ),
    ),
    Component(
        service=EVALUATOR,
        name="evaluator",
        count=lambda settings: int(settings.evaluation.interval_seconds is not None),
        spare=lambda _: 1,
        asks=(Asks("paramserver", ("paramserver-replica", "paramserver")), Asks("bandit", ("bandit",))),
    ),
)

SERVICE_NAMES = tuple(service.name for service in SERVICES)
COMPONENT_NAMES = tuple(component.name for component in COMPONENTS)
SERVERS = tuple(service for service in SERVICES if service.port is not None)
"""Services that others connect to."""


def service_of(name: str) -> Service:
    """Return the service with this name."""
    return next(service for service in SERVICES if service.name == name)
