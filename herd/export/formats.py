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

Format = Literal["torch", "onnx"]
SUFFIXES: dict[Format, str] = {"torch": ".pt2", "onnx": ".onnx"}
OPSET = 18
"""Version of the ONNX operator set, from 2022, which all runtimes support."""
_EXAMPLE_ENVIRONMENTS = 3
"""Number of environments in the example. An axis of size 1 would be treated as constant."""


def write(policy: ExportedPolicy, path: Path, kind: Format) -> None:
    """Write ``policy`` to ``path``, for any number of environments."""
    example = tuple(_example(port) for port in policy.inputs)
    shapes = (tuple({0: torch.export.Dim("environments", min=1, max=1 << 20)} for _ in example),)
    # Parameters require gradients here, because pooling then uses the operation that both formats support.
    policy.requires_grad_(requires_grad=True)
    with warnings.catch_warnings(), path.open("wb") as file:
        warnings.simplefilter("ignore")  # warnings for authors of exporters
        if kind == "torch":
            torch.export.save(torch.export.export(policy, example, dynamic_shapes=shapes), file)
            return
        program = torch.onnx.export(
            policy,
            example,
            dynamo=True,
            input_names=[port.name for port in policy.inputs],
            output_names=[port.name for port in policy.outputs],
            dynamic_shapes=shapes,
            opset_version=OPSET,
            external_data=False,
            verbose=False,
        )
        assert program is not None
        file.write(program.model_proto.SerializeToString())


def reader(path: Path, policy: ExportedPolicy, kind: Format) -> Compute:
    """Open a file of `write`; ``policy`` names inputs and outputs."""
    return _torch_reader(path) if kind == "torch" else _onnx_reader(path, policy)


def _torch_reader(path: Path) -> Compute:
    with warnings.catch_warnings(), path.open("rb") as file:
        warnings.simplefilter("ignore")
        module = torch.export.load(file).module()

    def compute(inputs: Sequence[NDArray[np.generic]]) -> list[NDArray[Any]]:
        with torch.no_grad():
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
