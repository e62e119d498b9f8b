"""Which processes a run has on this machine, with which command line and environment: `herd.topology`, with addresses and numbers."""

from __future__ import annotations

import json
import sys
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from herd.config.curve_keys import DEFAULT_CLIENT, RUN_TOKEN_VARIABLE, client_file, curve_environment
from herd.config.keys import ENVIRONMENT_PREFIX
from herd.config.run_files import CONFIG
from herd.service.allocator import ALLOCATOR_ENVIRONMENT
from herd.service.hardware import usable_cpus
from herd.supervisor.ports import choose_ports, local_address
from herd.topology import COMPONENTS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from herd.config.settings import RunSettings
    from herd.topology import Asks, Component

_RENDEZVOUS = "the rendezvous of learner.shards"
_RENDEZVOUS_HOST = "127.0.0.1"
_SHORTEST_WALL_SECONDS = 0.001
"""A learner started after the deadline still gets a valid setting, and ends at once."""


@dataclass(frozen=True, slots=True)
class Start:
    """Circumstances of one start of a child."""

    restarts: int
    """0 for the first start."""
    trained_seconds: float
    """Since the run's first update in this session; 0 before it."""


@dataclass(frozen=True, slots=True)
class ChildPlan:
    """How to start one child, now and again."""

    service: str
    number: int
    command: Callable[[Start], list[str]]
    environment: Mapping[str, str]
    niceness: int = 0
    """Above 0: other processes of this machine go first."""
    agent: int | None = None
    """Of a learner's shard: the agent that it trains."""

    @property
    def name(self) -> str:
        """``actor-3``; names its log and its announcement too."""
        return f"{self.service}-{self.number}"


@dataclass(frozen=True, slots=True)
class Place:
    """One process of a run."""

    component: Component
    index: int
    """Within its component."""
    number: int
    """Within its service: a parameter server's replicas count on after the root."""

    @property
    def service(self) -> str:
        """Whose program it runs."""
        return self.component.service.name

    @property
    def name(self) -> str:
        """As `ChildPlan` has it."""
        return f"{self.service}-{self.number}"


@dataclass(frozen=True, slots=True)
class RunPorts:
    """Where the run's servers listen."""

    serving: Mapping[str, int]
    """By child's name."""
    rendezvous: tuple[int, ...]
    """Where the learner's shards meet, where there are several; of each agent."""


def places_of(settings: RunSettings) -> list[Place]:
    """Every process of the run, in the order to start them."""
    numbers: Counter[str] = Counter()
    places = []
    for component in COMPONENTS:
        for index in range(component.count(settings)):
            places.append(Place(component, index, numbers[component.service.name]))
            numbers[component.service.name] += 1
    return places


def choose_run_ports(settings: RunSettings) -> RunPorts:
    """Take the ports that the settings fix, for the first process of each service, and free ones for 0 and for the others.

    Raises:
        PortError: a fixed port is in use, or an interface is not this machine's.

    """
    rendezvous = [f"{_RENDEZVOUS} of agent {agent}" for agent in range(settings.agents)]
    wanted = dict.fromkeys(rendezvous, (_RENDEZVOUS_HOST, 0))
    keys = {}
    for place in places_of(settings):
        section = place.component.service.section
        own = getattr(settings, section)
        if place.number == 0:
            wanted[f"{section}.metrics_port"] = (own.metrics_host, own.metrics_port)
        if place.component.service.port is not None:
            keys[place.name] = f"{section}.port" if place.number == 0 else f"{section}.port of {place.name}"
            wanted[keys[place.name]] = (own.host, own.port if place.number == 0 else 0)
    ports = choose_ports(wanted)
    return RunPorts({name: ports[key] for name, key in keys.items()}, tuple(ports[key] for key in rendezvous))


def plan_children(settings: RunSettings, run_dir: Path, ports: RunPorts, environ: Mapping[str, str]) -> tuple[ChildPlan, ...]:
    """Every process, in the order to start them; each reads ``run_dir``/config.yaml and is told the ports."""
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
    """Command lines and environments of one run."""

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
        """Words to start a process with."""
        options: dict[str, object] = {}
        if place.name in self._ports.serving:
            options["port"] = self._ports.serving[place.name]
        if place.number > 0:
            options["metrics_port"] = 0  # the first has the fixed one, where there is one
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
        """Its service's own key, where the folder has one (``herd keys DIR --client actor``): it may say what that service says."""
        security = self._settings.security
        if security.curve_keys is None or security.curve_client != DEFAULT_CLIENT or not place.component.asks:
            return []
        own = security.curve_keys / client_file(place.service, "secret")
        return ["--security.curve_client", place.service] if own.exists() else []

    def environment(self, place: Place) -> dict[str, str]:
        """Of a process: the command's without settings, the keys of its roles, the tuned allocator, torchrun's variables."""
        # config.yaml holds settings resolved, and a command line that beat the environment must still do so.
        variables = {name: value for name, value in self._environ.items() if not name.startswith(ENVIRONMENT_PREFIX)}
        if self._settings.security.curve_keys_from_environment:
            # Keys are no settings, so config.yaml cannot hand them on; each process gets those of its roles and no other.
            variables |= curve_environment(self._environ, place.component.roles)
        elif RUN_TOKEN_VARIABLE in self._environ:
            variables[RUN_TOKEN_VARIABLE] = self._environ[RUN_TOKEN_VARIABLE]
        if place.component.service.has_torch:
            # Read by glibc and OpenMP before ``main``: too late to set from inside the process.
            variables |= {**ALLOCATOR_ENVIRONMENT, "OMP_NUM_THREADS": str(self._threads(place))}
        if place.service == "learner" and place.component.count(self._settings) > 1:
            variables |= self._of_shard(place)
        return variables

    def _address(self, asks: Asks, index: int) -> str | None:
        """What a component is told of those it asks; None where the run has none of them."""
        found = next((self._addresses[name] for name in asks.components if name in self._addresses), None)
        if found is None:
            return None
        if asks.of_all and len(found) > 1:
            return json.dumps(found)
        return found[index % len(found)]

    def _identity(self, place: Place) -> dict[str, object]:
        """Which of its kind a process is."""
        settings = self._settings
        if place.service == "actor":
            # Actors begin at neighbouring shards of their agent: few of them need more links, or some shard would have none.
            num_actors = settings.actors_per_agent
            return {"index": place.number, "links": max(settings.actor.links, settings.learner.shards - num_actors + 1)}
        if place.service == "learner" and settings.agents > 1:
            return {"agent": place.index // settings.learner.shards}
        return {"index": place.number} if place.service in {"paramserver", "replay", "inference"} else {}

    def _of_this_start(self, start: Start) -> list[str]:
        """Of a learner: it goes on where it was, for the time that is left."""
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
        """What torchrun would set: the learners of all agents share the machine, and each agent's shards make a group."""
        size = self._settings.learner.shards
        agent, rank = divmod(place.index, size)
        local = {"LOCAL_RANK": str(place.index), "LOCAL_WORLD_SIZE": str(place.component.count(self._settings))}
        group = {"RANK": str(rank), "WORLD_SIZE": str(size)}
        return {**local, **group, "MASTER_ADDR": _RENDEZVOUS_HOST, "MASTER_PORT": str(self._ports.rendezvous[agent])}
