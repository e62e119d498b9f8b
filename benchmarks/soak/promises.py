"""The promises of a run under faults, checked from outside. No I/O.

Every method takes an observation and returns the breaches, usually none.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable

    Account = tuple[int, int]
    """(actor_index, incarnation)."""

Version: TypeAlias = tuple[int, int]
"""(lineage, learner_updates), ordered lexicographically."""

VERSIONS = "versions never go back"
ONE_MEANING = "a version has one meaning"
NEW_LINEAGE = "a restored learner opens a lineage"
LEDGER = "the ledger balances"
NO_LOSS = "no frame is lost without a reason"
RECOVERY = "recovers within the limit"
UNAFFECTED = "a lost actor does not stop the learner"
NOBODY_ELSE = "nobody else falls over"
GOES_ON = "the run goes on"
ORDER = "the run ends cleanly"
MEMORY = "memory does not grow"

LEARNER_RESTART = "learner_restart"
_MAX_VERSIONS = 65_536
"""Maximum number of remembered contents: an hour with a new version every 50 ms."""
_ALLOWED_REASONS = frozenset({LEARNER_RESTART, "stale"})
"""Every message of these runs is well-formed, so a loss for any other reason is unexplained."""


@dataclass(frozen=True, slots=True)
class Breach:
    """A broken promise."""

    promise: str
    detail: str


class VersionWatch:
    """Checks the versions that parameter servers serve and processes hold."""

    def __init__(self) -> None:
        self._served: dict[str, Version] = {}
        self._held: dict[tuple[str, int], Version] = {}
        self._learner: tuple[int, int] | None = None
        self._contents: OrderedDict[Version, str] = OrderedDict()
        self.newest: Version = (0, 0)
        """The newest version seen anywhere."""

    def served(self, server: str, version: Version, contents: str) -> list[Breach]:
        """Record the answer of a parameter server to a client without weights; ``contents``: a digest of the weights.

        Restarts are not an exception: an empty server gets the newest version of all, or says that it has none.
        """
        breaches = []
        before = self._served.get(server, (0, 0))
        if version < before:
            breaches.append(Breach(VERSIONS, f"{server} served {version} after {before}"))
        self._served[server] = max(version, before)
        known = self._contents.setdefault(version, contents)
        if known != contents:
            breaches.append(Breach(ONE_MEANING, f"{server} served {version} with other weights than before"))
        while len(self._contents) > _MAX_VERSIONS:
            self._contents.popitem(last=False)
        self.newest = max(self.newest, version)
        return breaches

    def held(self, process: str, pid: int, version: Version) -> list[Breach]:
        """Record the version that a process reports; (0, 0) before the first."""
        if version == (0, 0):
            return []
        breaches = []
        before = self._held.get((process, pid), (0, 0))
        if version < before:
            breaches.append(Breach(VERSIONS, f"{process} went from {before} back to {version}"))
        self._held[process, pid] = max(version, before)
        if process.startswith("learner"):
            breaches += self._learner_holds(process, pid, version)
        self.newest = max(self.newest, version)
        return breaches

    def _learner_holds(self, process: str, pid: int, version: Version) -> list[Breach]:
        if self._learner is not None:
            known_pid, lineage = self._learner
            if pid != known_pid and version[0] <= lineage:
                return [Breach(NEW_LINEAGE, f"{process} started again and publishes in lineage {version[0]}, used before")]
        self._learner = (pid, version[0])
        return []


class LedgerWatch:
    """Checks that checkpoints and the report are consistent snapshots of the ledger."""

    def __init__(self) -> None:
        self._lineage: int | None = None
        self._generated: dict[Account, int] = {}
        self._heard: set[Account] = set()
        self._lost = 0
        self.num_snapshots = 0
        """Number of snapshots so far."""

    def snapshot(self, ledger: dict[str, Any]) -> list[Breach]:
        """Check one reading: {generated, consumed, in_flight, dropped}."""
        self.num_snapshots += 1
        dropped = ledger["dropped"]
        total = ledger["consumed"] + ledger["in_flight"] + sum(dropped.values())
        breaches = []
        if ledger["generated"] != total:
            breaches.append(Breach(LEDGER, f"generated {ledger['generated']}, accounted for {total}: {_short(ledger)}"))
        if min(ledger["consumed"], ledger["in_flight"], *dropped.values(), 0) < 0:
            breaches.append(Breach(LEDGER, f"a negative count: {_short(ledger)}"))
        strange = {reason: count for reason, count in dropped.items() if reason not in _ALLOWED_REASONS and count}
        if strange:
            breaches.append(Breach(NO_LOSS, f"dropped {strange}, and nobody sent such messages"))
        return breaches

    def checkpoint(self, state: dict[str, Any]) -> list[Breach]:
        """Check a checkpoint's state.json for consistency and against earlier ones."""
        ledger = state["ledger"]
        breaches = self.snapshot(ledger)
        generated = {(index, incarnation): count for index, incarnation, _, count in ledger["accounts"]}
        if sum(generated.values()) != ledger["generated"]:
            breaches.append(Breach(LEDGER, f"the actors reported {sum(generated.values())} frames, generated is {ledger['generated']}"))
        frames = state["statistics"]["env_frames"]
        if frames != ledger["consumed"]:
            breaches.append(Breach(LEDGER, f"consumed {ledger['consumed']}, but {frames} env frames were learned from"))
        return breaches + self._follow(state["lineage"], generated, ledger["dropped"].get(LEARNER_RESTART, 0))

    def _follow(self, lineage: int, generated: dict[Account, int], lost: int) -> list[Breach]:
        """Check that frames are lost only with a learner: only an actor's first message after its restart may count lost frames.

        An actor has sent a message in a lineage when its count exceeds all earlier ones; a restored count may be lower.
        """
        advanced = {account for account, count in generated.items() if count > self._generated.get(account, 0)}
        breaches = []
        if lineage == self._lineage:
            if lost > self._lost and advanced <= self._heard:
                frames = lost - self._lost
                breaches.append(Breach(NO_LOSS, f"{frames} frames became {LEARNER_RESTART} in lineage {lineage} without a restart"))
            self._heard |= advanced
        else:
            self._heard = advanced
        self._lineage, self._generated, self._lost = lineage, self._generated | generated, lost
        return breaches


def unexpected_exits(seen: dict[str, int], caused: dict[str, int]) -> list[Breach]:
    """Return the children that ended more often than they were killed."""
    return [
        Breach(NOBODY_ELSE, f"{name} ended {count} times, {caused.get(name, 0)} of them were faults")
        for name, count in seen.items()
        if count > caused.get(name, 0)
    ]


def names(breaches: Iterable[Breach]) -> list[str]:
    """Return the broken promises, each once."""
    return sorted({breach.promise for breach in breaches})


def _short(ledger: dict[str, Any]) -> str:
    return str({key: ledger[key] for key in ("generated", "consumed", "in_flight", "dropped")})
