"""The environment of every service process: log, metrics and probes, ZeroMQ context, announcement."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Self

from herd.components.suites import environment_spec
from herd.components.suites.checking import learn_spaces
from herd.config.run_contract import contract_digest, objection_of_parts
from herd.protocols.weights.client import PAUSE_SECONDS, WeightsClient
from herd.rpc.serving import ServedRun
from herd.run.processes import announce_process
from herd.service.startup import BadInputError
from herd.telemetry import DEFAULT_ALIVE_SECONDS, Telemetry
from herd.telemetry.logs import configure_logging, get_logger
from herd.topology import service_of
from herd.transport.context import Context

if TYPE_CHECKING:
    from types import TracebackType

    from herd.config.addresses import ServiceName
    from herd.config.run import RunSettings
    from herd.service.identity import Identity


PLAYERS = frozenset({"actor", "evaluator"})
"""Services that play games."""


def is_loopback(host: str) -> bool:
    """Return whether an interface is reachable only from this machine."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


class ServiceProcess:
    """The resources of a service process. At exit its endpoint is closed and sent messages are flushed."""

    def __init__(self, service: ServiceName, settings: RunSettings, identity: Identity) -> None:
        """Configure the log; nothing is bound yet.

        Raises:
            BadInputError: a task does not exist, or the auxiliary loss does not fit the observations.

        """
        configure_logging(service, run=settings.name)
        self.service = service
        self.settings = settings
        self.identity = identity
        self.log = get_logger(service)
        try:
            if service not in PLAYERS:
                learn_spaces(settings.env)  # so that it does not run code of the user's
            self.spec = environment_spec(settings.env)
        except ValueError as error:
            raise BadInputError(str(error)) from error
        if (objection := objection_of_parts(settings, self.spec)) is not None:
            raise BadInputError(objection)
        self.contract = contract_digest(settings, self.spec)
        steps = settings.env.longest_step_seconds() if service in PLAYERS else 0.0
        self.telemetry = Telemetry(service, settings.name, alive_seconds=DEFAULT_ALIVE_SECONDS + steps)
        self.context = Context(settings.security)
        self._warn_of_open_door()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.telemetry.close()
        self.context.destroy()

    def served_run(self, address: str) -> ServedRun:
        """Return what clients must agree on; ``address`` is the setting that holds this server's address."""
        return ServedRun(address, self.settings.name, self.contract, range(self.settings.agents))

    def weights_client(self, agent: int, *, pause_seconds: float = PAUSE_SECONDS) -> WeightsClient:
        """Connect to the parameter server, for the weights of ``agent``."""
        return WeightsClient(
            self.context,
            self.identity.address("paramserver"),
            run_id=self.settings.name,
            agent=agent,
            contract=self.contract,
            max_slice_bytes=self.settings.paramserver.max_version_bytes,
            pause_seconds=pause_seconds,
        )

    def _warn_of_open_door(self) -> None:
        """Warn if anyone who can reach this machine may act as a process of the run."""
        host = self.identity.listen.host
        if service_of(self.service).port is None or self.context.curve or is_loopback(host):
            return
        warning = f"{self.service} listens on {host}, which is open to the network, and connections are without keys (security.curve_keys)"
        self.telemetry.set_warning(warning)
        self.log.warning("open to the network without keys: anyone who can reach the port can act as a process of the run", host=host)

    def serve_metrics(self) -> None:
        """Start to serve /metrics and probes.

        Raises:
            BadInputError: the port cannot be bound.

        """
        try:
            self.telemetry.serve(*self.identity.metrics)
        except OSError as error:
            raise BadInputError(str(error)) from error

    def announce(self, event: str, number: int | None = None, /, **facts: object) -> None:
        """Announce this process with its metrics port in the run directory, for the live view, and in the log.

        ``number`` is its number within the service, if it is not that of its identity.
        """
        known = self.identity.number if number is None else number
        host = self.identity.metrics.host
        announce_process(self.settings.directory, self.service, known, metrics_host=host, metrics_port=self.telemetry.port)
        self.log.info(event, metrics_port=self.telemetry.port, contract=self.contract[:12], **facts)
