from __future__ import annotations

import hashlib

import pytest
from herd_paramserver.replica import Following
from herd_paramserver.store import InvalidSliceError, Version, WeightsStore

from herd.protocols.weights.client import WeightsFrame

PARENT = "tcp://root:7200"


def frame(lineage: int, updates: int, payload: bytes = b"weights") -> WeightsFrame:
    return WeightsFrame(lineage, updates, (memoryview(payload),), (hashlib.sha256(payload).hexdigest(),))


@pytest.fixture
def store() -> WeightsStore[memoryview]:
    return WeightsStore(max_version_bytes=100)


@pytest.fixture
def following(store: WeightsStore[memoryview]) -> Following:
    return Following(store, PARENT, now=100.0)


def test_only_newer_versions_are_taken_from_the_parent(following: Following, store: WeightsStore[memoryview]) -> None:
    assert following.take(frame(1, 500), now=101.0) == Version(1, 500)
    # A parent that restarted with an older or the same version replaces nothing.
    for lineage, updates in ((1, 400), (1, 500), (0, 900)):
        assert following.take(frame(lineage, updates, b"other"), now=102.0) is None
        assert following.version == Version(1, 500)
    assert store.visible is not None
    assert bytes(store.visible.payloads[0]) == b"weights"
    assert following.take(frame(2, 400), now=103.0) == Version(2, 400)  # a new lineage is accepted at once
    assert following.take(frame(2, 401), now=103.0) == Version(2, 401)


def test_oversized_weights_are_refused(following: Following) -> None:
    with pytest.raises(InvalidSliceError):
        following.take(frame(1, 5, bytes(101)), now=101.0)
    assert following.version is None


def test_readiness_says_what_is_served_and_what_the_parent_answers(following: Following) -> None:
    parent = "the parent tcp://root:7200"
    assert following.readiness(103.0) == (False, f"no weights yet; {parent} has not answered for 3.0 s")
    assert following.silent_seconds(103.0) == 3.0  # since the start
    following.not_modified(None, now=104.0)
    assert following.readiness(104.5) == (False, f"no weights yet; {parent} answered 0.5 s ago and has no weights")
    following.refused("another run", now=106.0)
    assert following.readiness(106.0) == (False, f"no weights yet; {parent} refuses this replica: another run")
    assert following.silent_seconds(106.0) == 0.0
    following.take(frame(1, 5), now=107.0)
    following.not_modified(None, now=110.0)  # an empty parent does not clear the weights
    assert following.readiness(111.5) == (
        True,
        f"serves version (1, 5), received 4.5 s ago; {parent} answered 1.5 s ago and has no weights",
    )


def test_with_weights_a_replica_is_ready_whatever_the_parent_answers(following: Following) -> None:
    following.take(frame(3, 7), now=101.0)
    assert following.readiness(3701.0) == (
        True,
        "serves version (3, 7), received 3600.0 s ago; the parent tcp://root:7200 answered 3600.0 s ago",
    )
    following.refused("another contract", now=3702.0)
    assert following.readiness(3702.0)[0]
    assert "refuses this replica: another contract" in following.readiness(3702.0)[1]
    following.not_modified((3, 6), now=3703.0)
    assert "with version (3, 6), which is older and is ignored" in following.readiness(3703.0)[1]
    following.take(frame(4, 0), now=3704.0)
    assert following.readiness(3704.0) == (
        True,
        "serves version (4, 0), received 0.0 s ago; the parent tcp://root:7200 answered 0.0 s ago",
    )
