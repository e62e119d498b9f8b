"""Weights as bytes: compared with the safetensors library in both directions, and read from hostile payloads."""

import json
import math

import pytest
import safetensors.torch
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from torch import nn

from herd.run.checkpoints import CheckpointError
from herd.run.tensors import MAX_HEADER_BYTES, decode_weights, encode_weights, load_into


@pytest.fixture
def tensors():
    generator = torch.Generator().manual_seed(1)
    return {
        "bytes": torch.arange(5, dtype=torch.uint8),
        "convolution": torch.randn(4, 3, 3, 3, generator=generator).to(memory_format=torch.channels_last),
        "transposed": torch.randn(3, 5, generator=generator).t(),
        "scalar": torch.tensor(2.5),
        "empty": torch.empty(0, 3),
        "counts": torch.tensor([1, -(1 << 40)]),
        "half": torch.randn(7, generator=generator).to(torch.bfloat16),
    }


def assert_same(left, right):
    assert left.keys() == right.keys()
    for name in right:
        assert left[name].dtype == right[name].dtype, name
        assert torch.equal(left[name], right[name]), name


def small_net():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))


def payload_of(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def entry(shape, first, last, dtype="F32"):
    return {"dtype": dtype, "shape": shape, "data_offsets": [first, last]}


@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview])
def test_tensors_survive_an_encode_decode_round_trip(tensors, wrap):
    assert_same(decode_weights(wrap(encode_weights(tensors))), tensors)


def test_payloads_are_interchangeable_with_safetensors(tensors):
    assert_same(safetensors.torch.load(encode_weights(tensors)), tensors)
    dense = {name: tensor.contiguous() for name, tensor in tensors.items()}
    assert_same(decode_weights(safetensors.torch.save(dense)), tensors)


def test_bfloat16_halves_floats_and_leaves_integers(tensors):
    decoded = decode_weights(encode_weights(tensors, torch.bfloat16))
    assert torch.equal(decoded["transposed"], tensors["transposed"].to(torch.bfloat16))
    assert decoded["counts"].tolist() == [1, -(1 << 40)]
    weights = {"w": torch.randn(1000, 100)}
    assert len(encode_weights(weights)) / len(encode_weights(weights, torch.bfloat16)) == pytest.approx(2, rel=0.01)


def test_decoded_tensors_share_memory_with_the_payload():
    payload = bytearray(encode_weights({"w": torch.zeros(4)}))
    decoded = decode_weights(payload)
    payload[-4:] = torch.tensor([9.0]).numpy().tobytes()
    assert decoded["w"].tolist() == [0, 0, 0, 9]


def test_every_element_is_aligned(tensors):
    decoded = decode_weights(bytearray(encode_weights(tensors)))
    assert all(tensor.data_ptr() % tensor.element_size() == 0 for tensor in decoded.values())


def test_slices_are_merged_and_duplicate_names_refused():
    first, second = encode_weights({"a": torch.ones(1)}), encode_weights({"b": torch.zeros(2)})
    assert_same(decode_weights(first, second), {"a": torch.ones(1), "b": torch.zeros(2)})
    with pytest.raises(CheckpointError, match="'a' in two slices"):
        decode_weights(first, second, first)


def test_unsupported_dtypes_are_refused():
    with pytest.raises(TypeError, match=r"mask has dtype torch\.bool"):
        encode_weights({"mask": torch.tensor([True])})


@pytest.mark.parametrize(
    "payload",
    [
        *(encode_weights({"w": torch.ones(3)})[:cut] for cut in (0, 1, 7, 8, 20, -1)),
        payload_of({"w": entry([1], 0, 4)}, b"\0" * 5),
        payload_of({"w": entry([1], 1, 5)}, b"\0" * 5),
        payload_of({"w": entry([2], 0, 4)}, b"\0" * 4),
        payload_of({"w": entry([1], 0, 4), "v": entry([1], 0, 4)}, b"\0" * 4),
        payload_of({"w": entry([1], 0, 4), "v": entry([1], 8, 12)}, b"\0" * 12),
        payload_of({"w": entry([1 << 30, 1 << 30], 0, 4)}, b"\0" * 4),
        payload_of({"w": entry([-1], 0, 4)}, b"\0" * 4),
        payload_of({"w": entry([0, 1 << 40], 0, 0)}),
        payload_of({"w": entry([1.0], 0, 4)}, b"\0" * 4),
        payload_of({"w": entry([1], 0, 1, "BOOL")}, b"\2"),
        payload_of({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4], "code": "x"}}, b"\0" * 4),
        payload_of([1, 2]),
        payload_of(b"not json"),
        payload_of(b'{"w":' * 2000),
        payload_of(b"\x80\x04."),
        (1 << 62).to_bytes(8, "little") + b"{}",
        payload_of(b" " * (MAX_HEADER_BYTES + 1)),
    ],
)
def test_a_hostile_payload_gives_one_clear_error(payload):
    with pytest.raises(CheckpointError) as refused:
        decode_weights(payload)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 400


def test_load_into_copies_and_converts():
    source, target = small_net(), small_net()
    with torch.no_grad():
        target[0].weight.zero_()
    weight = target[0].weight
    load_into(target, decode_weights(encode_weights(source.state_dict(), torch.bfloat16)))
    assert target[0].weight is weight
    assert target[0].weight.dtype == torch.float32
    assert torch.equal(target[0].weight, source[0].weight.to(torch.bfloat16).float())


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda t: t.pop("1.bias"), "1.bias is missing"),
        (lambda t: t.update({"2.bias": torch.zeros(1)}), "'2.bias' is unknown"),
        (lambda t: t.update({"1.bias": torch.zeros(1)}), r"1.bias is \[1\], expected \[2\]"),
        (
            lambda t: t.update({"0.weight": torch.zeros(5, 3), "1.bias": torch.zeros(1)}),
            r"^weights of another network: 0\.weight is \[5, 3\], expected \[4, 3\]$",
        ),
        (lambda t: t.update({"1.bias": torch.zeros(2, dtype=torch.int64)}), "1.bias is torch.int64"),
    ],
)
def test_tensors_of_another_network_are_refused_and_not_loaded(change, match):
    target = small_net()
    before = {name: tensor.clone() for name, tensor in target.state_dict().items()}
    tensors = {name: tensor + 1 for name, tensor in before.items()}
    change(tensors)
    with pytest.raises(CheckpointError, match=match):
        load_into(target, tensors)
    assert_same(target.state_dict(), before)


def test_non_finite_weights_are_refused_and_not_loaded():
    target = small_net()
    before = {name: tensor.clone() for name, tensor in target.state_dict().items()}
    for poison in (float("nan"), float("inf"), -float("inf")):
        tensors = {name: tensor.to(torch.bfloat16) + 1 for name, tensor in before.items()}
        tensors["1.weight"][1, 2] = poison
        with pytest.raises(CheckpointError, match=r"^weights are unusable: 1\.weight contains numbers that are not finite"):
            load_into(target, tensors)
        assert_same(target.state_dict(), before)


# -- arbitrary bytes give a value or CheckpointError, never anything else

SIZES = st.sampled_from([0, 1, 2, 3, 1 << 20, 1 << 30, 2**31 - 1, 2**31, -1])
ENTRIES = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from(["F64", "I64", "F32", "I32", "BF16", "F16", "U8", "BOOL", 3]),
        "shape": st.lists(SIZES, max_size=9),
        "data_offsets": st.lists(st.sampled_from([0, 1, 4, 8, 2**40, 2**63, 2**64, -1]), min_size=1, max_size=3),
    }
)


@st.composite
def payloads(draw):
    """Small payloads: random headers, half of them with offsets that fit, or valid weights with changed bytes."""
    if draw(st.booleans()):
        header = draw(st.dictionaries(st.text(max_size=3), ENTRIES, max_size=3))
        data = draw(st.binary(max_size=24))
        if draw(st.booleans()):
            end = 0
            for described in header.values():
                sizes = [size for size in described["shape"] if size >= 0]
                width = {"F64": 8, "I64": 8, "BF16": 2, "F16": 2, "U8": 1}.get(described["dtype"], 4)
                first, end = end, min(end + math.prod(sizes) * width, 2**62)
                described["data_offsets"] = [first, end]
            data = bytes(min(end, 4096))
        return payload_of(header, data)
    whole = bytearray(encode_weights({"w": torch.ones(3), "empty": torch.empty(0, 3), "n": torch.tensor([7])}))
    for _ in range(draw(st.integers(1, 4))):
        whole[draw(st.integers(0, len(whole) - 1))] = draw(st.integers(0, 255))
    return bytes(whole[: draw(st.integers(0, len(whole)))]) if draw(st.booleans()) else bytes(whole)


@settings(max_examples=1500, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(payload=payloads())
@example(payload=payload_of({"w": entry([2**31 - 1] * 7 + [0], 0, 0)}))
@example(payload=payload_of({"w": entry([0] + [2**31 - 1] * 7, 0, 0, "U8")}))
@example(payload=payload_of(b'{"w": {"dtype": "F32", "shape": [%s], "data_offsets": [0, 0]}}' % (b"9" * 5000)))
@example(payload=payload_of(b"[" * 100_000))
def test_any_payload_decodes_or_raises_checkpoint_error(payload):
    try:
        decoded = decode_weights(payload)
    except CheckpointError as error:
        said = str(error)
        assert "\n" not in said
        assert len(said) < 400
        return
    assert sum(tensor.numel() * tensor.element_size() for tensor in decoded.values()) <= len(payload)
