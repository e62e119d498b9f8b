"""What a run promises under faults (DESIGN.md, "What each process promises"), checked on what can be seen from outside. No I/O.

Every method takes an observation and returns what it breaks: nothing, as a rule.
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
ORDER = "the run ends in order"
MEMORY = "memory does not grow"

LEARNER_RESTART = "learner_restart"
_MAX_VERSIONS = 65_536
"""Whose contents are remembered: an hour of a new one every 50 ms."""
_ALLOWED_REASONS = frozenset({LEARNER_RESTART, "stale"})
"""Every message of these runs is well-formed: any other reason is a loss that nobody caused."""


@dataclass(frozen=True, slots=True)
class Breach:
    """A promise that was broken."""

    promise: str
    detail: str


class VersionWatch:
    """Versions as parameter servers serve them and processes hold them."""

    def __init__(self) -> None:
        self._served: dict[str, Version] = {}
        self._held: dict[tuple[str, int], Version] = {}
        self._learner: tuple[int, int] | None = None
        self._contents: OrderedDict[Version, str] = OrderedDict()
        self.newest: Version = (0, 0)
        """The newest ever seen anywhere."""

    def served(self, server: str, version: Version, contents: str) -> list[Breach]:
        """Record what a parameter server answered to someone who holds nothing; ``contents``: a digest of the weights.

        Restarts are no excuse: an empty server gets the newest version of all, or says that it has none.
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
        """Record the version that a process reports; (0, 0): none yet."""
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
    """Checkpoints and the report: each is one consistent snapshot of the ledger."""

    def __init__(self) -> None:
        self._lineage: int | None = None
        self._generated: dict[Account, int] = {}
        self._heard: set[Account] = set()
        self._lost = 0
        self.num_snapshots = 0
        """Looked at so far."""

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
        """Check a checkpoint's state.json against itself and against those before it."""
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
        """Frames are lost with a learner only: an actor's first message after its restart books them, and no later one.

        An actor was heard in a lineage when its count went beyond everything seen before; a restored count may be lower.
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
    """Children that ended more often than they were killed."""
    return [
        Breach(NOBODY_ELSE, f"{name} ended {count} times, {caused.get(name, 0)} of them were faults")
        for name, count in seen.items()
        if count > caused.get(name, 0)
    ]


def names(breaches: Iterable[Breach]) -> list[str]:
    """The promises broken, each once."""
    return sorted({breach.promise for breach in breaches})


def _short(ledger: dict[str, Any]) -> str:
    return str({key: ledger[key] for key in ("generated", "consumed", "in_flight", "dropped")})
