"""The bandit process around the handler: one thread, one ROUTER, metrics, files, signals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from herd.service.process import ServiceProcess
from herd.service.serving import Inbox, open_router, serve, warn_refused
from herd.service.startup import BadInputError, LostAtEndError
from herd.wire.codec import decode_header, encode
from herd.wire.messages import MAX_HEADER_BYTES, Refused
from herd_bandit.exchange import ExchangeHandler
from herd_bandit.keeper import Keeper
from herd_bandit.meters import Meters
from herd_bandit.population import draw_generator, groups_of, new_bandits
from herd_bandit.snapshot import ForeignSnapshotError
from herd_bandit.window import RequestWindow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from herd.config.settings import RunSettings
    from herd.service.signals import StopRequest
    from herd.telemetry import Telemetry
    from herd.wire.sockets import Router

# After an outage, 5,000 actors may each send 26 kB (200 games), two thirds of them before the server reads. The bound does not cover all
# of them, because a single foreign client could fill it.
UNREAD_BYTES_EACH = 16 << 10


class BanditServer:
    """Receives requests, sends the handler's answers, and counts."""

    def __init__(self, router: Router, handler: ExchangeHandler, *, keeper: Keeper, meters: Meters, telemetry: Telemetry) -> None:
        self._router = router
        self._handler = handler
        self._keeper = keeper
        self._meters = meters
        self._telemetry = telemetry
        self._inbox = Inbox(router, self._answer, meters)

    def run(self, stop: StopRequest) -> None:
        """Serve until ``stop``, then answer requests that arrived before it, and write the state.

        Raises:
            LostAtEndError: the state could not be written.

        """
        serve(stop, self._telemetry, [self._router], self._turn)
        self._inbox.serve_waiting()
        self._keeper.record()
        if not self._keeper.save():
            raise LostAtEndError("the last state of the bandits could not be written; the newest state on disk is older")

    def _turn(self) -> None:
        self._inbox.serve_waiting()
        self._keeper.tick()

    def _answer(self, peer: bytes, frames: Sequence[memoryview]) -> bool:
        message = decode_header(frames[0])
        self._router.check(message)
        answer = self._handler.answer(message, num_payloads=len(frames) - 1)
        self._meters.answered(answer)
        if answer.message is None:
            return True
        if isinstance(answer.message, Refused):
            # One key for all, because reasons contain foreign text.
            warn_refused("client", answer.message.reason, peer)
        # False: the client has disconnected or does not read; it will repeat the request.
        self._router.send(peer, encode(answer.message))
        return not isinstance(answer.message, Refused)


def run(settings: RunSettings, stop: StopRequest) -> None:
    """Serve the run until ``stop``.

    Raises:
        BadInputError: a task is unknown, the address cannot be used, or the state was made with other settings.
        LostAtEndError: the last state could not be written.

    """
    with ServiceProcess("bandit", settings) as process:
        meters = Meters(process.telemetry)
        handler, keeper = _restored(process, meters)
        router = open_router(process.context, settings, "bandit", max_frame_bytes=MAX_HEADER_BYTES, unread_bytes_each=UNREAD_BYTES_EACH)
        with router:
            meters.watch_requests(router, process.context.refusals)
            process.serve_metrics()
            process.telemetry.set_ready(True)
            process.announce(0, "listening", endpoint=router.endpoint, episodes=keeper.num_episodes)
            BanditServer(router, handler, keeper=keeper, meters=meters, telemetry=process.telemetry).run(stop)
            process.log.info("stopped", episodes=keeper.num_episodes)


def _restored(process: ServiceProcess, meters: Meters) -> tuple[ExchangeHandler, Keeper]:
    """Make the handler and the keeper, and restore the state of the last process."""
    settings, spec = process.settings, process.spec
    groups = groups_of(settings, len(spec.task_names))
    bandits = new_bandits(settings.bandit, spec.task_names, seed=settings.seed, num_agents=settings.agents, groups=groups)
    window = RequestWindow()
    keeper = Keeper(settings, bandits=bandits, window=window, meters=meters)
    try:
        keeper.restore(process.log)
    except ForeignSnapshotError as error:
        raise BadInputError(str(error)) from error
    meters.restored(keeper.num_episodes)
    meters.watch_state(bandits.values(), lambda: keeper.age_seconds)
    handler = ExchangeHandler(
        settings.bandit,
        run_id=settings.name,
        contract=process.contract,
        action_repeat=spec.action_repeat,
        bandits=bandits,
        window=window,
        generator=draw_generator(bandits, seed=settings.seed),
        learns=settings.loss.temperatures_learn,
        num_agents=settings.agents,
    )
    return handler, keeper
