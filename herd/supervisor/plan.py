"""The processes of a run on this machine with their command lines and environments: `herd.topology` with addresses and numbers."""

from __future__ import annotations

import json
import sys
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from herd.config.addresses import local_host
from herd.config.curve_keys import DEFAULT_CLIENT, RUN_TOKEN_VARIABLE, client_file, curve_environment
from herd.config.loading.keys import ENVIRONMENT_PREFIX
from herd.config.run_files import CONFIG
from herd.service.allocator import ALLOCATOR_ENVIRONMENT
from herd.service.hardware import usable_cpus
from herd.supervisor.ports import held_ports, local_address
from herd.topology import COMPONENTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from herd.config.settings import RunSettings
    from herd.topology import Asks, Component

_RENDEZVOUS = "the rendezvous of learner.shards"
_SHORTEST_WALL_SECONDS = 0.001
"""A learner that is started after the deadline still gets a valid setting, and ends at once."""


@dataclass(frozen=True, slots=True)
class Start:
    """The circumstances of a start of a child."""

    restarts: int
    """0 for the first start."""
    trained_seconds: float
    """Seconds since the run's first update in this session; 0 before it."""


@dataclass(frozen=True, slots=True)
class ChildPlan:
    """How to start and restart a child."""

    service: str
    number: int
    command: Callable[[Start], list[str]]
    environment: Mapping[str, str]
    niceness: int = 0
    """Above 0: lower priority than other processes of this machine."""
    agent: int | None = None
    """For a learner shard: the agent that it trains."""

    @property
    def name(self) -> str:
        """Name such as ``actor-3``, also of its log and its announcement."""
        return f"{self.service}-{self.number}"


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
        """As in `ChildPlan`."""
        return f"{self.service}-{self.number}"


@dataclass(frozen=True, slots=True)
class RunPorts:
    """The ports of the run's servers."""

    serving: Mapping[str, int]
    """Ports by name of the child."""
    rendezvous: tuple[int, ...]
    """Port of the rendezvous of each agent's learner shards, if there are several."""


def places_of(settings: RunSettings) -> list[Place]:
    """Return every process of the run, in starting order."""
    numbers: Counter[str] = Counter()
    places = []
    for component in COMPONENTS:
        for index in range(component.count(settings)):
            places.append(Place(component, index, numbers[component.service.name]))
            numbers[component.service.name] += 1
    return places


@contextmanager
def held_run_ports(settings: RunSettings) -> Iterator[RunPorts]:
    """Hold the ports: those in the settings for the first process of each service, and free ones for 0 and for other processes.

    Raises:
        PortError: a fixed port is in use, or an interface does not belong to this machine.

    """
    rendezvous = [f"{_RENDEZVOUS} of agent {agent}" for agent in range(settings.agents)]
    wanted = {}
    keys = {}
    for place in places_of(settings):
        section = place.component.service.section
        own = getattr(settings, section)
        if place.number == 0:
            wanted[f"{section}.metrics_port"] = (own.metrics_host, own.metrics_port)
        if place.component.service.port is not None:
            keys[place.name] = f"{section}.port" if place.number == 0 else f"{section}.port of {place.name}"
            wanted[keys[place.name]] = (own.host, own.port if place.number == 0 else 0)
    wanted |= dict.fromkeys(rendezvous, (local_host(settings.learner.host), 0))
    with held_ports(wanted) as ports:
        yield RunPorts({name: ports[key] for name, key in keys.items()}, tuple(ports[key] for key in rendezvous))


def plan_children(settings: RunSettings, run_dir: Path, ports: RunPorts, environ: Mapping[str, str]) -> tuple[ChildPlan, ...]:
    """Plan every process, in starting order. Each reads ``run_dir``/config.yaml and gets the ports on its command line."""
    planner = _Planner(settings, run_dir, ports, environ)
    return tuple(
        ChildPlan(
            place.service,
            place.number,
            partial(planner.command, place),
            planner.environment(place),
            place.component.service.niceness,
            place.index // settings.learner.shards if place.service == "learner" else None,
        )
        for place in places_of(settings)
    )


class _Planner:
    """Makes the command lines and environments of a run."""

    def __init__(self, settings: RunSettings, run_dir: Path, ports: RunPorts, environ: Mapping[str, str]) -> None:
        self._settings = settings
        self._run_dir = run_dir
        self._ports = ports
        self._environ = environ
        self._addresses: dict[str, list[str]] = {}
        for place in places_of(settings):
            if place.name in ports.serving:
                address = local_address(getattr(settings, place.component.service.section).host, ports.serving[place.name])
                self._addresses.setdefault(place.component.name, []).append(address)

    def command(self, place: Place, start: Start) -> list[str]:
        """Return the command line of a process."""
        options: dict[str, object] = {}
        if place.name in self._ports.serving:
            options["port"] = self._ports.serving[place.name]
        if place.number > 0:
            options["metrics_port"] = 0  # only the first process has the fixed port
        for asks in place.component.asks:
            if (address := self._address(asks, place.index)) is not None:
                options[asks.setting] = address
        words = [sys.executable, "-m", place.component.service.module]
        words += ["--config", str(self._run_dir / CONFIG), "--run_dir", str(self._run_dir)]
        for key, value in (options | self._identity(place)).items():
            words += [f"--{place.component.service.section}.{key}", str(value)]
        words += self._key_of(place)
        return [*words, *(self._of_this_start(start) if place.service == "learner" else ())]

    def _key_of(self, place: Place) -> list[str]:
        """Return the option for the key of its service, if the folder has one (``herd keys DIR --client actor``)."""
        security = self._settings.security
        if security.curve_keys is None or security.curve_client != DEFAULT_CLIENT or not place.component.asks:
            return []
        own = security.curve_keys / client_file(place.service, "secret")
        return ["--security.curve_client", place.service] if own.exists() else []

    def environment(self, place: Place) -> dict[str, str]:
        """Return the environment of a process: this one without settings, plus keys, allocator variables and torchrun's variables."""
        # config.yaml has the resolved settings; the environment must not override them again.
        variables = {name: value for name, value in self._environ.items() if not name.startswith(ENVIRONMENT_PREFIX)}
        if self._settings.security.curve_keys_from_environment:
            # Keys are not settings, so config.yaml does not contain them. Each process gets only the keys of its roles.
            variables |= curve_environment(self._environ, place.component.roles)
        elif RUN_TOKEN_VARIABLE in self._environ:
            variables[RUN_TOKEN_VARIABLE] = self._environ[RUN_TOKEN_VARIABLE]
        if place.component.service.has_torch:
            # glibc and OpenMP read these before ``main``, so they cannot be set inside the process.
            variables |= {**ALLOCATOR_ENVIRONMENT, "OMP_NUM_THREADS": str(self._threads(place))}
        if place.service == "learner" and place.component.count(self._settings) > 1:
            variables |= self._of_shard(place)
        return variables

    def _address(self, asks: Asks, index: int) -> str | None:
        """Return the address of a component's server; None if the run has no such server."""
        found = next((self._addresses[name] for name in asks.components if name in self._addresses), None)
        if found is None:
            return None
        if asks.of_all and len(found) > 1:
            return json.dumps(found)
        return found[index % len(found)]

    def _identity(self, place: Place) -> dict[str, object]:
        """Return the settings that identify a process among those of its service."""
        settings = self._settings
        if place.service == "actor":
            # Actors start at consecutive shards of their agent. A few actors need more links, or some shards would have no actor.
            num_actors = settings.actors_per_agent
            return {"index": place.number, "links": max(settings.actor.links, settings.learner.shards - num_actors + 1)}
        if place.service == "learner" and settings.agents > 1:
            return {"agent": place.index // settings.learner.shards}
        return {"index": place.number} if place.service in {"paramserver", "replay", "inference"} else {}

    def _of_this_start(self, start: Start) -> list[str]:
        """Return options of a restarted learner: it resumes, for the remaining time."""
        words = ["--resume", str(self._settings.resume or start.restarts > 0).lower()]
        limit = self._settings.stop.wall_seconds
        if limit is None:
            return words
        return [*words, "--stop.wall_seconds", f"{max(_SHORTEST_WALL_SECONDS, limit - start.trained_seconds):.3f}"]

    def _threads(self, place: Place) -> int:
        learner = self._settings.learner
        if place.service == "learner":
            return learner.threads or max(1, usable_cpus() // place.component.count(self._settings))
        if place.service == "inference":
            return self._settings.inference.threads
        return self._settings.actor.inference_threads if place.service == "actor" else 1

    def _of_shard(self, place: Place) -> dict[str, str]:
        """Return torchrun's variables: all learners share the machine, and the shards of each agent form a group."""
        size = self._settings.learner.shards
        agent, rank = divmod(place.index, size)
        local = {"LOCAL_RANK": str(place.index), "LOCAL_WORLD_SIZE": str(place.component.count(self._settings))}
        group = {"RANK": str(rank), "WORLD_SIZE": str(size)}
        return {**local, **group, "MASTER_ADDR": local_host(self._settings.learner.host), "MASTER_PORT": str(self._ports.rendezvous[agent])}
