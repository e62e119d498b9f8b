from __future__ import annotations

import math
import tracemalloc
from typing import Any
from unittest.mock import patch

import lz4.block
import msgpack
import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from herd.contract.actions import discrete
from herd.contract.unroll import DTYPES, Array, FieldSpec, UnrollLayout
from herd.protocols.unrolls.arrays import encode_arrays, read_arrays, receive_arrays
from herd.protocols.unrolls.messages import MAX_EPISODES, EpisodeReport, Unrolls, Welcome
from herd.rpc import codec
from herd.rpc.codec import MalformedMessage, decode_header, encode, payload_digest
from herd.rpc.envelope import MAX_HEADER_BYTES, ArrayHeader, Compression
from herd.transport import Frame
from tests.wire.hostile_bytes import EDITS, edited

LAYOUT = UnrollLayout(4, 3, (40, 20, 1), discrete(3), 3, state_size=10, vector_size=6, instruction_length=2, num_tasks=4, num_words=50)
U = 3
COMPRESSIONS: tuple[Compression, ...] = ("none", "lz4", "zstd")
POISON = 113


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


def as_received(frames: list[Frame]) -> list[Frame]:
    return [bytes(frame) for frame in frames]


def poisoned(num_unrolls: int = U) -> dict[str, Array]:
    out = LAYOUT.allocate(num_unrolls)
    for array in out.values():
        array.view(np.uint8)[...] = POISON if array.dtype.kind != "b" else 1
    return out


def assert_untouched(out: dict[str, Array]) -> None:
    expected = poisoned()
    for name, array in out.items():
        assert array.tobytes() == expected[name].tobytes(), name


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_unrolls_survive_an_encode_decode_round_trip(compression: Compression) -> None:
    arrays = filled()
    frames = as_received(encode_arrays(header(), arrays, compression))
    message = decode_header(frames[0])
    assert isinstance(message, Unrolls)
    assert message.model_copy(update={"arrays": ()}) == header()
    assert {array.compression for array in message.arrays} == {"none", compression}
    out = LAYOUT.allocate(U)
    read_arrays(message, frames[1:], LAYOUT, out)
    for name, array in arrays.items():
        np.testing.assert_array_equal(out[name], array, strict=True)
    if compression != "none":
        assert sum(map(len, frames)) < sum(array.nbytes for array in arrays.values()) / 2


def test_arrays_are_written_only_into_the_given_slices() -> None:
    pool = {name: array.view() for name, array in LAYOUT.allocate(10).items()}
    arrays = filled()
    frames = as_received(encode_arrays(header(), arrays))
    message = decode_header(frames[0])
    assert isinstance(message, Unrolls)
    read_arrays(message, frames[1:], LAYOUT, {name: array[2:8:2] for name, array in pool.items()})
    for name, array in arrays.items():
        np.testing.assert_array_equal(pool[name][2:8:2], array, strict=True)
        others = np.delete(pool[name], [2, 4, 6], axis=0)
        assert not np.any(others)


def test_contiguous_arrays_are_not_copied() -> None:
    arrays = filled()
    frames = encode_arrays(header(), arrays)
    arrays["frames"][...] = 9
    position = 1 + list(arrays).index("frames")
    assert set(bytes(frames[position])) == {9}


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
def test_any_array_survives_an_encode_decode_round_trip(array: Array, compression: Compression) -> None:
    [head, payload] = as_received(encode_arrays(header(1), {"x": array}, compression))
    message = decode_header(head)
    assert isinstance(message, Unrolls)
    assert message.arrays[0].shape == array.shape
    back = np.frombuffer(payload, message.arrays[0].dtype).reshape(message.arrays[0].shape)
    assert back.dtype == array.dtype
    assert back.tobytes() == array.tobytes()


def test_encode_refuses_unsupported_dtypes() -> None:
    with pytest.raises(TypeError, match="complex128"):
        encode_arrays(header(), {"x": np.zeros(2, np.complex128)})


def test_the_largest_header_fits_the_limit() -> None:
    huge = 2**63 - 1
    episode = EpisodeReport(task_id=huge, environment_slot=huge, episode_id=huge, episode_return=1.5, agent_steps=huge)
    frames = encode_arrays(header().model_copy(update={"episodes": (episode,) * MAX_EPISODES}), filled())
    assert len(frames[0]) <= MAX_HEADER_BYTES / 2  # the table in docs/messaging.md states this
    message = decode_header(frames[0])
    assert isinstance(message, Unrolls)
    assert len(message.episodes) == MAX_EPISODES


def changed(changes: dict[str, Any]) -> bytes:
    fields = {**header().model_dump(), "arrays": (), **changes}
    packed: bytes = msgpack.packb({key: value for key, value in fields.items() if value is not ...})
    return packed


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
        (msgpack.packb({"type": "hell"}), "type"),
        (msgpack.packb({"type": ["ack"]}), "type"),
        (b"\x00" * (MAX_HEADER_BYTES + 1), "exceeds"),
        (changed({"sequence": 0}), "sequence"),
        (changed({"sequence": "7"}), "sequence"),
        (changed({"sequence": True}), "sequence"),
        (changed({"sequence": 7.0}), "sequence"),
        (changed({"sequence": 2**63}), "sequence"),
        (changed({"sequence": ...}), "sequence"),
        (changed({"num_unrolls": 65_537}), "num_unrolls"),
        (changed({"surprise": 1}), "surprise"),
        (changed({"episodes": [{"task_id": 0}]}), "episodes"),
        (changed({"episodes": [{**header().episodes[0].model_dump(), "episode_return": math.nan}]}), "episode_return"),
        (changed({"episodes": [{**header().episodes[0].model_dump(), "episode_return": math.inf}]}), "episode_return"),
        (changed({"arrays": [{"name": "x", "dtype": "|u1", "shape": [1], "compression": "none"}] * 33}), "arrays"),
        (changed({"arrays": [{"name": "x", "dtype": "|O", "shape": [1], "compression": "none"}]}), "dtype"),
        (changed({"arrays": [{"name": "x", "dtype": "|u1", "shape": [-1], "compression": "none"}]}), "shape"),
        (changed({"arrays": [{"name": "x", "dtype": "|u1", "shape": [1] * 9, "compression": "none"}]}), "shape"),
        (changed({"arrays": [{"name": "x", "dtype": "|u1", "shape": [1], "compression": "pickle"}]}), "compression"),
    ],
)
def test_a_malformed_header_error_states_the_reason(frame: bytes, reason: str) -> None:
    with pytest.raises(MalformedMessage, match=reason) as caught:
        decode_header(frame)
    assert len(caught.value.reason) <= 200


def bend(index: int, **changes: object) -> tuple[Unrolls, list[Frame]]:
    """A valid message with one array header changed."""
    frames = as_received(encode_arrays(header(), filled()))
    message = decode_header(frames[0])
    assert isinstance(message, Unrolls)
    arrays = list(message.arrays)
    arrays[index] = arrays[index].model_copy(update=changes)
    return message.model_copy(update={"arrays": tuple(arrays)}), frames[1:]


LAST = len(LAYOUT.fields) - 1


@pytest.mark.parametrize("index", [0, 1, LAST])
@pytest.mark.parametrize("fault", ["name", "dtype", "shape", "short", "long", "missing", "extra", "lz4", "zstd"])
def test_an_array_that_does_not_match_the_layout_writes_nothing(index: int, fault: str) -> None:
    message, frames = bend(index)
    match fault:
        case "name":
            message, _ = bend(index, name="other")
        case "dtype":
            message, _ = bend(index, dtype="<i2")
        case "shape":
            message, _ = bend(index, shape=(*message.arrays[index].shape, 1))
        case "short":
            frames[index] = frames[index][:-1]
        case "long":
            frames[index] = bytes(frames[index]) + b"\0"
        case "missing":
            del frames[index]
        case "extra":
            frames.insert(index, b"")
        case _:
            message, _ = bend(index, compression=fault)
    out = poisoned()
    with pytest.raises(MalformedMessage):
        read_arrays(message, frames, LAYOUT, out)
    assert_untouched(out)


def test_a_wrong_number_of_unrolls_writes_nothing() -> None:
    message, frames = bend(0)
    out = poisoned()
    with pytest.raises(MalformedMessage, match="history_frames"):
        read_arrays(
            message.model_copy(update={"num_unrolls": U - 1}), frames, LAYOUT, {name: array[: U - 1] for name, array in out.items()}
        )
    assert_untouched(out)


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
        ("rewards", math.nan),
        ("behaviour_parameters", math.inf),
        ("initial_core_state", -math.inf),
        ("game_reset", 2),
    ],
)
def test_values_out_of_range_write_nothing(name: str, value: float) -> None:
    arrays = filled()
    target = arrays[name].view(np.uint8) if arrays[name].dtype.kind == "b" else arrays[name]
    target[(-1,) * target.ndim] = value
    frames = as_received(encode_arrays(header(), arrays))
    message = decode_header(frames[0])
    assert isinstance(message, Unrolls)
    out = poisoned()
    with pytest.raises(MalformedMessage, match=name):
        read_arrays(message, frames[1:], LAYOUT, out)
    assert_untouched(out)


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
    frames = as_received(encode_arrays(header(), arrays))
    message = decode_header(frames[0])
    assert isinstance(message, Unrolls)
    if low <= value <= high:
        read_arrays(message, frames[1:], LAYOUT, LAYOUT.allocate(U))
    else:
        with pytest.raises(MalformedMessage, match=f"array {field.name} contains"):
            read_arrays(message, frames[1:], LAYOUT, LAYOUT.allocate(U))


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_receive_arrays_copies_all_but_large_pixel_frames(compression: Compression) -> None:
    layout = UnrollLayout(10, 2, (84, 84, 1), discrete(3), 3)  # frames of 77,616 bytes and a history of 7,056
    arrays = layout.allocate(1)
    arrays["frames"][...] = np.arange(11)[:, None, None, None]
    arrays["rewards"][...] = np.arange(10)
    frames = [bytearray(frame) for frame in encode_arrays(header(1), arrays, compression)]
    message = decode_header(memoryview(frames[0]))
    assert isinstance(message, Unrolls)
    received = receive_arrays(message, [memoryview(frame) for frame in frames[1:]], layout)
    came = dict(zip(arrays, frames[1:], strict=True))
    if compression == "none":
        assert np.shares_memory(received["frames"], np.frombuffer(came["frames"], np.uint8))
    for name in arrays.keys() - {"frames"}:
        came[name][:] = bytes(len(came[name]))
    for name, array in arrays.items():
        np.testing.assert_array_equal(received[name], array, strict=True)
        assert received[name].flags.aligned


def outcome(frame: Frame) -> Unrolls | tuple[str, str]:
    try:
        message = decode_header(frame)
    except MalformedMessage as malformed:
        return malformed.reason, malformed.label
    assert isinstance(message, Unrolls)
    return message


GOOD = {compression: as_received(encode_arrays(header(), filled(), compression)) for compression in COMPRESSIONS}


def assert_recognising_changes_nothing(frame: bytes) -> None:
    """The result, a message or a reason, is the same as without recognising arrays by their bytes."""
    decode_header(GOOD["none"][0])
    recognised = outcome(frame)
    with patch.object(codec, "_with_known_arrays", return_value=None):
        assert outcome(frame) == recognised


@settings(max_examples=300)
@given(edits=EDITS, compression=st.sampled_from(COMPRESSIONS))
def test_the_fast_path_decodes_mutated_headers_identically(edits: list[tuple[str, int, int]], compression: Compression) -> None:
    assert_recognising_changes_nothing(edited(bytes(GOOD[compression][0]), edits))


def test_the_fast_path_decodes_similar_headers_identically() -> None:
    head = bytes(GOOD["none"][0])
    fields = msgpack.unpackb(head)
    shape = fields["arrays"][0]["shape"]
    assert_recognising_changes_nothing(head)
    assert_recognising_changes_nothing(head + b"\0")
    # the arrays come first, as a client might order them
    assert_recognising_changes_nothing(msgpack.packb({"arrays": fields["arrays"], **fields}))
    assert shape[-1] == 1
    for bent in (1.0, True, -1, "1"):
        arrays = [{**fields["arrays"][0], "shape": [*shape[:-1], bent]}, *fields["arrays"][1:]]
        assert_recognising_changes_nothing(msgpack.packb({**fields, "arrays": arrays}))
    assert_recognising_changes_nothing(msgpack.packb({**fields, "arrays": fields["arrays"] * 2}))
    assert_recognising_changes_nothing(msgpack.packb({**fields, "sequence": 1.0}))
    assert_recognising_changes_nothing(msgpack.packb({**fields, 3: 4}))
    assert_recognising_changes_nothing(msgpack.packb(fields | {str(n): 0 for n in range(40)}))
    known = msgpack.packb(fields["arrays"])
    twice = head.replace(b"\x87", b"\x88", 1) + msgpack.packb("arrays") + known
    assert msgpack.unpackb(twice) == fields  # the second of two values counts
    assert_recognising_changes_nothing(twice)
    deep = b"\x91" * 2000 + b"\x90"
    assert_recognising_changes_nothing(head.replace(known, deep))


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
    message, frames = bend(index, compression=compression)
    frames[index] = bomb
    out = poisoned()
    tracemalloc.start()
    try:
        with pytest.raises(MalformedMessage, match=field.name):
            read_arrays(message, frames, LAYOUT, out)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20
    assert_untouched(out)


def test_mismatched_output_arrays_raise_value_error() -> None:
    message, frames = bend(0)
    with pytest.raises(ValueError, match="out"):
        read_arrays(message, frames, LAYOUT, LAYOUT.allocate(U + 1))


def test_array_headers_default_to_uncompressed() -> None:
    assert ArrayHeader(name="x", dtype="|u1", shape=(1,)).compression == "none"


def test_headers_are_decoded_from_memoryviews() -> None:
    welcome = Welcome(request_id=1, accepted_sequence=2, granted_unrolls=3)
    assert decode_header(memoryview(bytes(encode(welcome)[0]))) == welcome


def test_payload_digest_is_sha256() -> None:
    assert payload_digest(memoryview(b"abc")) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
