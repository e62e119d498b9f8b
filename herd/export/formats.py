"""Writes an `ExportedPolicy` to a file, and computes with such a file without Herd."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from herd.export.network import ExportedPolicy, Port

    Compute = Callable[[Sequence[NDArray[np.generic]]], list[NDArray[Any]]]
    """Maps inputs in order to outputs in order."""

Format = Literal["torchscript", "onnx"]
SUFFIXES: dict[Format, str] = {"torchscript": ".pt", "onnx": ".onnx"}
PACKAGES: dict[Format, tuple[str, ...]] = {"torchscript": (), "onnx": ("onnx", "onnxscript", "onnxruntime")}
"""Packages that the formats need in addition to torch."""
OPSET = 18
"""Version of the ONNX operator set, from 2022, which all runtimes support."""
_EXAMPLE_ENVIRONMENTS = 3
"""Number of environments in the example. An axis of size 1 would be treated as constant."""


def write(policy: ExportedPolicy, path: Path, kind: Format) -> None:
    """Write ``policy`` to ``path``, for any number of environments."""
    example = tuple(_example(port) for port in policy.inputs)
    # Parameters require gradients here, because pooling then uses the operation that both formats support.
    policy.requires_grad_(requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings for authors of exporters
        if kind == "torchscript":
            _write_torchscript(policy, example, path)
        else:
            _write_onnx(policy, example, path)


def reader(path: Path, policy: ExportedPolicy, kind: Format) -> Compute:
    """Open a file of `write`; ``policy`` names inputs and outputs."""
    return _torchscript_reader(path) if kind == "torchscript" else _onnx_reader(path, policy)


def _write_torchscript(policy: ExportedPolicy, example: tuple[torch.Tensor, ...], path: Path) -> None:
    traced = torch.jit.trace(policy, example, check_trace=False)  # type: ignore[no-untyped-call]
    for parameter in traced.parameters():
        parameter.requires_grad_(False)
    traced.save(str(path))


def _write_onnx(policy: ExportedPolicy, example: tuple[torch.Tensor, ...], path: Path) -> None:
    environments = torch.export.Dim("environments", min=1, max=1 << 20)
    program = torch.onnx.export(
        policy,
        example,
        dynamo=True,
        input_names=[port.name for port in policy.inputs],
        output_names=[port.name for port in policy.outputs],
        dynamic_shapes=(tuple({0: environments} for _ in example),),
        opset_version=OPSET,
        external_data=False,
        verbose=False,
    )
    assert program is not None
    program.save(str(path))


def _torchscript_reader(path: Path) -> Compute:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = torch.jit.load(str(path))  # type: ignore[no-untyped-call]

    def compute(inputs: Sequence[NDArray[np.generic]]) -> list[NDArray[Any]]:
        with torch.inference_mode():
            return [output.numpy() for output in module(*(torch.from_numpy(each) for each in inputs))]

    return compute


def _onnx_reader(path: Path, policy: ExportedPolicy) -> Compute:
    import onnxruntime  # noqa: PLC0415  of an extra

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [port.name for port in policy.outputs]

    def compute(inputs: Sequence[NDArray[np.generic]]) -> list[NDArray[Any]]:
        outputs: list[NDArray[Any]] = session.run(names, {port.name: each for port, each in zip(policy.inputs, inputs, strict=True)})
        return outputs

    return compute


def _example(port: Port) -> torch.Tensor:
    shape = [_EXAMPLE_ENVIRONMENTS, *(int(size) for size in port.shape[1:])]
    return torch.from_numpy(np.zeros(shape, np.dtype(port.dtype)))
