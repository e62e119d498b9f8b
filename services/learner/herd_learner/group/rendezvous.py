"""The meeting of shards: torchrun's variables, a key-value store at shard 0, and one generation of members.

RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are set by torchrun, and likewise by ``herd train``. Shard 0 serves the store (with torchrun,
its agent does). A group starts and ends as a whole: shard 0 opens a *generation*, and each rank joins it once. A process that finds its
rank taken, because it restarted before the others noticed the failure, waits for the next generation.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from torch.distributed import PrefixStore, Store, TCPStore  # type: ignore[attr-defined]

from herd.config.addresses import bare, with_port
from herd.run.settings import flat_values
from herd.service.startup import BadInputError
from herd.telemetry.logs import get_logger, warn_limited

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from herd.config.run import RunSettings

CONNECT_SECONDS = 5.0
"""Timeout of one attempt to reach or read the store."""
PAUSE_SECONDS = 0.2
"""Interval of checks for new members."""
TELL_SECONDS = 10.0
"""Interval of log lines while shards are missing."""
LISTEN_SECONDS = 10.0
"""Longest time that shard 0 tries to listen at its port, which its predecessor may still hold."""
_GENERATION, _SETTINGS = "generation", "settings"
_OF_ONE_PROCESS = ("logging.", "placement.", "security.")
_OF_ONE_SHARD = frozenset({"run_dir", "resume", "learner.device", "learner.threads", "stop.wall_seconds"})
"""Settings that may differ: paths and devices of a machine, what only shard 0 reads, and the time that is left, which ``herd train``
computes at each start of a shard; the first shard whose time is over stops all."""


class NotGatheredError(Exception):
    """The process was asked to stop before every shard had joined."""


@dataclass(frozen=True, slots=True)
class Place:
    """The place of this process among the shards."""

    rank: int
    size: int
    host: str = ""
    port: int = 0
    agent_store: bool = False
    """Whether torchrun's agent serves the store, which then outlives the processes that it starts."""

    @property
    def serves(self) -> bool:
        """Whether this process serves the store."""
        return self.rank == 0 and not self.agent_store


@dataclass(frozen=True, slots=True)
class Membership:
    """A joined generation."""

    place: Place
    prefix: str
    generation: str
    store: Store
    """The keys of this generation."""


def place_of(num_shards: int, environ: Mapping[str, str]) -> Place:
    """Return this process's place; with one shard, that of a single process.

    Raises:
        BadInputError: the environment does not describe shards, or another number of them.
    """
    if num_shards == 1:
        return Place(0, 1)
    try:
        rank, size, port = int(environ["RANK"]), int(environ["WORLD_SIZE"]), int(environ["MASTER_PORT"])
        host = bare(environ["MASTER_ADDR"])
    except KeyError as error:
        raise BadInputError(
            f"learner.shards is {num_shards}, but {error.args[0]} is not set: start shards with herd train or torchrun"
        ) from None
    except ValueError as error:
        raise BadInputError(f"RANK, WORLD_SIZE and MASTER_PORT must be numbers: {error}") from None
    if size != num_shards or not 0 <= rank < size:
        raise BadInputError(f"learner.shards is {num_shards}, but RANK is {rank} and WORLD_SIZE {size}")
    return Place(rank, size, host, port, environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True")


def shared_settings(settings: RunSettings) -> dict[str, Any]:
    """Return the settings that all shards must have alike, by dotted key."""
    return {
        key: value
        for key, value in flat_values(settings.model_dump(mode="json")).items()
        if not (key.startswith(_OF_ONE_PROCESS) or key in _OF_ONE_SHARD)
    }


def join(place: Place, go_on: Callable[[], bool], settings: Mapping[str, Any], environ: Mapping[str, str] = os.environ) -> Membership:
    """Wait, while ``go_on``, until every shard has joined one generation. ``settings``: see `shared_settings`.

    Raises:
        NotGatheredError: ``go_on`` became false first.
        BadInputError: shard 0 cannot listen at its port, or has other settings.
    """
    incarnation = secrets.token_hex(8)
    prefix = environ.get("TORCHELASTIC_RUN_ID", "herd")
    listen_until = time.monotonic() + LISTEN_SECONDS
    serving: Store | None = None
    while go_on():
        try:
            serving = serving or _connect(place, serves=place.serves)
            store = PrefixStore(prefix, serving)
            if place.rank == 0:
                opened = secrets.token_hex(8)
                PrefixStore(opened, store).set(_SETTINGS, json.dumps(settings))
                store.set(_GENERATION, opened)
            generation = _read(store, _GENERATION)
            if generation is not None:
                members = PrefixStore(generation, store)
                _compare(settings, json.loads(members.get(_SETTINGS)), place.rank)
                holder = members.compare_set(f"member/{place.rank}", "", incarnation).decode()
                if holder == incarnation and _all_joined(store, generation, place, go_on):
                    return Membership(place, prefix, generation, members)
        except RuntimeError as error:  # all exceptions of the store
            in_use = place.serves and "address already in use" in str(error).lower()
            if in_use and time.monotonic() > listen_until:
                raise BadInputError(f"MASTER_PORT {place.port} is in use") from None
            warn_limited("rendezvous", "waiting for shard 0", address=with_port(place.host, place.port), reason=_first_line(error))
            if not place.serves:
                serving = None  # connect again; a process that serves keeps its port
        time.sleep(PAUSE_SECONDS)
    raise NotGatheredError


def _compare(settings: Mapping[str, Any], first: Mapping[str, Any], rank: int) -> None:
    """Check that this shard's settings are those of shard 0. Shards with different ones would train apart."""
    for key in sorted(settings.keys() | first.keys()):
        here, there = (json.dumps(side[key]) if key in side else "not set" for side in (settings, first))
        if here != there:
            raise BadInputError(f"learner shard {rank}: {key} is {here}, but {there} at shard 0: start all shards with the same settings")


def connect_again(membership: Membership) -> Store:
    """Return another connection to the same keys for another thread, because operations on one connection block each other."""
    return PrefixStore(membership.generation, PrefixStore(membership.prefix, _connect(membership.place, serves=False)))


def _connect(place: Place, *, serves: bool) -> Store:
    return TCPStore(place.host, place.port, is_master=serves, wait_for_workers=False, timeout=timedelta(seconds=CONNECT_SECONDS))


def _all_joined(store: Store, generation: str, place: Place, go_on: Callable[[], bool]) -> bool:
    """Return False if another generation was opened, or ``go_on`` became false."""
    members = PrefixStore(generation, store)
    told_at = time.monotonic()
    while go_on() and _read(store, _GENERATION) == generation:
        missing = [rank for rank in range(place.size) if not members.check([f"member/{rank}"])]
        if not missing:
            return True
        if time.monotonic() - told_at > TELL_SECONDS:
            told_at = time.monotonic()
            get_logger().info("waiting for shards", missing=missing)
        time.sleep(PAUSE_SECONDS)
    return False


def _read(store: Store, key: str) -> str | None:
    return store.get(key).decode() if store.check([key]) else None


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0][:200] if str(error) else type(error).__name__
