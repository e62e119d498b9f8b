"""The replay process around the handler: one thread, one ROUTER, and the snapshots of its episodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from herd.config.run_contract import run_layout
from herd.config.services import OPEN_SHARE
from herd.protocols.replay.client import WINDOW, max_insert_bytes
from herd.protocols.replay.messages import REPLAY
from herd.protocols.replay.pieces import PieceLayout
from herd.protocols.replay.samples import PART_BYTES
from herd.rpc.envelope import MAX_HEADER_BYTES
from herd.rpc.serving import AtMostOnce, Received, Reply
from herd.service.inbox import RequestInbox, open_router, serve_requests
from herd.service.process import ServiceProcess
from herd.service.startup import BadInputError, LostAtEndError
from herd.telemetry.logs import warn_limited
from herd_replay.assembly import Assembler
from herd_replay.exchange import ReplayHandler, Replica
from herd_replay.keeper import Keeper
from herd_replay.meters import Meters
from herd_replay.snapshot import ForeignSnapshotError, SnapshotFolder
from herd_replay.store import EpisodeStore

if TYPE_CHECKING:
    from herd.config.run import RunSettings
    from herd.service.identity import Identity
    from herd.service.signals import StopRequest

ANSWERS_PER_PEER = 4
"""Limit of unread requests: a client has one request under way, and repeats it after seconds."""

MAX_WRITERS = 65_536
"""Number of writers to remember, which take 13 MB. Each start of a learner shard is a new writer."""


def run(settings: RunSettings, identity: Identity, stop: StopRequest) -> None:
    """Serve the run until ``stop``.

    Raises:
        BadInputError: a task is unknown, the address cannot be used, or the snapshot belongs to another run.
        LostAtEndError: the last snapshot could not be written.

    """
    own = settings.replay_service
    if settings.replay.kind != "shared":
        raise BadInputError(f"replay.kind {settings.replay.kind} does not use a replay service: set it to shared")
    with ServiceProcess("replay", settings, identity) as process:
        layout = PieceLayout(run_layout(settings, process.spec))
        replica = Replica(identity.number, own.replicas)
        capacity_steps = replica.share_of(settings.replay.capacity_agent_steps)
        assembler = Assembler(int(own.memory_bytes * OPEN_SHARE))
        store = EpisodeStore(
            capacity_steps=capacity_steps,
            max_bytes=lambda: own.memory_bytes - assembler.total_bytes,
            unroll_length=layout.unroll.new_steps,
        )
        writers: AtMostOnce[None] = AtMostOnce(MAX_WRITERS, in_order=True)
        meters = Meters(process.telemetry)
        keeper = Keeper(
            SnapshotFolder(settings.directory, run=settings.name, contract=process.contract, replica=replica, layout=layout),
            store=store,
            assembler=assembler,
            writers=writers,
            meters=meters,
            interval_seconds=own.snapshot_interval_seconds,
        )
        try:
            keeper.restore(process.log)
        except ForeignSnapshotError as error:
            raise BadInputError(str(error)) from error
        meters.restored(store.num_steps)
        handler = ReplayHandler(
            layout=layout,
            replica=replica,
            assembler=assembler,
            store=store,
            writers=writers,
            random=np.random.default_rng([settings.seed, identity.number]),
            part_bytes=PART_BYTES,
        )
        meters.watch_episodes(store, assembler, lambda: keeper.age_seconds)
        meters.bounded(capacity_steps=capacity_steps, max_bytes=own.memory_bytes)
        router = open_router(
            process.context,
            identity,
            max_frame_bytes=max(max_insert_bytes(layout), MAX_HEADER_BYTES),
            high_water_mark=ANSWERS_PER_PEER,
            # Requests of all learner shards wait while one is processed, and a restarted shard may have old and new ones.
            unread_frames=2 * settings.agents * settings.learner.shards * WINDOW,
        )

        def answer(received: Received) -> Reply:
            discarded_before = assembler.num_discarded["open"]
            done = handler.answer(received)
            if assembler.num_discarded["open"] > discarded_before:
                warn_limited(
                    "open episodes",
                    "open episodes take too much memory: the one that was silent longest is discarded",
                    instead="raise replay_service.memory_bytes or replay_service.replicas",
                    open_agent_steps=assembler.num_steps,
                    max_bytes=assembler.max_bytes,
                )
            meters.answered(done)
            return done

        with router:
            inbox = RequestInbox(router, REPLAY, process.served_run("--replay"), answer, meters)
            serve_requests(process, inbox, router, meters, stop, tick=keeper.tick, agent_steps=store.num_steps)
            if not keeper.close():
                raise LostAtEndError("the last snapshot of replay could not be written; the newest snapshot on disk is older")
            process.log.info("stopped", agent_steps=store.num_steps)
