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
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from herd.protocols.weights.messages import MAX_FIRST_LINEAGE


def _payload(version: Version, index: int) -> bytes:
    return f"{version.lineage}/{version.updates}/{index}".encode() * 3


def _digest(payload: bytes) -> str:
    return hashlib.sha256(payload).hexdigest()


def _publish(store: WeightsStore[bytes], version: Version, index: int, count: int) -> Outcome:
    payload = _payload(version, index)
    return store.publish(version, index=index, count=count, digest=_digest(payload), payload=payload)


def _slices(version: Version) -> int:
    """A fixed number of slices for each version, as if the number of shards changed between lineages."""
    return 1 + (version.lineage + version.updates) % 3


def _whole(version: Version) -> Weights[bytes]:
    payloads = tuple(_payload(version, index) for index in range(_slices(version)))
    return Weights(version, tuple(map(_digest, payloads)), payloads)


versions = st.builds(Version, st.integers(0, 3), st.integers(0, 5))


class StoreMachine(RuleBasedStateMachine):
    """The model records which slices of which version were accepted, and the newest version seen complete."""

    def __init__(self) -> None:
        super().__init__()
        self.store: WeightsStore[bytes] = WeightsStore()
        self.visible: Version | None = None
        self.last_offered: tuple[Version, int] | None = None

    def _before(self) -> tuple[object, ...]:
        return (self.store.visible, self.store.assembling, self.store.newest, self.store.num_bytes)

    @rule(version=versions, data=st.data())
    def publish(self, version: Version, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, _slices(version) - 1))
        newest, before = self.store.newest, self._before()
        outcome = _publish(self.store, version, index, _slices(version))
        self.last_offered = (version, index)
        if outcome is Outcome.VISIBLE:
            assert self.visible is None or version > self.visible
            self.visible = version
        elif outcome is Outcome.STALE:
            assert newest is not None
            assert version < newest
            assert self._before() == before
        else:
            assert version in (self.store.assembling, self.visible)

    @precondition(lambda self: self.last_offered is not None)
    @rule()
    def repeating_the_last_slice_changes_nothing(self) -> None:
        assert self.last_offered is not None
        before = self._before()
        version, index = self.last_offered
        assert _publish(self.store, version, index, _slices(version)) is not Outcome.VISIBLE
        assert self._before() == before

    @rule(version=versions)
    def publish_all_slices_of(self, version: Version) -> None:
        newest = self.store.newest
        outcomes = [_publish(self.store, version, index, _slices(version)) for index in range(_slices(version))]
        if newest is None or version > newest:
            assert outcomes[-1] is Outcome.VISIBLE
            self.visible = version
        elif Outcome.VISIBLE in outcomes:
            assert self.visible is None or version > self.visible
            self.visible = version

    @rule(version=versions)
    def adopt_the_whole_of(self, version: Version) -> None:
        before = self._before()
        if self.store.adopt(_whole(version)):
            assert self.visible is None or version > self.visible
            self.visible = version
        else:
            assert self.visible is not None
            assert version <= self.visible
            assert self._before() == before

    @rule(version=versions, damage=st.sampled_from(["contents", "index", "count", "negative"]))
    def damaged_slices_change_nothing(self, version: Version, damage: str) -> None:
        count, before = _slices(version), self._before()
        payload = _payload(version, 0)
        index, digest = 0, _digest(payload)
        if damage == "contents":
            digest = _digest(b"other")
        elif damage == "index":
            index = count
        elif damage == "count":
            count = 10**9
        else:
            version = Version(-1, 0)
        newest = self.store.newest
        is_late = damage == "contents" and newest is not None and version < newest and version != self.visible
        if is_late and (count > 1 or (self.visible is not None and version < self.visible)):
            assert self.store.publish(version, index=index, count=count, digest=digest, payload=payload) is Outcome.STALE
        else:
            with pytest.raises(InvalidSliceError) as caught:
                self.store.publish(version, index=index, count=count, digest=digest, payload=payload)
            assert caught.value.reason in ({"digest", "unexpected"} if damage == "contents" else {"array"})
        assert self._before() == before

    @rule(version=versions, data=st.data())
    def the_status_of_a_slice_foretells_its_outcome(self, version: Version, data: st.DataObject) -> None:
        index, before = data.draw(st.integers(0, _slices(version) - 1)), self._before()
        status = self.store.status(version, index=index, count=_slices(version))
        assert self._before() == before
        if status is Outcome.WANTED:
            self.publish_one(version, index, expected={Outcome.HELD, Outcome.VISIBLE})
            assert self._before() != before
        else:
            self.publish_one(version, index, expected={status})
            assert self._before() == before

    def publish_one(self, version: Version, index: int, expected: set[Outcome]) -> None:
        outcome = _publish(self.store, version, index, _slices(version))
        assert outcome in expected
        if outcome is Outcome.VISIBLE:
            self.visible = version

    @rule(have=st.none() | versions)
    def a_client_is_given_only_newer_weights(self, have: Version | None) -> None:
        weights = self.store.newer_than(have)
        if weights is None:
            assert self.visible is None or (have is not None and have >= self.visible)
        else:
            assert weights.version == self.visible
            assert have is None or weights.version > have

    @invariant()
    def visible_is_the_newest_complete_version_whole_and_in_order(self) -> None:
        weights = self.store.visible
        assert (weights.version if weights else None) == self.visible
        if weights is not None:
            expected = tuple(_payload(weights.version, index) for index in range(_slices(weights.version)))
            assert weights.payloads == expected
            assert weights.digests == tuple(_digest(payload) for payload in expected)

    @invariant()
    def at_most_one_incomplete_version_is_held_and_it_is_newer(self) -> None:
        assembling, visible = self.store.assembling, self.store.visible
        assert assembling is None or visible is None or assembling > visible.version
        assert self.store.num_bytes <= 2 * 3 * len(_payload(Version(0, 0), 0))


StoreMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
TestStoreMachine = StoreMachine.TestCase


def test_an_incomplete_version_does_not_block_complete_ones() -> None:
    store: WeightsStore[bytes] = WeightsStore()
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
    store: WeightsStore[bytes] = WeightsStore()
    if held is not None:
        _publish(store, held, 0, 1)
    before = (store.newest, store.num_bytes)
    assert store.status(ahead, index=0, count=count) is Outcome.AHEAD
    assert _publish(store, ahead, 0, count) is Outcome.AHEAD
    assert (store.newest, store.num_bytes) == before
    assert _publish(store, taken, 0, count) is (Outcome.VISIBLE if count == 1 else Outcome.HELD)


def test_a_version_cannot_be_published_with_two_contents() -> None:
    store: WeightsStore[bytes] = WeightsStore()
    _publish(store, Version(1, 1), 0, 1)
    with pytest.raises(InvalidSliceError, match="must open a new lineage") as caught:
        store.publish(Version(1, 1), index=0, count=1, digest=_digest(b"other"), payload=b"other")
    assert caught.value.reason == "unexpected"
    with pytest.raises(InvalidSliceError, match="has 1 slices, not 2"):
        store.publish(Version(1, 1), index=1, count=2, digest=_digest(b"other"), payload=b"other")


def test_a_version_is_bounded_in_bytes() -> None:
    store: WeightsStore[bytes] = WeightsStore(max_version_bytes=10)
    store.publish(Version(1, 1), index=0, count=2, digest=_digest(b"x" * 8), payload=b"x" * 8)
    with pytest.raises(InvalidSliceError) as caught:
        store.publish(Version(1, 1), index=1, count=2, digest=_digest(b"y" * 3), payload=b"y" * 3)
    assert caught.value.reason == "size"
    with pytest.raises(InvalidSliceError, match="exceeds 10 bytes"):
        store.adopt(Weights(Version(1, 2), ("", ""), (b"x" * 8, b"y" * 3)))
    assert (store.visible, store.num_bytes) == (None, 8)
