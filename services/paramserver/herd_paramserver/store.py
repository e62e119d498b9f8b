"""The newest complete weights: assembled from slices at the root, taken whole from the parent at a replica.

No I/O: the shell hands in what arrived and sends what is held. Shapes: a version has ``count`` slices, numbered 0..count-1, each
published by one learner shard. Versions are ordered lexicographically by (lineage, learner_updates). A version becomes visible when
its last slice arrives, and what is visible never goes back. At most two versions are in memory: the visible one, and the newest one
that still lacks slices.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from enum import Enum
from typing import Generic, NamedTuple, Protocol, TypeVar

from herd.wire.messages import MAX_SLICES

# Of one version, all slices together: 268 M float32 parameters, ten times those of the deep net at width 4.
MAX_VERSION_BYTES = 2**30

MAX_FIRST_LINEAGE = 2**61
"""That an empty server takes. Half of what a publisher follows (``herd.wire.weights_client.MAX_LINEAGE``)."""
COUNTED_LINEAGES = 2**53
"""Those that a learner opens by itself, counted from 1 or milliseconds since 1970 (2**41), are all below."""
LINEAGE_LEAD = 2**16
"""Beyond the visible lineage, above those: whoever published one that no learner opened, the learner goes one further, as often as it
takes. 2**62 is 2**46 such steps away."""
UPDATES_LEAD = 2**32
"""Beyond the visible version of the same lineage. At 100 updates/s a publisher can be cut off for a year."""


class Version(NamedTuple):
    """Orders weights: a restored checkpoint opens a new lineage, so no version ever means two different weights."""

    lineage: int
    updates: int


class Payload(Protocol):
    """Bytes-like and immutable for as long as the store holds it."""

    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...


P = TypeVar("P", bound=Payload)


class Outcome(Enum):
    """What became of a slice."""

    HELD = "held"
    """Kept; its version is still incomplete (or was held already)."""
    VISIBLE = "visible"
    """It completed its version, which is what clients get from now on."""
    WANTED = "wanted"
    """It is not here and would be taken (answer to `status` only)."""
    STALE = "stale"
    """A greater version is held, or a part of one; nothing changed. Shards publish a version when all have confirmed the one before, so
    that somebody else published the greater one: in its own lineage the publisher may never be taken again."""
    AHEAD = "ahead"
    """No learner comes to such numbers from the version held; nothing changed."""


class InvalidSliceError(ValueError):
    """The slice contradicts itself or one that is held; nothing changed. ``reason`` is the label of the malformed-messages counter."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Weights(Generic[P]):
    """One complete version."""

    version: Version
    digests: tuple[str, ...]
    """Hex SHA-256 by slice index."""
    payloads: tuple[P, ...]
    """By slice index; the same objects for every client."""

    @property
    def num_bytes(self) -> int:
        """Of all slices."""
        return sum(len(payload) for payload in self.payloads)


@dataclass(slots=True)
class _Assembly(Generic[P]):
    """A version that still lacks slices."""

    version: Version
    count: int
    num_bytes: int = 0
    slices: dict[int, tuple[str, P]] = field(default_factory=dict)


class WeightsStore(Generic[P]):
    """Keeps the newest complete version and assembles a newer one."""

    def __init__(self, *, max_version_bytes: int = MAX_VERSION_BYTES) -> None:
        self._max_version_bytes = max_version_bytes
        self._visible: Weights[P] | None = None
        self._assembly: _Assembly[P] | None = None

    @property
    def visible(self) -> Weights[P] | None:
        """What clients get; None until a first version is complete."""
        return self._visible

    @property
    def assembling(self) -> Version | None:
        """The version that still lacks slices, if any; always newer than the visible one."""
        return self._assembly.version if self._assembly is not None else None

    @property
    def newest(self) -> Version | None:
        """The greatest version held, complete or not: what a stale publisher is told."""
        return self.assembling or (self._visible.version if self._visible is not None else None)

    @property
    def num_bytes(self) -> int:
        """Of everything held."""
        visible = self._visible.num_bytes if self._visible is not None else 0
        return visible + (self._assembly.num_bytes if self._assembly is not None else 0)

    def newer_than(self, have: Version | None) -> Weights[P] | None:
        """Return the visible version if a client that holds ``have`` lacks it, else None.

        A client that is *ahead* is answered None too: this server restarted and its publisher has yet to publish again.
        """
        if self._visible is None or (have is not None and have >= self._visible.version):
            return None
        return self._visible

    def publish(self, version: Version, *, index: int, count: int, digest: str, payload: P) -> Outcome:
        """Take one slice in. Repeating a slice changes nothing, so a publisher may always send again.

        Raises:
            InvalidSliceError: out of range, of another count or size than allowed, contents that do not match the digest,
                or another digest than the one held for the same version and index.

        """
        if not (0 < count <= MAX_SLICES and 0 <= index < count and version.lineage >= 0 and version.updates >= 0):
            raise InvalidSliceError("array", f"slice {index} of {count} of version {tuple(version)} is out of range")
        if self.is_ahead(version):
            return Outcome.AHEAD
        if self._visible is not None and version <= self._visible.version:
            return self._repeat(self._visible, version, index=index, count=count, digest=digest)
        assembly = self._assembly
        if assembly is not None and version < assembly.version:
            if count > 1:
                return Outcome.STALE
            # Whole in one slice: it need not wait for a newer version that may never be completed.
            assembly = _Assembly(version, count)
        elif assembly is None or version > assembly.version:
            assembly = _Assembly(version, count)
        if count != assembly.count:
            raise InvalidSliceError("unexpected", f"version {tuple(version)} has {assembly.count} slices, not {count}")
        if (held := assembly.slices.get(index)) is not None:
            _same_digest(version, index, held=held[0], offered=digest)
            return Outcome.HELD
        if assembly.num_bytes + len(payload) > self._max_version_bytes:
            raise InvalidSliceError("size", f"version {tuple(version)} exceeds {self._max_version_bytes} bytes")
        # Last, because it reads every byte (about 1 GB/s); a copy already held is recognised by its digest alone.
        if hashlib.sha256(payload).hexdigest() != digest:
            raise InvalidSliceError("digest", f"slice {index} of version {tuple(version)} does not match its digest")
        return self._hold(assembly, index=index, digest=digest, payload=payload)

    def adopt(self, weights: Weights[P]) -> bool:
        """Take a whole version, its digests checked already; False, with nothing changed, unless it is newer than the visible one.

        Raises:
            InvalidSliceError: it is larger than allowed.

        """
        if self._visible is not None and weights.version <= self._visible.version:
            return False
        if weights.num_bytes > self._max_version_bytes:
            raise InvalidSliceError("size", f"version {tuple(weights.version)} exceeds {self._max_version_bytes} bytes")
        self._visible = weights
        if self._assembly is not None and self._assembly.version <= weights.version:
            self._assembly = None
        return True

    def status(self, version: Version, *, index: int, count: int) -> Outcome:
        """Tell a publisher what publishing this slice again would bring; reads no contents and changes nothing."""
        visible, assembly = self._visible, self._assembly
        if self.is_ahead(version):
            return Outcome.AHEAD
        if visible is not None and version <= visible.version:
            return Outcome.HELD if version == visible.version else Outcome.STALE
        if assembly is not None and version == assembly.version:
            return Outcome.HELD if index in assembly.slices else Outcome.WANTED
        if assembly is not None and version < assembly.version and count > 1:
            return Outcome.STALE
        return Outcome.WANTED

    def is_ahead(self, version: Version) -> bool:
        """Tell whether no learner that published the visible version, or was overtaken by it, would publish this one."""
        if self._visible is None:
            return version.lineage > MAX_FIRST_LINEAGE or version.updates > UPDATES_LEAD
        held = self._visible.version
        if version.lineage == held.lineage:
            return version.updates > held.updates + UPDATES_LEAD
        return version.lineage > max(COUNTED_LINEAGES, held.lineage + LINEAGE_LEAD) or version.updates > UPDATES_LEAD

    def _hold(self, assembly: _Assembly[P], *, index: int, digest: str, payload: P) -> Outcome:
        assembly.slices[index] = (digest, payload)
        assembly.num_bytes += len(payload)
        if len(assembly.slices) < assembly.count:
            self._assembly = assembly  # newest wins: an older incomplete version is let go here
            return Outcome.HELD
        ordered = [assembly.slices[i] for i in range(assembly.count)]
        self._visible = Weights(assembly.version, tuple(digest for digest, _ in ordered), tuple(payload for _, payload in ordered))
        if self._assembly is not None and self._assembly.version <= assembly.version:
            self._assembly = None
        return Outcome.VISIBLE

    @staticmethod
    def _repeat(visible: Weights[P], version: Version, *, index: int, count: int, digest: str) -> Outcome:
        if version < visible.version:
            return Outcome.STALE
        if count != len(visible.digests):
            raise InvalidSliceError("unexpected", f"version {tuple(version)} has {len(visible.digests)} slices, not {count}")
        _same_digest(version, index, held=visible.digests[index], offered=digest)
        return Outcome.HELD


def _same_digest(version: Version, index: int, *, held: str, offered: str) -> None:
    if held != offered:
        raise InvalidSliceError(
            "unexpected",
            f"slice {index} of version {tuple(version)} is held with other contents; a learner that went back opens a new lineage",
        )
