from __future__ import annotations

import math
import tracemalloc
from typing import Any

import lz4.block
import msgpack
import numpy as np
import pytest
import zstandard
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from benchmarks.fuzz.targets import fuzz_header
from herd.contract.spaces import NO_FRAMES, discrete
from herd.contract.unroll import DTYPES, Array, Arrays, FieldSpec, UnrollLayout
from herd.protocols.bandit.messages import BANDIT, MAX_GAMES, ExchangeTemperatures, StartingEpisode
from herd.protocols.unrolls.arrays import pack_arrays, receive_arrays
from herd.protocols.unrolls.messages import MAX_EPISODES, UNROLLS, Compression, Credit, EpisodeReport, Unrolls
from herd.protocols.weights.messages import MAX_SLICES, WEIGHTS, Weights
from herd.rpc.codec import MalformedMessage, OtherProtocol, encode, printable
from herd.rpc.envelope import MAX_HEADER_BYTES, PROTOCOL_VERSION
from herd.transport import Frame

LAYOUT = UnrollLayout(4, 3, (40, 20, 1), discrete(3), 3, state_size=10, vector_size=6, instruction_length=2, num_tasks=4, num_words=50)
U = 3
COMPRESSIONS: tuple[Compression, ...] = ("none", "lz4", "zstd")


def filled(num_unrolls: int = U, seed: int = 0) -> dict[str, Array]:
    """Arrays with random contents within range."""
    random = np.random.default_rng(seed)
    arrays = LAYOUT.allocate(num_unrolls)
    for field in LAYOUT.fields:
        array = arrays[field.name]
        if field.dtype.kind == "f":
            array[...] = random.normal(size=array.shape)
        elif field.dtype.kind == "b":
            array[...] = random.random(array.shape) < 0.5
        elif field.name.endswith("frames"):  # sparse, so that it compresses
            array[...] = random.integers(0, 255, array.shape) * (random.random(array.shape) < 0.05)
        else:
            high = 100 if field.maximum is None else field.maximum
            array[...] = random.integers(np.array(field.minimum or 0), np.array(high) + 1, array.shape)
    return arrays


def header(num_unrolls: int = U) -> Unrolls:
    episode = EpisodeReport(task_id=1, environment_slot=2, episode_id=3, episode_return=-4.5, agent_steps=5)
    return Unrolls(sequence=7, generated_frames=480, num_frames=48, num_unrolls=num_unrolls, episodes=(episode,))


def packed(arrays: Arrays, compression: Compression = "none") -> list[Frame]:
    """Payload frames as they arrive."""
    return [bytes(frame) for frame in pack_arrays(arrays, compression)]


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_arrays_survive_an_encode_decode_round_trip(compression: Compression) -> None:
    arrays = filled()
    frames = packed(arrays, compression)
    received = receive_arrays(frames, U, LAYOUT, compression)
    for name, array in arrays.items():
        np.testing.assert_array_equal(received[name], array, strict=True)
    if compression != "none":
        assert sum(map(len, frames)) < sum(array.nbytes for array in arrays.values()) / 2


def test_contiguous_arrays_are_not_copied() -> None:
    arrays = filled()
    frames = pack_arrays(arrays)
    arrays["frames"][...] = 9
    assert set(bytes(frames[list(arrays).index("frames")])) == {9}


@st.composite
def arrays_of_any_layout(draw: st.DrawFn) -> Array:
    """Arrays of every dtype on the wire: 0-d, empty, strided, reversed and transposed."""
    dtype = DTYPES[draw(st.sampled_from(sorted(DTYPES)))]
    shape = draw(st_numpy.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5))
    array: Array = draw(
        st_numpy.arrays(dtype, shape, elements={"allow_nan": False, "allow_infinity": False} if dtype.kind == "f" else None)
    )
    for axis in range(array.ndim):
        step = draw(st.sampled_from([1, 2, -1]))
        array = array[(slice(None),) * axis + (slice(None, None, step),)]
    return array.T if draw(st.booleans()) else array


@given(array=arrays_of_any_layout(), compression=st.sampled_from(COMPRESSIONS))
def test_any_array_survives_packing(array: Array, compression: Compression) -> None:
    [frame] = packed({"x": array}, compression)
    assert bytes(frame) == array.tobytes()  # all of them are too small to be compressed


def test_the_largest_header_fits_the_limit() -> None:
    huge = 2**63 - 1
    episode = EpisodeReport(task_id=huge, environment_slot=huge, episode_id=huge, episode_return=1.5, agent_steps=huge)
    (head,) = encode(header().model_copy(update={"episodes": (episode,) * MAX_EPISODES}))
    assert len(head) <= MAX_HEADER_BYTES / 2  # the table in docs/messaging.md states this
    message = UNROLLS.decode(head)
    assert isinstance(message, Unrolls)
    assert len(message.episodes) == MAX_EPISODES


def changed(**changes: Any) -> bytes:
    """A valid header with these changes; ... leaves a field out."""
    fields: dict[str, Any] = {**header().header(), **changes}
    frame: bytes = msgpack.packb({key: value for key, value in fields.items() if value is not ...})
    return frame


def test_an_unknown_field_is_ignored_unless_the_message_has_a_payload() -> None:
    credit = Credit(granted_unrolls=9)
    assert UNROLLS.decode(msgpack.packb({**credit.header(), "surprise": [1, {"a": 2}]})) == credit
    with pytest.raises(MalformedMessage, match="surprise"):
        UNROLLS.decode(changed(surprise=1))


@pytest.mark.parametrize(("version", "number"), [(1, 0), (2, 7), (4, 7), (2**62, 0)])
def test_other_versions_are_told_apart_from_malformed_headers(version: int, number: int) -> None:
    old = {"type": "hello", "protocol": version, "request_id": number} if version < 3 else {"type": "new", "version": version, "id": number}
    with pytest.raises(OtherProtocol, match=f"of protocol version {version}, and this process speaks version 3: run the same") as caught:
        UNROLLS.decode(msgpack.packb(old))
    assert caught.value.id == number
    # The headers of version 2 that had no version at all.
    with pytest.raises(OtherProtocol, match="version 2"):
        UNROLLS.decode(msgpack.packb({"type": "credit_request", "wanted_unrolls": 3}))


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (b"", "MessagePack"),
        (b"\xc1", "MessagePack"),
        (b"\x80", "type"),
        (b"\x01", "map"),
        (b"\xff" * 10, "MessagePack"),
        (b"\x91" * 10_000, "MessagePack"),  # nesting
        (b"\xdd\xff\xff\xff\xff", "MessagePack"),  # an array of 4 G elements
        (b"\xdb\xff\xff\xff\xff", "MessagePack"),  # text of 4 GB
        (b"\xc4\x01a", "MessagePack"),  # binary data, which no header contains
        (b"\xd4\x05a", "MessagePack"),  # an extension type
        (msgpack.packb({1: 2}), "MessagePack"),
        (msgpack.packb({"type": "get_weights", "version": 3}), "not a message to or from a learner"),
        (msgpack.packb({"type": ["ack"]}), "type"),
        (b"\x00" * (MAX_HEADER_BYTES + 1), "exceeds"),
        (changed(sequence=True), "sequence"),
        (changed(sequence=7.0), "sequence"),
        (changed(sequence=2**63), "sequence"),
        (changed(version="3"), "version"),
        (changed(episodes=[{"task_id": 0}]), "episodes"),
        (changed(episodes=[{**header().episodes[0].model_dump(), "episode_return": math.nan}]), "episode_return"),
        (changed(episodes=[{**header().episodes[0].model_dump(), "episode_return": math.inf}]), "episode_return"),
    ],
)
def test_a_malformed_header_error_states_the_reason(frame: bytes, reason: str) -> None:
    with pytest.raises(MalformedMessage, match=reason) as caught:
        UNROLLS.decode(frame)
    assert len(caught.value.reason) <= 200


LAST = len(LAYOUT.fields) - 1


@pytest.mark.parametrize("index", [0, 1, LAST])
@pytest.mark.parametrize("fault", ["short", "long", "missing", "extra", "lz4", "zstd", "unrolls"])
def test_frames_that_do_not_match_the_layout_are_malformed(index: int, fault: Any) -> None:
    frames, num_unrolls = packed(filled()), U
    compression: Compression = "none"
    match fault:
        case "short":
            frames[index] = frames[index][:-1]
        case "long":
            frames[index] = bytes(frames[index]) + b"\0"
        case "missing":
            del frames[index]
        case "extra":
            frames.insert(index, b"")
        case "unrolls":
            num_unrolls -= 1
        case _:
            frames[index], compression = frames[index][:-1], fault
    with pytest.raises(MalformedMessage):
        receive_arrays(frames, num_unrolls, LAYOUT, compression)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("actions", 3),
        ("actions", -1),
        ("last_action", -2),
        ("last_action", 3),
        ("task_id", 4),
        ("task_id", -1),
        ("instructions", 50),
        ("instructions", -1),
        ("policy_version", -1),
        ("episode_id", 2**63 - 1),  # receivers add to it
        ("rewards", math.nan),
        ("behaviour_parameters", math.inf),
        ("initial_core_state", -math.inf),
        ("game_reset", 2),
    ],
)
def test_values_out_of_range_are_malformed(name: str, value: float) -> None:
    arrays = filled()
    target = arrays[name].view(np.uint8) if arrays[name].dtype.kind == "b" else arrays[name]
    target[(-1,) * target.ndim] = value
    with pytest.raises(MalformedMessage, match=name):
        receive_arrays(packed(arrays), U, LAYOUT)


INTEGERS = [field for field in LAYOUT.fields if field.dtype.kind == "i"]


@given(data=st.data())
def test_integer_ranges_include_their_minimum_and_maximum(data: st.DataObject) -> None:
    """One element is at an edge of its range or of its dtype; Python's integers decide whether it is within."""
    field = data.draw(st.sampled_from(INTEGERS))
    of_dtype = np.iinfo(field.dtype)
    low = int(of_dtype.min) if field.minimum is None else int(np.min(field.minimum))
    high = int(of_dtype.max) if field.maximum is None else int(np.max(field.maximum))
    edges = {of_dtype.min, of_dtype.min + 1, low - 1, low, low + 1, high - 1, high, high + 1, of_dtype.max}
    value = data.draw(st.sampled_from(sorted(edge for edge in map(int, edges) if of_dtype.min <= edge <= of_dtype.max)))
    arrays = filled()
    array = arrays[field.name].reshape(-1)
    array[data.draw(st.integers(0, array.size - 1))] = value
    frames = packed(arrays)
    if low <= value <= high:
        receive_arrays(frames, U, LAYOUT)
    else:
        with pytest.raises(MalformedMessage, match=f"array {field.name} contains"):
            receive_arrays(frames, U, LAYOUT)


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_receive_arrays_copies_all_but_large_pixel_frames(compression: Compression) -> None:
    layout = UnrollLayout(10, 2, (84, 84, 1), discrete(3), 3)  # frames of 77,616 bytes and a history of 7,056
    arrays = layout.allocate(1)
    arrays["frames"][...] = np.arange(11)[:, None, None, None]
    arrays["rewards"][...] = np.arange(10)
    frames = [bytearray(frame) for frame in pack_arrays(arrays, compression)]
    received = receive_arrays([memoryview(frame) for frame in frames], 1, layout, compression)
    came = dict(zip(arrays, frames, strict=True))
    if compression == "none":
        assert np.shares_memory(received["frames"], np.frombuffer(came["frames"], np.uint8))
    for name in arrays.keys() - {"frames"}:
        came[name][:] = bytes(len(came[name]))
    for name, array in arrays.items():
        np.testing.assert_array_equal(received[name], array, strict=True)
        assert received[name].flags.aligned


def bombs(expected: int) -> list[tuple[Compression, bytes]]:
    """Frames that expand to 64 MiB where ``expected`` bytes were announced, also with forged or missing content sizes."""
    huge = bytes(64 << 20)
    sizeless = zstandard.ZstdCompressor(write_content_size=False).compress(huge)
    parameters = zstandard.ZstdCompressor(level=1).compress(huge)
    good = zstandard.ZstdCompressor(level=1).compress(bytes(expected))
    return [
        ("lz4", lz4.block.compress(huge, store_size=False)),
        ("zstd", parameters),
        ("zstd", sizeless),
        ("zstd", good + parameters),  # a second frame after the right one
    ]


@pytest.mark.parametrize("which", range(4))
def test_a_decompression_bomb_allocates_no_memory(which: int) -> None:
    index = 1
    field: FieldSpec = LAYOUT.fields[index]
    compression, bomb = bombs(U * field.bytes_per_unroll)[which]
    frames = packed(filled())
    frames[index] = bomb[: U * field.bytes_per_unroll - 1]  # longer frames are not even decompressed
    tracemalloc.start()
    try:
        with pytest.raises(MalformedMessage, match=field.name):
            receive_arrays(frames, U, LAYOUT, compression)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20


# -- any bytes decode to a valid message, or raise MalformedMessage with a line that can be logged


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


def peak_of_refusing(header: bytes) -> int:
    """Return the most bytes that are allocated until a header is refused as malformed."""
    tracemalloc.start()
    try:
        with pytest.raises(MalformedMessage):
            UNROLLS.decode(header)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("unit", [b"\x80", b"\x90", b"\x81\xa0\x80", b"\xa1x", b"\xcb" + bytes(8)])
def test_decoding_memory_is_a_bounded_multiple_of_the_header_size(unit: bytes) -> None:
    """Small values cost the most: an empty map is one byte on the wire and 64 in memory; a map with one entry, 3 and 60."""
    rows = [b"\xdc\x10\x00" + unit * 4096] * (MAX_HEADER_BYTES // (3 + 4096 * len(unit)))
    header = b"\x81\xa4type\xdc" + len(rows).to_bytes(2, "big") + b"".join(rows)
    assert peak_of_refusing(header) < 100 * MAX_HEADER_BYTES


@pytest.mark.parametrize("announced", [109, 600, 4096])
@pytest.mark.parametrize("num_lists", [1000, 6000])
def test_lists_that_announce_missing_elements_allocate_no_memory(announced: int, num_lists: int) -> None:
    """Nested lists of three bytes each: allocating what they announce would cost 30 MB and 20 ms for 3 kB."""
    header = (b"\xdc" + announced.to_bytes(2, "big")) * num_lists
    assert peak_of_refusing(header) < 400 * len(header)


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


# -- layouts


ATARI = UnrollLayout(unroll_length=20, frame_stack=4, frame_shape=(84, 84, 1), actions=discrete(6), num_parameters=6)
EVERYTHING = UnrollLayout(3, 2, (5, 4, 1), discrete(3), 3, state_size=16, vector_size=6, instruction_length=2, num_tasks=2, num_words=10)


def test_fields_match_the_protocol_in_order() -> None:
    assert [(field.name, field.dtype.str, field.shape) for field in EVERYTHING.fields] == [
        ("history_frames", "|u1", (1, 5, 4, 1)),
        ("frames", "|u1", (4, 5, 4, 1)),
        ("observations", "<f4", (4, 6)),
        ("game_reset", "|b1", (4,)),
        ("core_reset", "|b1", (4,)),
        ("actions", "<i4", (3,)),
        ("rewards", "<f4", (3,)),
        ("terminated", "|b1", (3,)),
        ("truncated", "|b1", (3,)),
        ("row_valid", "|b1", (3,)),
        ("behaviour_parameters", "<f4", (3, 3)),
        ("inverse_temperature", "<f4", (3,)),
        ("policy_version", "<i8", (2, 2)),
        ("initial_core_state", "<f4", (16,)),
        ("last_action", "<i4", ()),
        ("last_reward", "<f4", ()),
        ("instructions", "<i2", (4, 2)),
        ("environment_slot", "<i4", ()),
        ("task_id", "<i4", ()),
        ("episode_id", "<i8", ()),
        ("index_in_episode", "<i4", ()),
    ]


def test_fields_without_elements_are_not_sent() -> None:
    plain = UnrollLayout(unroll_length=3, frame_stack=1, frame_shape=(5, 4, 1), actions=discrete(3), num_parameters=3)
    absent = {field.name for field in EVERYTHING.fields} - {field.name for field in plain.fields}
    assert absent == {"history_frames", "observations", "initial_core_state", "instructions"}
    vectors = UnrollLayout(unroll_length=3, frame_stack=1, frame_shape=NO_FRAMES, actions=discrete(3), num_parameters=3, vector_size=2)
    assert {field.name for field in plain.fields} ^ {field.name for field in vectors.fields} == {"frames", "observations"}


def test_allocated_arrays_have_the_announced_sizes() -> None:
    arrays = ATARI.allocate(7)
    assert list(arrays) == [field.name for field in ATARI.fields]
    assert sum(array.nbytes for array in arrays.values()) == 7 * ATARI.bytes_per_unroll
    assert max(array.nbytes for array in arrays.values()) == ATARI.max_frame_bytes(7) == 7 * 21 * 84 * 84
    assert all(array.dtype.str in DTYPES and not np.any(array) for array in arrays.values())


KEYS = st.one_of(
    st.sampled_from(["type", "sequence", "arrays", "episodes", "have", "digests", "run", "id", "version"]),
    st.text(max_size=8),
    st.binary(max_size=4),
    st.integers(),
    st.none(),
)
ANYTHING = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**63), 2**64 - 1),
        st.floats(),
        st.text(max_size=20),
        st.binary(max_size=5),
        st.builds(msgpack.ExtType, st.integers(0, 127), st.binary(max_size=4)),
        st.builds(msgpack.Timestamp, st.integers(0, 2**34 - 1)),
    ),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=12,
)


@settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow])
@given(header=st.dictionaries(KEYS, ANYTHING, max_size=6), kind=st.sampled_from(["goodbye", "hello", "unrolls", "credit_request"]))
@example(header={b"type": "goodbye"}, kind="goodbye")
@example(header={None: 1}, kind="goodbye")
def test_every_map_decodes_or_is_malformed(header: dict[object, object], kind: str) -> None:
    for candidate in (header, {**header, "type": kind, "version": PROTOCOL_VERSION}):
        try:
            packed = msgpack.packb(candidate)
        except (OverflowError, ValueError):  # the value needs more than 64 bits
            return
        fuzz_header(packed)
