from __future__ import annotations

import hashlib

import pytest
from herd_paramserver.store import (
    COUNTED_LINEAGES,
    LINEAGE_LEAD,
    UPDATES_LEAD,
    InvalidSliceError,
    Outcome,
    Version,
    Weights,
    WeightsStore,
)

from herd.protocols.weights.messages import MAX_FIRST_LINEAGE


def _payload(version: Version, index: int) -> bytes:
    return f"{version.lineage}/{version.updates}/{index}".encode() * 3


def _digest(payload: bytes) -> str:
    return hashlib.sha256(payload).hexdigest()


def _publish(store: WeightsStore, version: Version, index: int, count: int) -> Outcome:
    payload = _payload(version, index)
    return store.publish(version, index=index, count=count, digest=_digest(payload), payload=payload)


def test_an_incomplete_version_does_not_block_complete_ones() -> None:
    store = WeightsStore()
    _publish(store, Version(9, 9), 0, 2)
    assert _publish(store, Version(1, 1), 0, 1) is Outcome.VISIBLE
    assert _publish(store, Version(1, 2), 0, 1) is Outcome.VISIBLE
    assert store.assembling == Version(9, 9)
    assert _publish(store, Version(9, 9), 1, 2) is Outcome.VISIBLE


@pytest.mark.parametrize(
    ("held", "taken", "ahead"),
    [
        (None, Version(MAX_FIRST_LINEAGE, 0), Version(MAX_FIRST_LINEAGE + 1, 0)),
        (None, Version(1, UPDATES_LEAD), Version(1, UPDATES_LEAD + 1)),
        (Version(3, 7), Version(3, 7 + UPDATES_LEAD), Version(3, 8 + UPDATES_LEAD)),
        (Version(3, 7), Version(4, UPDATES_LEAD), Version(4, UPDATES_LEAD + 1)),
        (Version(3, 7), Version(COUNTED_LINEAGES, 0), Version(COUNTED_LINEAGES + 1, 0)),
        (Version(2**60, 7), Version(2**60 + LINEAGE_LEAD, 0), Version(2**60 + LINEAGE_LEAD + 1, 0)),
    ],
)
@pytest.mark.parametrize("count", [1, 2])
def test_versions_too_far_ahead_are_refused(held: Version | None, taken: Version, ahead: Version, count: int) -> None:
    store = WeightsStore()
    if held is not None:
        _publish(store, held, 0, 1)
    before = (store.newest, store.num_bytes)
    assert store.status(ahead, index=0, count=count) is Outcome.AHEAD
    assert _publish(store, ahead, 0, count) is Outcome.AHEAD
    assert (store.newest, store.num_bytes) == before
    assert _publish(store, taken, 0, count) is (Outcome.VISIBLE if count == 1 else Outcome.HELD)


def test_a_version_cannot_be_published_with_two_contents() -> None:
    store = WeightsStore()
    _publish(store, Version(1, 1), 0, 1)
    with pytest.raises(InvalidSliceError, match="must open a new lineage") as caught:
        store.publish(Version(1, 1), index=0, count=1, digest=_digest(b"other"), payload=b"other")
    assert caught.value.reason == "unexpected"
    with pytest.raises(InvalidSliceError, match="has 1 slices, not 2"):
        store.publish(Version(1, 1), index=1, count=2, digest=_digest(b"other"), payload=b"other")


def test_a_version_is_bounded_in_bytes() -> None:
    store = WeightsStore(max_version_bytes=10)
    store.publish(Version(1, 1), index=0, count=2, digest=_digest(b"x" * 8), payload=b"x" * 8)
    with pytest.raises(InvalidSliceError) as caught:
        store.publish(Version(1, 1), index=1, count=2, digest=_digest(b"y" * 3), payload=b"y" * 3)
    assert caught.value.reason == "size"
    with pytest.raises(InvalidSliceError, match="exceeds 10 bytes"):
        store.adopt(Weights(Version(1, 2), ("", ""), (b"x" * 8, b"y" * 3)))
    assert (store.visible, store.num_bytes) == (None, 8)
