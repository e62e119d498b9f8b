"""The bandit process around the handler: one thread, one ROUTER, and the files of the state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from herd.protocols.bandit.messages import BANDIT
from herd.rpc.envelope import MAX_HEADER_BYTES
from herd.service.inbox import RequestInbox, open_router, serve_requests
from herd.service.process import ServiceProcess
from herd.service.startup import BadInputError, LostAtEndError
from herd_bandit.exchange import ExchangeHandler, new_window
from herd_bandit.keeper import Keeper
from herd_bandit.meters import Meters
from herd_bandit.snapshot import ForeignSnapshotError
from herd_bandit.task_bandit import draw_generator, groups_of, new_bandits

if TYPE_CHECKING:
    from herd.config.run import RunSettings
    from herd.rpc.serving import Received, Reply
    from herd.service.identity import Identity
    from herd.service.signals import StopRequest

# After an outage, 5,000 actors may each send 26 kB (200 games), two thirds of them before the server reads. The bound does not cover all
# of them, because a single foreign client could fill it.
UNREAD_BYTES_EACH = 16 << 10


def run(settings: RunSettings, identity: Identity, stop: StopRequest) -> None:
    """Serve the run until ``stop``.

    Raises:
        BadInputError: a task is unknown, the address cannot be used, or the state was made with other settings.
        LostAtEndError: the last state could not be written.

    """
    with ServiceProcess("bandit", settings, identity) as process:
        meters = Meters(process.telemetry)
        handler, keeper = _restored(process, meters)
        router = open_router(process.context, identity, max_frame_bytes=MAX_HEADER_BYTES, unread_bytes_each=UNREAD_BYTES_EACH)

        def answer(received: Received) -> Reply:
            done = handler.answer(received)
            meters.answered(done)
            return done

        with router:
            inbox = RequestInbox(router, BANDIT, process.served_run("--bandit"), answer, meters)
            serve_requests(process, inbox, router, meters, stop, tick=keeper.tick, episodes=keeper.num_episodes)
            keeper.record()
            if not keeper.save():
                raise LostAtEndError("the last state of the bandits could not be written; the newest state on disk is older")
            process.log.info("stopped", episodes=keeper.num_episodes)


def _restored(process: ServiceProcess, meters: Meters) -> tuple[ExchangeHandler, Keeper]:
    """Make the handler and the keeper, and restore the state of the last process."""
    settings, spec = process.settings, process.spec
    groups = groups_of(settings, len(spec.task_names))
    bandits = new_bandits(settings.bandit, spec.task_names, seed=settings.seed, num_agents=settings.agents, groups=groups)
    window = new_window()
    keeper = Keeper(settings, bandits=bandits, window=window, meters=meters)
    try:
        keeper.restore(process.log)
    except ForeignSnapshotError as error:
        raise BadInputError(str(error)) from error
    meters.restored(keeper.num_episodes)
    meters.watch_state(bandits.values(), lambda: keeper.age_seconds)
    handler = ExchangeHandler(
        settings.bandit,
        action_repeat=spec.action_repeat,
        bandits=bandits,
        window=window,
        generator=draw_generator(bandits, seed=settings.seed),
        learns=settings.loss.temperatures_learn,
    )
    return handler, keeper
