"""Who a process is, where it listens, and which processes it connects to.

None of this is a setting: all processes of a run read the same settings, and each gets an identity of its own, as options of its command
line (``--index 3 --listen 0.0.0.0:7200``) or, in a container, as environment variables (``HERD_LISTEN=*:7200``). Whoever starts the
processes computes their identities (`herd.launch.placement`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from herd.config.addresses import LOOPBACK, bare, checked, with_port
from herd.config.errors import SettingsError
from herd.config.loading.keys import ENVIRONMENT_PREFIX
from herd.topology import ACTOR, COMPONENTS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from herd.config.addresses import ServiceName
    from herd.config.run import RunSettings
    from herd.topology import Component, Service

_MAX_PORT = 65535


class Endpoint(NamedTuple):
    """A network interface, and a port of it; 0 is any free port."""

    host: str = LOOPBACK
    port: int = 0

    def __str__(self) -> str:
        return with_port(self.host, self.port)


ANY_PORT = Endpoint()


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of one process."""

    agent: int | None = None
    """Agent that a learner trains, None for agent 0, or that an actor plays for, None if it is leased together with the index."""
    index: int | None = None
    """Number among the processes of the service. None: 0; of an actor, leased from the parameter server. It determines an actor's seeds and
    tasks. With several agents and without ``agent``, both are leased in any case, and an actor's index only numbers the process."""
    listen: Endpoint = ANY_PORT
    """Where a server's socket listens."""
    metrics: Endpoint = ANY_PORT
    """Where metrics and probes are served."""
    addresses: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Addresses by name of the service: of all learner shards, agent 0 first, and of all replay replicas, in order. Of other services, that
    of the process that this one connects to."""

    @property
    def number(self) -> int:
        """Number among the processes of the service."""
        return self.index or 0

    def address(self, service: ServiceName) -> str:
        """Return the address of the only process of ``service`` that this one connects to."""
        return self.addresses[service][0]

    def words(self) -> list[str]:
        """Return the options of a command line from which `take_identity` reads this identity."""
        options: dict[str, object] = {"agent": self.agent, "index": self.index}
        options |= {name: endpoint for name, endpoint in (("listen", self.listen), ("metrics", self.metrics)) if endpoint != ANY_PORT}
        options |= {name: ",".join(found) for name, found in self.addresses.items()}
        return [word for name, value in options.items() if value is not None for word in (f"--{name}", str(value))]


def identity_options(service: Service) -> dict[str, str]:
    """Return the options of a service's identity, without dashes, with their help."""
    leased = service is ACTOR
    options = {
        "agent": "agent that it plays for; default: leased together with the index" if leased else "agent that it trains; default: 0",
        "index": "number among the processes of its service; default: " + ("leased from the parameter server" if leased else "0"),
        "listen": "HOST:PORT of its socket; port 0 takes a free one, which is the default",
        "metrics": "HOST:PORT of metrics and probes; port 0 takes a free one, which is the default",
    }
    has = {"agent": service.has_agent, "index": service.has_index, "listen": service.port is not None, "metrics": True}
    one, several = "address, tcp://HOST:PORT", "addresses of all its processes, tcp://HOST:PORT,tcp://HOST:PORT"
    asked = {other: several if of_all else one for other, of_all in _asked(service).items()}
    return {name: text for name, text in options.items() if has[name]} | asked


def take_identity(service: Service, words: Sequence[str], environ: Mapping[str, str]) -> tuple[Identity, list[str], dict[str, str]]:
    """Separate a service's identity from the settings.

    Returns:
        the identity, and the words and variables that belong to the settings. An option wins over the variable of the same name.

    Raises:
        SettingsError: one line that names the option or variable.

    """
    options = identity_options(service)
    variables = {f"{ENVIRONMENT_PREFIX}{name.upper()}": name for name in options}
    given = {name: (environ[variable], variable, "environment") for variable, name in variables.items() if variable in environ}
    others: list[str] = []
    rest = list(words)
    while rest:
        option, equals, inline = rest[0].partition("=")
        if option.removeprefix("--") not in options or not option.startswith("--"):
            others.append(rest.pop(0))
            continue
        if not equals and len(rest) < 2:
            raise SettingsError(f"{option}: needs a value (command line): {options[option[2:]]}")
        given[option[2:]] = (inline if equals else rest[1], option, "command line")
        del rest[: 1 if equals else 2]
    addresses = {name: _addresses(*given[name], of_all=of_all) for name, of_all in _asked(service).items() if name in given}
    identity = Identity(
        agent=_number(*given["agent"]) if "agent" in given else None,
        index=_number(*given["index"]) if "index" in given else None,
        listen=_endpoint(*given["listen"]) if "listen" in given else ANY_PORT,
        metrics=_endpoint(*given["metrics"]) if "metrics" in given else ANY_PORT,
        addresses={name: found for name, found in addresses.items() if found},
    )
    return identity, others, {name: value for name, value in environ.items() if name not in variables}


def check_identity(component: Component, identity: Identity, settings: RunSettings) -> None:
    """Check that an identity belongs to a run.

    Raises:
        SettingsError: one line that names the option.

    """
    if identity.agent is not None and identity.agent >= settings.agents:
        raise SettingsError(f"--agent {identity.agent} must be below agents, which is {settings.agents}")
    if component.name == "actor" and identity.agent is not None and identity.index is None:
        raise SettingsError("--agent and --index are leased together: give both or neither")
    if component.name == "replay" and identity.number >= settings.replay_service.replicas:
        raise SettingsError(f"--index {identity.index} must be below replay_service.replicas, which is {settings.replay_service.replicas}")
    if component.name == "evaluator" and not component.count(settings):
        return  # it plays the checkpoints on disk
    for asks in component.asks:
        has = any(other.count(settings) for other in COMPONENTS if other.name in asks.components)
        if has and asks.service not in identity.addresses:
            what = "addresses" if asks.of_all else "address"
            raise SettingsError(f"--{asks.service}: is missing: this run needs the {what}, tcp://HOST:PORT")


def component_of(service: Service, identity: Identity) -> Component:
    """Return the component of a process: a parameter server with a parent is a replica."""
    is_replica = service.name == "paramserver" and "paramserver" in identity.addresses
    name = "paramserver-replica" if is_replica else service.name
    return next(component for component in COMPONENTS if component.name == name)


def _asked(service: Service) -> dict[str, bool]:
    """Return the services that processes of ``service`` connect to, and whether to each of their processes."""
    return {asks.service: asks.of_all for component in COMPONENTS if component.service is service for asks in component.asks}


def _number(text: str, name: str, origin: str) -> int | None:
    if text == "null":
        return None
    if not text.isdecimal():
        raise SettingsError(f"{name}: should be integer >= 0 or null, not {text!r} ({origin})")
    return int(text)


def _endpoint(text: str, name: str, origin: str) -> Endpoint:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > _MAX_PORT or (":" in host and not host.startswith("[")):
        raise SettingsError(f"{name}: should be HOST:PORT, with an IPv6 address in brackets, not {text!r} ({origin})")
    return Endpoint(bare(host), int(port))


def _addresses(text: str, name: str, origin: str, *, of_all: bool) -> tuple[str, ...]:
    """Read addresses separated by commas; ``null`` is none."""
    try:
        found = () if text == "null" else tuple(checked(word.strip()) for word in text.split(","))
    except ValueError as error:
        raise SettingsError(f"{name}: {error}, not {text!r} ({origin})") from None
    if len(found) > 1 and not of_all:
        raise SettingsError(f"{name}: should be one address, not {text!r} ({origin})")
    return found
