"""Named tensors as bytes in the safetensors format, for the wire and for disk, and checkpoints of them.

The format: 8 bytes of header length (little-endian), a JSON header ``{name: {dtype, shape, data_offsets}}``, then all tensors back to
back. It is implemented here because the library copies the data: an actor that fetches 7 MB ten times per second would spend its time on
new memory pages. The tests compare both directions with the library. Random states
are uint8 tensors and JSON; nothing is pickled.
"""

from __future__ import annotations

import json
import math
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from torch import Tensor, nn

from herd.files import parse_json
from herd.run.checkpoints import (
    STATE,
    CheckpointError,
    ForeignCheckpointError,
    NotFiniteError,
    newest_accepted,
    verified_contents,
    write_checkpoint,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

BytesLike = bytes | bytearray | memoryview

SUFFIX = ".safetensors"
LENGTH_BYTES = 8
ALIGNMENT_BYTES = 8
"""The header is padded to a multiple of this, so that elements are aligned."""
MAX_HEADER_BYTES = 1 << 20
"""Size limit of the header. A tensor takes about 100 bytes; the deepest network has fewer than 200 tensors, its optimizer 600."""

MAX_ELEMENTS = 1 << 40
"""Largest number of elements of a tensor, with empty dimensions counted as 1. Beyond 2**63, strides overflow even for empty tensors."""

_DTYPES = {
    "F64": torch.float64,
    "I64": torch.int64,
    "F32": torch.float32,
    "I32": torch.int32,
    "BF16": torch.bfloat16,
    "F16": torch.float16,
    "U8": torch.uint8,
}
_DTYPE_NAMES = {dtype: name for name, dtype in _DTYPES.items()}

# Torch warns once per process about tensors in read-only memory, such as a received frame. Here this is intended.
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    torch.frombuffer(b"\0", dtype=torch.uint8)


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    dtype: Literal["F64", "I64", "F32", "I32", "BF16", "F16", "U8"]
    shape: Annotated[list[Annotated[int, Field(ge=0, lt=1 << 31)]], Field(max_length=8)]
    data_offsets: tuple[Annotated[int, Field(ge=0)], Annotated[int, Field(ge=0)]]


_HEADER = TypeAdapter(dict[str, _Entry])


def encode_weights(tensors: Mapping[str, Tensor], dtype: torch.dtype | None = None) -> bytes:
    """Return named tensors, on any device and with any strides, as safetensors bytes.

    ``dtype``: floating-point tensors are converted to it, except float64, whose digits are needed; None: no conversion. Raises
    ``TypeError`` for a tensor with a dtype other than float64, float32, float16, bfloat16, int64, int32 and uint8.
    """
    header: dict[str, object] = {}
    parts: list[memoryview] = []
    offset = 0
    # Widest elements first, so that all are aligned.
    for name, tensor in sorted(tensors.items(), key=lambda item: -item[1].element_size()):
        target = dtype if dtype is not None and tensor.is_floating_point() and tensor.dtype != torch.float64 else tensor.dtype
        if target not in _DTYPE_NAMES:
            raise TypeError(f"{name} has dtype {target}, which weights cannot contain")
        flat = tensor.detach().to("cpu", target).reshape(-1)
        part = flat.view(torch.uint8).numpy().data
        header[name] = {"dtype": _DTYPE_NAMES[target], "shape": list(tensor.shape), "data_offsets": [offset, offset + part.nbytes]}
        parts.append(part)
        offset += part.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % ALIGNMENT_BYTES)
    return b"".join([len(text).to_bytes(LENGTH_BYTES, "little"), text, *parts])


def decode_weights(*payloads: BytesLike) -> dict[str, Tensor]:
    """Return the tensors of one payload, or of all slices of one version, on the CPU and without copying.

    The tensors are views of the payloads and keep them alive; tensors of a read-only payload must not be written. The only exception is
    ``CheckpointError``: a payload is not safetensors, its size differs from its header, or a name is repeated.
    """
    tensors: dict[str, Tensor] = {}
    for payload in payloads:
        try:
            decoded = _decode_one(memoryview(payload).cast("B"))
        except CheckpointError:
            raise
        except (ArithmeticError, LookupError, MemoryError, RuntimeError, TypeError, ValueError) as error:
            # Unexpected errors too: a caller that decodes foreign bytes handles only this exception.
            raise CheckpointError(f"weights are damaged: {type(error).__name__}: {' '.join(str(error).split())[:200]}") from error
        for name, tensor in decoded.items():
            if name in tensors:
                raise CheckpointError(f"weights contain the tensor {name[:64]!a} in two slices")
            tensors[name] = tensor
    return tensors


def is_finite(tensor: Tensor) -> bool:
    """Return whether a tensor contains only finite numbers, none of them so large that their sum is not."""
    # One pass without a temporary array: any NaN or infinity makes the sum NaN or infinite.
    wide = torch.float32 if tensor.dtype == torch.float16 else None  # whose own sums end at 65,504
    return not tensor.is_floating_point() or math.isfinite(float(tensor.sum(dtype=wide)))


def load_into(module: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Copy ``tensors`` into the parameters and buffers of ``module``, converting dtype and device.

    Raises ``CheckpointError`` that names the first tensor which is missing, unknown, of another shape or kind of number, or whose sum is
    not finite. In that case nothing was written.
    """
    own = module.state_dict()
    for name, parameter in own.items():
        tensor = tensors.get(name)
        if tensor is None:
            raise CheckpointError(f"weights of another network: {name} is missing")
        if tensor.shape != parameter.shape:
            raise CheckpointError(f"weights of another network: {name} is {list(tensor.shape)}, expected {list(parameter.shape)}")
        if tensor.is_floating_point() != parameter.is_floating_point():
            raise CheckpointError(f"weights of another network: {name} is {tensor.dtype}, expected {parameter.dtype}")
        if not is_finite(tensor):
            raise CheckpointError(f"weights are unusable: {name} contains numbers that are not finite, or far too large")
    foreign = next((name for name in tensors if name not in own), None)
    if foreign is not None:
        raise CheckpointError(f"weights of another network: {foreign[:64]!a} is unknown")
    with torch.no_grad():
        for name, parameter in own.items():
            parameter.copy_(tensors[name])


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One checkpoint in memory."""

    path: Path
    learner_updates: int
    tensors: dict[str, dict[str, Tensor]]
    """Tensors by file (model, optimizer, random), then by name; on the CPU."""
    state: dict[str, Any]


def save_checkpoint(
    directory: Path, learner_updates: int, tensors: Mapping[str, Mapping[str, Tensor]], state: Mapping[str, Any], keep: int
) -> Path:
    """Write a checkpoint with one file per key of ``tensors``, and with ``state``, which JSON must be able to hold.

    Otherwise as `write_checkpoint`. Raises ``NotFiniteError`` if a tensor is not finite: whoever resumed from it could not learn.
    """
    for key, group in tensors.items():
        for name, tensor in group.items():
            if not is_finite(tensor):
                raise NotFiniteError(f"{directory}: not written: {name} of {key} contains numbers that are not finite, or far too large")
    # Encoded first: an error in the state must not leave a folder behind.
    files = {f"{key}{SUFFIX}": encode_weights(group) for key, group in tensors.items()}
    return write_checkpoint(directory, learner_updates, files | {STATE: json.dumps(state, indent=1).encode()}, keep)


def load_checkpoint(path: Path) -> Checkpoint:
    """Read one checkpoint and verify all of it.

    Raises ``TornCheckpointError`` if it is incomplete or damaged, and ``CheckpointError`` if it cannot be read or is not a checkpoint.
    """
    manifest, contents = verified_contents(path)
    try:
        state = parse_json(contents.pop(STATE))
        tensors = {name.removesuffix(SUFFIX): decode_weights(data) for name, data in contents.items()}
    except (CheckpointError, KeyError, ValueError) as error:
        raise ForeignCheckpointError(f"{path}: is intact, but not a checkpoint of this program: {error}") from error
    if not isinstance(state, dict):
        raise ForeignCheckpointError(f"{path}: is intact, but not a checkpoint of this program: {STATE} is not a mapping")
    return Checkpoint(path=path, learner_updates=manifest.learner_updates, tensors=tensors, state=state)


def load_newest(directory: Path, accept: Callable[[Checkpoint], None]) -> Checkpoint | None:
    """Read the newest complete checkpoint that ``accept`` does not refuse; None if there are no checkpoints.

    ``accept`` raises ``ForeignCheckpointError`` for one that is not this run's; it is then passed over like a torn one.
    """

    def load(path: Path) -> Checkpoint:
        checkpoint = load_checkpoint(path)
        accept(checkpoint)
        return checkpoint

    return newest_accepted(directory, load)


def _decode_one(payload: memoryview) -> dict[str, Tensor]:
    header, start = _read_header(payload)
    tensors: dict[str, Tensor] = {}
    end = 0
    for name, entry in sorted(header.items(), key=lambda item: item[1].data_offsets):
        dtype = _DTYPES[entry.dtype]
        if math.prod(max(size, 1) for size in entry.shape) > MAX_ELEMENTS:
            raise CheckpointError(f"weights are damaged: {name[:64]!a} has too many elements for a tensor")
        count = math.prod(entry.shape)
        first, last = entry.data_offsets
        # No gaps and no overlaps: a payload has one meaning and contains no unused bytes.
        if first != end or last - first != count * dtype.itemsize or last > len(payload) - start:
            raise CheckpointError(f"weights are damaged: {name[:64]!a} has a wrong offset in the header")
        flat = torch.frombuffer(payload, dtype=dtype, count=count, offset=start + first) if count else torch.empty(0, dtype=dtype)
        tensors[name] = flat.reshape(entry.shape)
        end = last
    if start + end != len(payload):
        raise CheckpointError(f"weights are damaged: {len(payload) - start} bytes of tensors, expected {end}")
    return tensors


def _read_header(payload: memoryview) -> tuple[dict[str, _Entry], int]:
    """Return the header and the offset of the tensors in bytes."""
    length = int.from_bytes(payload[:LENGTH_BYTES], "little")
    if len(payload) < LENGTH_BYTES or length > min(MAX_HEADER_BYTES, len(payload) - LENGTH_BYTES):
        raise CheckpointError(f"weights are not safetensors: {len(payload)} bytes are too short for the header")
    start = LENGTH_BYTES + length
    try:
        return _HEADER.validate_json(bytes(payload[LENGTH_BYTES:start])), start
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part)[:64] for part in first["loc"])
        raise CheckpointError(f"weights are not safetensors: header {where!a}: {first['msg']}"[:300]) from error
