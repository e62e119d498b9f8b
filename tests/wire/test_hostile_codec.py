"""Any bytes decode to a valid message, or raise MalformedMessage with a line that can be logged; nothing else happens."""

from __future__ import annotations

import tracemalloc

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from herd.protocols.bandit.messages import BANDIT, MAX_GAMES, ExchangeTemperatures, StartingEpisode
from herd.protocols.unrolls.messages import MAX_EPISODES, UNROLLS, EpisodeReport, Unrolls
from herd.protocols.weights.messages import MAX_SLICES, WEIGHTS, Weights
from herd.rpc.codec import MalformedMessage, encode, printable
from herd.rpc.envelope import MAX_HEADER_BYTES


@pytest.mark.parametrize(
    "header",
    [
        b"\xc7\x00\x05",  # an extension without contents
        b"\xc7\x00\xff",  # a timestamp without contents
        b"\xd6\xff\x00\x00\x00\x00",
        b"\x81\xa4type\xc7\x00\x05",
        b"\x81\xc4\x00\xa7goodbye",  # bytes as a key
        b"\x81\x90\xc0",  # a list as a key
        b"\x82\xa4type\xa7goodbye\xa4type\xa7goodbye\xff",  # trailing bytes
        b"\xdc\x10\x00" * 1000,  # nested lists, each of which announces 4,096 elements
        b"\x81\xa0" * 2000,  # nested maps
        b"\xa4\xff\xfe\xfd\xfc",  # invalid UTF-8
        b"\xa3\xed\xa0\x80",  # half of a surrogate pair
        b"",
    ],
)
def test_unusual_messagepack_values_are_malformed(header: bytes) -> None:
    with pytest.raises(MalformedMessage):
        UNROLLS.decode(header)


@pytest.mark.parametrize("unit", [b"\x80", b"\x90", b"\x81\xa0\x80", b"\xa1x", b"\xcb" + bytes(8)])
def test_decoding_memory_is_a_bounded_multiple_of_the_header_size(unit: bytes) -> None:
    """Small values cost the most: an empty map is one byte on the wire and 64 in memory; a map with one entry, 3 and 60."""
    rows = [b"\xdc\x10\x00" + unit * 4096] * (MAX_HEADER_BYTES // (3 + 4096 * len(unit)))
    header = b"\x81\xa4type\xdc" + len(rows).to_bytes(2, "big") + b"".join(rows)
    tracemalloc.start()
    try:
        with pytest.raises(MalformedMessage):
            UNROLLS.decode(header)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100 * MAX_HEADER_BYTES


@pytest.mark.parametrize("announced", [109, 600, 4096])
@pytest.mark.parametrize("num_lists", [1000, 6000])
def test_lists_that_announce_missing_elements_allocate_no_memory(announced: int, num_lists: int) -> None:
    """Nested lists of three bytes each: allocating what they announce would cost 30 MB and 20 ms for 3 kB."""
    header = (b"\xdc" + announced.to_bytes(2, "big")) * num_lists
    tracemalloc.start()
    try:
        with pytest.raises(MalformedMessage):
            UNROLLS.decode(header)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 400 * len(header)


def test_the_longest_lists_of_the_shortest_elements_are_decoded() -> None:
    starting = tuple(StartingEpisode(task_id=0, environment_slot=0, episode_id=0) for _ in range(MAX_GAMES))
    exchange = ExchangeTemperatures(purpose="training", finished=(), starting=starting)
    weights = Weights(lineage=0, updates=0, digests=("0" * 64,) * MAX_SLICES)
    report = EpisodeReport(task_id=0, environment_slot=0, episode_id=0, episode_return=0.0, agent_steps=0)
    reports = Unrolls(sequence=1, generated_frames=0, num_frames=0, num_unrolls=1, episodes=(report,) * MAX_EPISODES)
    for conversation, message in ((BANDIT, exchange), (UNROLLS, reports), (WEIGHTS, weights)):
        assert conversation.decode(encode(message)[0]) == message


@pytest.mark.parametrize("words", ["\x1b[2Jgone", "a line\nand another that was never logged", "\u202etxt.exe", "\x9b31m", "\0"])
def test_error_reasons_contain_no_control_characters(words: str) -> None:
    for header in ({"type": words}, {"type": words, "version": 3}, {"type": "unrolls", "version": 3, words: 1}):
        with pytest.raises(MalformedMessage) as caught:
            UNROLLS.decode(msgpack.packb(header))
        assert str(caught.value) == caught.value.reason
        assert caught.value.reason.isprintable()


@given(text=st.text(max_size=300), limit=st.integers(0, 200))
def test_printable_is_bounded_and_leaves_printable_ascii_unchanged(text: str, limit: int) -> None:
    shown = printable(text, limit)
    assert len(shown) <= limit
    assert shown.isprintable()
    if text.isascii() and text.isprintable():
        assert shown == text[:limit]
