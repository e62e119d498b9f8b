"""The device's two ceilings, and the convolutions of the torsos by number of rows, precision, memory layout and compilation.

A step is a forward and a backward pass over N rows of four 84 x 84 planes, as the learner does it without heads and losses. Operations are
counted by torch: two for each multiplication with its addition, forward and backward.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from unittest import mock

import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.gpu.records import seconds_per_step, spread
from herd.components.suites import environment_spec
from herd.components.torsos.api import build_torso
from herd.config.loading import load_settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from benchmarks.gpu.records import Case, Cases, Numbers

Precision = Literal["float32", "tf32", "bfloat16"]
ROOF_SIZE = 8192
"""Rows and columns of the matrices whose product is the ceiling of arithmetic."""
COPIED_BYTES = 4 << 30
NUM_INPUTS = 3
"""Different inputs in turn, so that none is still in the cache."""


def cases(device: torch.device, *, is_small: bool, seconds: float) -> Cases:
    """Return the cases of this part."""
    if is_small:
        return {
            "product": partial(product, device, size=64, seconds=seconds),
            "copy": partial(copy, device, num_bytes=1 << 16, seconds=seconds),
            "deep, 2 rows, bfloat16": partial(torso, device, "deep", 2, "bfloat16", seconds=seconds),
            "nature, 2 rows, float32, contiguous": partial(torso, device, "nature", 2, "float32", seconds=seconds, is_channels_last=False),
        }
    one = partial(torso, device, seconds=seconds)
    chosen: dict[str, Case] = {
        "product": partial(product, device, size=ROOF_SIZE, seconds=seconds),
        "copy": partial(copy, device, num_bytes=COPIED_BYTES, seconds=seconds),
    }
    precisions: tuple[Precision, ...] = ("bfloat16", "tf32", "float32")
    for name in ("deep", "nature"):
        for rows in (168, 672, 2688, 10752):
            for precision in precisions:
                chosen[f"{name}, {rows} rows, {precision}"] = partial(one, name, rows, precision)
    for precision in precisions:
        chosen[f"deep, 2688 rows, {precision}, contiguous"] = partial(one, "deep", 2688, precision, is_channels_last=False)
    for mode in ("default", "reduce-overhead"):
        for rows in (672, 2688):
            chosen[f"deep, {rows} rows, bfloat16, compiled {mode}"] = partial(one, "deep", rows, "bfloat16", mode=mode)
    return chosen


def product(device: torch.device, *, size: int, seconds: float) -> Numbers:
    """Return the rate of a bfloat16 matrix product."""
    one, other = (torch.randn(size, size, device=device, dtype=torch.bfloat16) for _ in range(2))
    times = seconds_per_step(lambda: one @ other, partial(wait, device), seconds=seconds)
    return {"tera_operations_per_second": spread([2e-12 * size**3 / time for time in times])}


def copy(device: torch.device, *, num_bytes: int, seconds: float) -> Numbers:
    """Return the rate of a copy on the device, bytes read and bytes written."""
    source = torch.randint(0, 256, (num_bytes,), device=device, dtype=torch.uint8)
    target = torch.empty_like(source)
    times = seconds_per_step(lambda: target.copy_(source), partial(wait, device), seconds=seconds)
    return {"terabytes_per_second": spread([2e-12 * num_bytes / time for time in times])}


def torso(
    device: torch.device,
    name: str,
    rows: int,
    precision: Precision,
    *,
    seconds: float,
    is_channels_last: bool = True,
    mode: str | None = None,
) -> Numbers:
    """Measure one torso."""
    torch.manual_seed(1)
    settings = load_settings([Path("atari-deep")], ["--network.torso", name], {})
    spec = environment_spec(settings.env)
    memory = torch.channels_last if is_channels_last else torch.contiguous_format
    module = build_torso(settings.network.torso, spec).to(device).to(memory_format=memory)  # type: ignore[call-overload]
    shape = (rows, spec.observation_channels, *spec.frame_shape[:2])
    inputs = [torch.randint(0, 256, shape, dtype=torch.uint8, device=device).contiguous(memory_format=memory) for _ in range(NUM_INPUTS)]
    dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32

    def forward(frames: Tensor) -> Tensor:
        features: Tensor = module(frames, None, dtype)
        return features.float().square().mean()

    run: Any = forward if mode is None else torch.compile(forward, mode=mode, dynamic=False)

    def step() -> None:
        inputs.append(inputs.pop(0))
        module.zero_grad(set_to_none=True)
        run(inputs[0]).backward()

    with _precise(precision), _memory(is_channels_last):
        with FlopCounterMode(display=False) as counted:
            forward(inputs[0]).backward()  # type: ignore[no-untyped-call]
        times = seconds_per_step(step, partial(wait, device), seconds=seconds)
    operations = counted.get_total_flops()
    return {
        "rows_per_second": spread([rows / time for time in times]),
        "milliseconds": spread([1e3 * time for time in times]),
        "giga_operations_per_row": 1e-9 * operations / rows,
        "tera_operations_per_second": spread([1e-12 * operations / time for time in times]),
    }


def wait(device: torch.device) -> None:
    """Wait for all work on the device."""
    if device.type == "cuda":
        torch.cuda.synchronize()


@contextmanager
def _precise(precision: Precision) -> Iterator[None]:
    """Float32 convolutions and products with all 24 bits, or as TF32 with 11; cuDNN's own default is TF32."""
    before = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = before


@contextmanager
def _memory(is_channels_last: bool) -> Iterator[None]:
    """The torsos put pixels into channels_last memory, and every later image follows; for the comparison they leave them as they are."""
    if is_channels_last:
        yield
        return
    with mock.patch("herd.networks.layers.pixels_last", torch.Tensor.contiguous):
        yield
