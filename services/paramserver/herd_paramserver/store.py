"""Stores the newest complete weights: assembled from slices at the root, received as a whole from the parent at a replica.

No I/O. A version has ``count`` slices, numbered 0..count-1, each published by one learner shard. Versions are ordered lexicographically by
(lineage, learner_updates). A version becomes visible when its last slice arrives, and the visible version never decreases. At most two
versions are in memory: the visible one, and the newest incomplete one.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from herd.protocols.weights.messages import MAX_FIRST_LINEAGE, MAX_SLICES

if TYPE_CHECKING:
    from herd.transport import Frame

# Largest size of a version over all slices: 268 M float32 parameters, ten times those of the deep network at width 4.
MAX_VERSION_BYTES = 2**30

COUNTED_LINEAGES = 2**53
"""All lineages that a learner opens by itself are below this: they are counted from 1, or milliseconds since 1970 (2**41)."""
LINEAGE_LEAD = 2**16
"""Largest step beyond the visible lineage, above those. If a foreign client publishes such a lineage, the learner opens the next one, as
often as necessary. 2**62 is 2**46 such steps away."""
UPDATES_LEAD = 2**32
"""Largest step beyond the visible version of the same lineage. At 100 updates/s, a publisher can be disconnected for a year."""


class Version(NamedTuple):
    """Identifies and orders weights. A restored checkpoint opens a new lineage, so no version ever means two different weights."""

    lineage: int
    updates: int


class Outcome(Enum):
    """The result of publishing a slice."""

    HELD = "held"
    """The slice was stored; its version is still incomplete, or was complete before."""
    VISIBLE = "visible"
    """The slice completed its version, which is served from now on."""
    WANTED = "wanted"
    """The slice is missing and would be accepted (answer of `status` only)."""
    STALE = "stale"
    """The server has a greater version or a part of one; nothing has changed. Shards publish a version after all have confirmed the
    previous one, so another publisher sent the greater one, and this publisher may never be accepted again in its own lineage."""
    AHEAD = "ahead"
    """The version is implausibly far ahead of the stored one; nothing has changed."""


class InvalidSliceError(ValueError):
    """A slice contradicts itself or a stored one; nothing has changed. ``reason`` is the label of the malformed-messages counter."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Weights:
    """One complete version."""

    version: Version
    digests: tuple[str, ...]
    """Hex SHA-256 by slice index."""
    payloads: tuple[Frame, ...]
    """Payloads by slice index, which must not change; the same objects for every client."""

    @property
    def num_bytes(self) -> int:
        """Size of all slices."""
        return sum(len(payload) for payload in self.payloads)


@dataclass(slots=True)
class _Assembly:
    """An incomplete version."""

    version: Version
    count: int
    num_bytes: int = 0
    slices: dict[int, tuple[str, Frame]] = field(default_factory=dict)


class WeightsStore:
    """Keeps the newest complete version and assembles a newer one."""

    def __init__(self, *, max_version_bytes: int = MAX_VERSION_BYTES) -> None:
        self._max_version_bytes = max_version_bytes
        self.visible: Weights | None = None
        """The weights that are served; None until a first version is complete."""
        self._assembly: _Assembly | None = None

    @property
    def assembling(self) -> Version | None:
        """The incomplete version, if any; always newer than the visible one."""
        return self._assembly.version if self._assembly is not None else None

    @property
    def newest(self) -> Version | None:
        """The greatest stored version, complete or not, which a stale publisher is told."""
        return self.assembling or (self.visible.version if self.visible is not None else None)

    @property
    def num_bytes(self) -> int:
        """Size of all stored slices."""
        visible = self.visible.num_bytes if self.visible is not None else 0
        return visible + (self._assembly.num_bytes if self._assembly is not None else 0)

    def newer_than(self, have: Version | None) -> Weights | None:
        """Return the visible version if it is newer than ``have``, otherwise None.

        The result is also None for a client that is *ahead*: this server restarted, and its publisher has not published again yet.
        """
        if self.visible is None or (have is not None and have >= self.visible.version):
            return None
        return self.visible

    def publish(self, version: Version, *, index: int, count: int, digest: str, payload: Frame) -> Outcome:
        """Store one slice. A repeated slice has no effect, so a publisher may always send again.

        Raises:
            InvalidSliceError: the slice is out of range, its count or size is not allowed, its contents do not match the digest, or a slice
                with another digest is stored for the same version and index.

        """
        if not (0 < count <= MAX_SLICES and 0 <= index < count and version.lineage >= 0 and version.updates >= 0):
            raise InvalidSliceError("array", f"slice {index} of {count} of version {tuple(version)} is out of range")
        if self.is_ahead(version):
            return Outcome.AHEAD
        if self.visible is not None and version <= self.visible.version:
            return self._repeat(self.visible, version, index=index, count=count, digest=digest)
        assembly = self._assembly
        if assembly is not None and version < assembly.version:
            if count > 1:
                return Outcome.STALE
            # Complete in one slice: it need not wait for a newer version that may never be complete.
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
        # Last, because it reads every byte (about 1 GB/s). A repeated slice is recognised by its digest alone.
        if hashlib.sha256(payload).hexdigest() != digest:
            raise InvalidSliceError("digest", f"slice {index} of version {tuple(version)} does not match its digest")
        return self._hold(assembly, index=index, digest=digest, payload=payload)

    def adopt(self, weights: Weights) -> bool:
        """Store a complete version with verified digests. Returns False, without a change, unless it is newer than the visible one.

        Raises:
            InvalidSliceError: the version is larger than allowed.

        """
        if self.visible is not None and weights.version <= self.visible.version:
            return False
        if weights.num_bytes > self._max_version_bytes:
            raise InvalidSliceError("size", f"version {tuple(weights.version)} exceeds {self._max_version_bytes} bytes")
        self.visible = weights
        if self._assembly is not None and self._assembly.version <= weights.version:
            self._assembly = None
        return True

    def status(self, version: Version, *, index: int, count: int) -> Outcome:
        """Return the result that publishing this slice again would have; reads no contents and changes nothing."""
        visible, assembly = self.visible, self._assembly
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
        """Return whether a version is so far ahead that no learner of this run would publish it."""
        if self.visible is None:
            return version.lineage > MAX_FIRST_LINEAGE or version.updates > UPDATES_LEAD
        held = self.visible.version
        if version.lineage == held.lineage:
            return version.updates > held.updates + UPDATES_LEAD
        return version.lineage > max(COUNTED_LINEAGES, held.lineage + LINEAGE_LEAD) or version.updates > UPDATES_LEAD

    def _hold(self, assembly: _Assembly, *, index: int, digest: str, payload: Frame) -> Outcome:
        assembly.slices[index] = (digest, payload)
        assembly.num_bytes += len(payload)
        if len(assembly.slices) < assembly.count:
            self._assembly = assembly  # the newest wins; an older incomplete version is dropped here
            return Outcome.HELD
        ordered = [assembly.slices[i] for i in range(assembly.count)]
        self.visible = Weights(assembly.version, tuple(digest for digest, _ in ordered), tuple(payload for _, payload in ordered))
        if self._assembly is not None and self._assembly.version <= assembly.version:
            self._assembly = None
        return Outcome.VISIBLE

    @staticmethod
    def _repeat(visible: Weights, version: Version, *, index: int, count: int, digest: str) -> Outcome:
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
            f"slice {index} of version {tuple(version)} exists with other contents; a learner that was restored must open a new lineage",
        )
