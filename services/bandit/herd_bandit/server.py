"""The process around the handler: one thread, one ROUTER, metrics, files, signals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from herd.config.contract import contract_digest
from herd.envs.make import environment_spec
from herd.service.allocator import FreeMemory
from herd.service.startup import BadInputError, announce_process
from herd.telemetry import Telemetry
from herd.telemetry.logs import configure_logging, get_logger, warn_limited
from herd.wire.codec import MalformedMessage, decode_header, encode
from herd.wire.messages import MAX_HEADER_BYTES, Refused
from herd.wire.sockets import Poller, Router, new_context
from herd_bandit.exchange import ExchangeHandler
from herd_bandit.keeper import Keeper
from herd_bandit.meters import Meters
from herd_bandit.population import draw_generator, new_bandits
from herd_bandit.snapshot import ForeignSnapshotError
from herd_bandit.window import RequestWindow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from structlog.stdlib import BoundLogger

    from herd.config.contract import EnvSpec
    from herd.config.settings import RunSettings
    from herd.service.signals import StopRequest

SERVICE: Final = "bandit"
# How late a signal or a snapshot may be noticed; idle, it costs five wake-ups a second.
POLL_SECONDS = 0.2
# Of 5,000 actors that come back after an outage with 26 kB each to tell of (200 games), two thirds may have sent it before we look. No
# sum for all of them, which a single stranger could fill.
UNREAD_BYTES_EACH = 16 << 10
# Messages served before the clock and the signals are looked at again.
MAX_BURST = 256


class BanditServer:
    """Receives requests, has them answered, counts."""

    def __init__(self, router: Router, handler: ExchangeHandler, *, keeper: Keeper, meters: Meters, telemetry: Telemetry) -> None:
        self._router = router
        self._handler = handler
        self._keeper = keeper
        self._meters = meters
        self._telemetry = telemetry
        self._free_memory = FreeMemory()

    def run(self, stop: StopRequest) -> None:
        """Serve until ``stop``, and then what had arrived before it; leaves the state on disk."""
        poller = Poller(self._router)
        while not stop:
            poller.poll(POLL_SECONDS)
            self.serve_waiting()
            self._keeper.tick()
            self._free_memory.tick()
            self._telemetry.beat()
        self._telemetry.set_ready(False, "stopping")
        self.serve_waiting()
        self._keeper.record()
        self._keeper.save()

    def serve_waiting(self) -> None:
        """Answer what has arrived, at most ``MAX_BURST`` messages."""
        for _ in range(MAX_BURST):
            received = self._router.receive()
            if received is None:
                return
            self._serve(*received)

    def _serve(self, peer: bytes, frames: Sequence[memoryview]) -> None:
        try:
            answer = self._handler.answer(decode_header(frames[0]), num_payloads=len(frames) - 1)
        except MalformedMessage as error:
            self._meters.malformed(error.label)
            warn_limited(f"malformed {error.label}", "dropped a malformed message", reason=error.reason, peer=_printable(peer))
            return
        self._meters.answered(answer)
        if answer.message is None:
            return
        if isinstance(answer.message, Refused):
            # One key: reasons hold what strangers say.
            warn_limited("refused a client", "refused a client", reason=answer.message.reason, peer=_printable(peer))
        # False: the client is gone or does not read; it asks again.
        self._router.send(peer, encode(answer.message))


def run(settings: RunSettings, stop: StopRequest) -> None:
    """Serve the run until ``stop``.

    Raises:
        BadInputError: an unknown task, an address that cannot be used, a state of other settings.

    """
    configure_logging(SERVICE, run=settings.name)
    own, log = settings.bandit, get_logger(SERVICE)
    try:
        spec = environment_spec(settings.env)
    except ValueError as error:
        raise BadInputError(str(error)) from error
    telemetry = Telemetry(SERVICE, settings.name)
    meters = Meters(telemetry)
    handler, keeper = _restored(settings, spec, meters, log)
    context = new_context(settings.security)
    try:
        try:
            endpoint = f"tcp://{own.host}:{own.port or '*'}"
            router = Router(context, endpoint, max_frame_bytes=MAX_HEADER_BYTES, unread_bytes_each=UNREAD_BYTES_EACH)
        except OSError as error:
            raise BadInputError(f"bandit.host, bandit.port: {error.strerror}") from error
        with router:
            meters.watch_wire(router, router.connections, context.refusals)
            try:
                metrics_port = telemetry.serve(own.metrics_host, own.metrics_port)
                announce_process(settings.directory, SERVICE, 0, metrics_port=metrics_port)
            except OSError as error:
                raise BadInputError(str(error)) from error
            telemetry.set_ready(True)
            log.info("listening", endpoint=router.endpoint, metrics_port=metrics_port, episodes=keeper.num_episodes)
            BanditServer(router, handler, keeper=keeper, meters=meters, telemetry=telemetry).run(stop)
            log.info("stopped", episodes=keeper.num_episodes)
    finally:
        telemetry.close()
        context.term()


def _restored(settings: RunSettings, spec: EnvSpec, meters: Meters, log: BoundLogger) -> tuple[ExchangeHandler, Keeper]:
    """Put together what the process is about, as the last one left it."""
    bandits, window = new_bandits(settings.bandit, spec.task_names, seed=settings.seed, num_agents=settings.agents), RequestWindow()
    keeper = Keeper(settings, bandits=bandits, window=window, meters=meters)
    try:
        keeper.restore(log)
    except ForeignSnapshotError as error:
        raise BadInputError(str(error)) from error
    meters.restored(keeper.num_episodes)
    meters.watch_state(bandits.values(), window, lambda: keeper.age_seconds)
    handler = ExchangeHandler(
        settings.bandit,
        run_id=settings.name,
        contract=contract_digest(settings, spec),
        action_repeat=spec.action_repeat,
        bandits=bandits,
        window=window,
        generator=draw_generator(bandits, seed=settings.seed),
        learns=settings.loss.temperatures_learn,
        num_agents=settings.agents,
    )
    return handler, keeper


def _printable(peer: bytes) -> str:
    return peer.decode("ascii", "backslashreplace")[:64]
