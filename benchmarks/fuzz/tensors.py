"""The fuzz target for published weights, the only one that needs torch."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import torch

from herd.run.checkpoints import CheckpointError
from herd.run.tensors import decode_weights, encode_weights

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random


def fuzz_tensors(data: bytes) -> None:
    """Decode a slice of weights: the tensors have at most the size of the input, or the expected error is one line."""
    try:
        tensors = decode_weights(data)
    except CheckpointError as error:
        said, tensors = str(error), {}
        assert "\n" not in said
    assert sum(tensor.numel() * tensor.element_size() for tensor in tensors.values()) <= len(data)


def mutate_tensors(data: bytes, random: Random) -> bytes:
    """Change one entry of the header of a slice; return the slice unchanged if it has no header."""
    length = int.from_bytes(data[:8], "little")
    try:
        header = json.loads(data[8 : 8 + length])
        entry = header[random.choice(sorted(header))]
        field = random.choice(sorted(entry))
        odd: object = random.choice([0, 1, -1, 2**31 - 1, 2**31, 2**63, 0.5, None, True, "F64", [], {}])
        if isinstance(entry[field], list) and random.random() < 0.8:
            entry[field].insert(random.randrange(len(entry[field]) + 1), odd)
        else:
            entry[field] = odd
        text = json.dumps(header).encode()
    except (AttributeError, IndexError, RecursionError, TypeError, ValueError):
        return data
    return len(text).to_bytes(8, "little") + text + data[8 + length :]


def tensors_seeds() -> list[bytes]:
    """Return weights of every dtype, empty ones and none."""
    every = {str(dtype): torch.zeros(2, 3, dtype=dtype) for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.uint8)}
    return [encode_weights(every), encode_weights({"empty": torch.empty(0, 3), "scalar": torch.tensor(1.0)}), encode_weights({})]


TARGETS: dict[str, tuple[Callable[[bytes], None], Callable[[], list[bytes]], int]] = {"tensors": (fuzz_tensors, tensors_seeds, 4096)}
"""Function, seeds, length of the longest input in bytes."""
