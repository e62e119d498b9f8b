"""The children of ``herd train``: the processes of a run placed on this machine, with their ports, command lines and environments."""

from __future__ import annotations

import errno
import socket
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from herd.components.user_code import PYTHON, SPACES_VARIABLE
from herd.config.addresses import accept_both_versions, interface, local_host, with_port
from herd.config.encryption_keys import DEFAULT_CLIENT, RUN_TOKEN_VARIABLE, client_file, curve_environment
from herd.config.loading.keys import ENVIRONMENT_PREFIX
from herd.launch.placement import Place, Placed, Spot, placement, places_of
from herd.run.paths import CONFIG
from herd.service.allocator import ALLOCATOR_ENVIRONMENT
from herd.service.host import usable_cpus
from herd.service.identity import ANY_PORT, Endpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from herd.config.run import RunSettings

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
    spare: int = 0
    """Number of children like this one (for a learner: of agents) that the run can do without."""

    @property
    def name(self) -> str:
        """Name such as ``actor-3``, also of its log and its announcement."""
        return f"{self.service}-{self.number}"


@contextmanager
def placed_here(settings: RunSettings) -> Iterator[list[Placed]]:
    """Place all processes on this machine, and hold their ports: those of ``settings.placement``, and free ones for all others.

    Raises:
        PortError: a fixed port is in use, or an interface does not belong to this machine.

    """
    own = settings.placement
    fixed = {str(name): port for name, port in own.ports.items()}
    wanted: dict[str, tuple[str, int]] = {}
    for place in places_of(settings):
        service, is_first = place.component.service, place.number == 0
        if is_first and (metrics_port := own.metrics_ports.get(service.name, 0)):
            wanted[f"placement.metrics_ports {service.name}"] = (own.metrics_host, metrics_port)
        if service.port is not None:
            wanted[_socket(place)] = (own.host, fixed.get(service.name, 0) if is_first else 0)
        if service.group_port is not None:
            wanted[_rendezvous(place)] = (local_host(own.host), 0)

    with held_ports(wanted) as ports:

        def spot(place: Place) -> Spot:
            service = place.component.service
            listen = ANY_PORT if service.port is None else Endpoint(own.host, ports[_socket(place)])
            metrics = Endpoint(own.metrics_host, own.metrics_ports.get(service.name, 0) if place.number == 0 else 0)
            return Spot(local_host(own.host), listen, metrics, ports.get(_rendezvous(place), 0))

        yield placement(settings, spot)


def _socket(place: Place) -> str:
    return f"placement.ports {place.service if place.number == 0 else place.name}"


def _rendezvous(place: Place) -> str:
    return f"the rendezvous of {place.name}"


def plan_children(settings: RunSettings, run_dir: Path, placed: Sequence[Placed], environ: Mapping[str, str]) -> tuple[ChildPlan, ...]:
    """Plan every process, in starting order. Each reads ``run_dir``/config.yaml and gets its identity on its command line."""
    return tuple(
        ChildPlan(
            each.place.service,
            each.place.number,
            partial(_command, settings, run_dir, each),
            _environment(settings, each, environ),
            each.place.component.service.niceness,
            each.place.index // settings.learner.shards if each.place.service == "learner" else None,
            each.place.component.spare(settings),
        )
        for each in placed
    )


def _command(settings: RunSettings, run_dir: Path, placed: Placed, start: Start) -> list[str]:
    """Return the command line of a process."""
    service = placed.place.component.service
    words = [*PYTHON, "-m", service.module, "--config", str(run_dir / CONFIG), "--run_dir", str(run_dir)]
    of_this_start = _of_this_start(settings, start) if service.name == "learner" else []
    # Only who starts all processes knows that there is one actor. A restarted one would play the same games again.
    repeats = ["--deterministic", "true"] if settings.can_repeat and service.name in {"learner", "actor"} and not start.restarts else []
    return [*words, *placed.words(), *_key_of(settings, placed), *of_this_start, *repeats]


def _key_of(settings: RunSettings, placed: Placed) -> list[str]:
    """Return the option for a process's key, if the folder has one of its service and agent, or of its service.

    ``herd keys DIR --client learner-agent-1``, ``herd keys DIR --client actor``
    """
    security, service = settings.security, placed.place.service
    if security.curve_keys is None or security.curve_client != DEFAULT_CLIENT or not placed.place.component.asks:
        return []
    for name in (f"{service}-agent-{placed.identity.agent or 0}", service):
        if (security.curve_keys / client_file(name, "secret")).exists():
            return ["--security.curve_client", name]
    return []


def _of_this_start(settings: RunSettings, start: Start) -> list[str]:
    """Return options of a restarted learner: it resumes, for the remaining time."""
    words = ["--resume", str(settings.resume or start.restarts > 0).lower()]
    limit = settings.stop.wall_seconds
    if limit is None:
        return words
    return [*words, "--stop.wall_seconds", f"{max(_SHORTEST_WALL_SECONDS, limit - start.trained_seconds):.3f}"]


def _environment(settings: RunSettings, placed: Placed, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a process: this one without settings, plus keys, allocator variables and torchrun's variables."""
    component = placed.place.component
    # config.yaml has the resolved settings; the environment must not override them again.
    variables = {name: value for name, value in environ.items() if not name.startswith(ENVIRONMENT_PREFIX)}
    if settings.security.curve_keys_from_environment:
        # Keys are not settings, so config.yaml does not contain them. Each process gets only the keys of its roles.
        variables |= curve_environment(environ, component.roles)
    elif RUN_TOKEN_VARIABLE in environ:
        variables[RUN_TOKEN_VARIABLE] = environ[RUN_TOKEN_VARIABLE]
    if SPACES_VARIABLE in environ:
        variables[SPACES_VARIABLE] = environ[SPACES_VARIABLE]
    if component.service.has_torch:
        # glibc and OpenMP read these before ``main``, so they cannot be set inside the process.
        variables |= {**ALLOCATOR_ENVIRONMENT, "OMP_NUM_THREADS": str(_threads(settings, placed.place))}
    return variables | dict(placed.environment)


def _threads(settings: RunSettings, place: Place) -> int:
    match place.service:
        case "learner":
            return settings.learner.threads or max(1, usable_cpus() // place.component.count(settings))
        case "inference":
            return settings.inference.threads
        case "actor":
            return settings.actor.inference_threads
        case _:
            return 1


class PortError(ValueError):
    """A port or interface cannot be bound; one line that names the setting."""


@contextmanager
def held_ports(wanted: Mapping[str, tuple[str, int]]) -> Iterator[dict[str, int]]:
    """Choose ports, and keep them for the children of this process.

    Each port stays bound here, without a listener. Linux then gives it to no other program that asks for any free port, and to no outgoing
    connection. A child binds it with SO_REUSEADDR, as ZeroMQ and torch do, and so can listen to it, and so can the child that replaces it.
    Other kernels refuse the second bind, so there the ports are released. If another program takes one before the child, the child reports
    this with exit code 2.

    Args:
        wanted: name of the port for errors -> (interface, port or 0).

    Yields:
        The port to use, by name; all are different.

    Raises:
        PortError: a fixed port is in use, or an interface does not belong to this machine.

    """
    with ExitStack() as held:
        with ExitStack() as probes:
            ports = {key: _bind(held, probes, key, host, port) for key, (host, port) in wanted.items()}
        yield ports


def _bind(held: ExitStack, probes: ExitStack, key: str, host: str, port: int) -> int:
    try:
        family, address = interface(host)
        probe = _bound(probes, family, address, port)
        chosen: int = probe.getsockname()[1]
        with ExitStack() as beside:
            try:
                _bound(beside, family, address, chosen)
                probe.listen(1)
                held.enter_context(beside.pop_all())
            except OSError:  # not on this kernel, or there is another listener, of another program or another setting
                beside.close()
                probe.listen(1)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise PortError(f"{key}: port {port} of {host} is in use; choose another, or 0 for any free one") from None
        setting = "placement.metrics_host" if "metrics" in key else "placement.host"
        raise PortError(f"{setting}: cannot bind {with_port(host, port)}: {error.strerror or error}") from None
    return chosen


def _bound(kept: ExitStack, family: socket.AddressFamily, address: str, port: int) -> socket.socket:
    made = kept.enter_context(socket.socket(family, socket.SOCK_STREAM))
    # As in ZeroMQ: a port with connections in TIME_WAIT is free, a port with a listener is not.
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    accept_both_versions(made)
    made.bind((address, port))
    return made
