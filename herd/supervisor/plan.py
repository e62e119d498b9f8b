"""Which processes a run has on this machine, with which command line and environment."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from herd.config.curve_keys import EVERY_ROLE, curve_environment, curve_roles
from herd.config.keys import ENVIRONMENT_PREFIX
from herd.process.allocator import ALLOCATOR_ENVIRONMENT
from herd.process.hardware import usable_cpus
from herd.supervisor.ports import choose_ports, local_address
from herd.supervisor.run_directory import CONFIG

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from herd.config.curve_keys import Role
    from herd.config.settings import RunSettings

_ACTOR_NICENESS = 5
"""Actors and learner share a laptop's cores. With equal shares the queue fills up and every unroll ages in it (lag 15 instead of 8
updates on two cores); where the learner goes first, actors use what is left, and credit keeps them from running ahead."""
_RENDEZVOUS = "the rendezvous of learner.shards"
_RENDEZVOUS_HOST = "127.0.0.1"
_SHORTEST_WALL_SECONDS = 0.001
"""A learner started after the deadline still gets a valid setting, and ends at once."""


@dataclass(frozen=True, slots=True)
class Start:
    """Circumstances of one start of a child."""

    restarts: int
    """0 for the first start."""
    elapsed_seconds: float
    """Since the command began."""


@dataclass(frozen=True, slots=True)
class ChildPlan:
    """How to start one child, now and again."""

    service: str
    number: int
    command: Callable[[Start], list[str]]
    environment: Mapping[str, str]
    niceness: int = 0
    """Above 0: other processes of this machine go first."""

    @property
    def name(self) -> str:
        """``actor-3``; names its log and its announcement too."""
        return f"{self.service}-{self.number}"


@dataclass(frozen=True, slots=True)
class RunPorts:
    """Where the run's servers listen."""

    learner: int
    """The first shard's."""
    paramserver: int
    """The root's."""
    replicas: tuple[int, ...] = ()
    """Of the parameter server's replicas."""
    bandit: int | None = None
    """None where the run has none."""
    shards: tuple[int, ...] = ()
    """Of the learner's other shards."""
    rendezvous: int = 0
    """Where the learner's shards meet, where there are several."""


def choose_run_ports(settings: RunSettings) -> RunPorts:
    """Take the ports that the settings fix, and free ones for 0 and for replicas.

    Raises:
        PortError: a fixed port is in use, or an interface is not this machine's.

    """
    learner, paramserver = settings.learner, settings.paramserver
    replicas = [f"paramserver.replicas {number}" for number in range(1, paramserver.replicas + 1)]
    shards = [f"learner.shards {number}" for number in range(1, learner.shards)]
    bandit = settings.bandit
    bandit_ports = {"bandit.port": (bandit.host, bandit.port), "bandit.metrics_port": (bandit.metrics_host, bandit.metrics_port)}
    ports = choose_ports(
        {
            "learner.port": (learner.host, learner.port),
            "paramserver.port": (paramserver.host, paramserver.port),
            "learner.metrics_port": (learner.metrics_host, learner.metrics_port),
            "paramserver.metrics_port": (paramserver.metrics_host, paramserver.metrics_port),
            **dict.fromkeys(replicas, (paramserver.host, 0)),
            **dict.fromkeys(shards, (learner.host, 0)),
            _RENDEZVOUS: (_RENDEZVOUS_HOST, 0),
            **(bandit_ports if settings.has_bandit else {}),
        }
    )
    return RunPorts(
        ports["learner.port"],
        ports["paramserver.port"],
        tuple(ports[replica] for replica in replicas),
        ports.get("bandit.port"),
        tuple(ports[shard] for shard in shards),
        ports[_RENDEZVOUS],
    )


def plan_children(settings: RunSettings, run_dir: Path, ports: RunPorts, environ: Mapping[str, str]) -> tuple[ChildPlan, ...]:
    """Parameter servers, bandit, learner, actors, in the order to start them; each reads ``run_dir``/config.yaml and is told the ports."""
    learner, paramserver, actor = settings.learner, settings.paramserver, settings.actor
    shard_ports = (ports.learner, *ports.shards)
    shard_addresses = [local_address(learner.host, port) for port in shard_ports]
    learner_addresses = shard_addresses[0] if len(shard_addresses) == 1 else json.dumps(shard_addresses)
    paramserver_address = local_address(paramserver.host, ports.paramserver)
    serving_actors = [local_address(paramserver.host, port) for port in ports.replicas] or [paramserver_address]
    inherited = _inherited(environ)

    def base(roles: tuple[Role, ...]) -> dict[str, str]:
        # Keys are no settings, so config.yaml cannot hand them on; each process gets those of its roles and no other.
        return {**inherited, **(curve_environment(environ, roles) if settings.security.curve_keys_from_environment else {})}

    def command(service: str, **overrides: object) -> list[str]:
        words = [sys.executable, "-m", f"herd_{service}", "--config", str(run_dir / CONFIG), "--run_dir", str(run_dir)]
        for key, value in overrides.items():
            words += [f"--{key.replace('__', '.')}", str(value)]
        return words

    def learner_command(rank: int, start: Start) -> list[str]:
        resume = settings.resume or start.restarts > 0
        limit = settings.stop.wall_seconds
        words = command("learner", learner__port=shard_ports[rank], learner__paramserver=paramserver_address, resume=str(resume).lower())
        if rank > 0:
            words += ["--learner.metrics_port", "0"]  # the first has the fixed one, where there is one
        if limit is not None:
            words += ["--stop.wall_seconds", f"{max(_SHORTEST_WALL_SECONDS, limit - start.elapsed_seconds):.3f}"]
        return words

    def root_command(_start: Start) -> list[str]:
        return command("paramserver", paramserver__index=0, paramserver__port=ports.paramserver)

    def replica_command(index: int, _start: Start) -> list[str]:
        words = command("paramserver", paramserver__index=index, paramserver__port=ports.replicas[index - 1])
        # The root has the fixed metrics port, where there is one.
        return [*words, "--paramserver.upstream", paramserver_address, "--paramserver.metrics_port", "0"]

    def bandit_command(_start: Start) -> list[str]:
        return command("bandit", bandit__port=ports.bandit)

    def actor_command(index: int, _start: Start) -> list[str]:
        nearest = serving_actors[index % len(serving_actors)]
        # Actors begin at neighbouring shards: few of them need more links, or some shard would have none.
        links = max(actor.links, len(shard_ports) - actor.count + 1)
        words = command("actor", actor__index=index, actor__learner=learner_addresses, actor__paramserver=nearest, actor__links=links)
        if ports.bandit is not None:
            words += ["--actor.bandit", local_address(settings.bandit.host, ports.bandit)]
        # One fixed port cannot serve several processes.
        return words if actor.count == 1 else [*words, "--actor.metrics_port", "0"]

    root_environment, replica_environment = base(curve_roles("paramserver", settings)), base(EVERY_ROLE)
    learner_environment = {**base(curve_roles("learner", settings)), **_tuned(learner.threads or max(1, usable_cpus() // learner.shards))}
    actor_environment = {**base(curve_roles("actor", settings)), **_tuned(actor.inference_threads)}
    return (
        ChildPlan("paramserver", 0, root_command, root_environment),
        *(
            ChildPlan("paramserver", index, partial(replica_command, index), replica_environment)
            for index in range(1, len(ports.replicas) + 1)
        ),
        *([ChildPlan("bandit", 0, bandit_command, base(curve_roles("bandit", settings)))] if ports.bandit is not None else []),
        *(
            ChildPlan("learner", rank, partial(learner_command, rank), {**learner_environment, **_rank_environment(rank, ports)})
            for rank in range(len(shard_ports))
        ),
        *(ChildPlan("actor", index, partial(actor_command, index), actor_environment, _ACTOR_NICENESS) for index in range(actor.count)),
    )


def _rank_environment(rank: int, ports: RunPorts) -> dict[str, str]:
    """What torchrun would set; nothing for a learner of one shard."""
    if not ports.shards:
        return {}
    size = str(1 + len(ports.shards))
    place = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size}
    return {**place, "MASTER_ADDR": _RENDEZVOUS_HOST, "MASTER_PORT": str(ports.rendezvous)}


def _inherited(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment without settings: config.yaml holds them resolved, and a command line that beat the environment must still do so."""
    return {name: value for name, value in environ.items() if not name.startswith(ENVIRONMENT_PREFIX)}


def _tuned(threads: int) -> dict[str, str]:
    """Read by glibc and OpenMP before ``main``: too late to set from inside the process."""
    return {**ALLOCATOR_ENVIRONMENT, "OMP_NUM_THREADS": str(threads)}
