"""``herd export``: writes a run's policy in the format of torch.export or as ONNX, and compares it with the network while playing games."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from herd.cli.options import POSITIVE, POSITIVE_WHOLE, CommandError, OneLineParser, run_source
from herd.cli.preflight import require
from herd.cli.run_paths import place_for_results, run_with_checkpoint

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from herd.evaluation.trained_run import TrainedRun
    from herd.export.network import ExportedPolicy
    from herd.export.parity import Parity

_FORMATS = ("torch", "onnx")


def _parser() -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog="herd export",
        description="Writes the policy of a run's checkpoint for use without Herd (docs/export.md), and compares its outputs with those of "
        "the network while the network plays. FILE.json, next to FILE, describes the inputs and outputs.",
    )
    parser.add_argument("run_dir", type=run_source, metavar="RUN_DIR", help="run directory of herd train, or a file of herd pack")
    parser.add_argument("--format", choices=_FORMATS, default="torch", help="format of the file: that of torch.export, or ONNX")
    parser.add_argument("--checkpoint", type=Path, metavar="DIR", help="directory of one checkpoint; default: the newest intact one")
    parser.add_argument("--output", type=Path, metavar="FILE", help="file to write; default: RUN_DIR/policy-<updates>.pt2 or .onnx")
    parser.add_argument("--steps", type=POSITIVE_WHOLE, default=200, metavar="N", help="steps of each environment in the comparison")
    parser.add_argument(
        "--tolerance",
        type=POSITIVE,
        default=1e-4,
        metavar="X",
        help="largest allowed difference, relative to the output's largest number or to 1; if it is larger, no file is written",
    )
    return parser


def run(argv: Sequence[str]) -> int:
    """Export; returns the exit code: 1 if the exported policy differs from the network."""
    options = _parser().parse_args(argv)
    options.given = options.run_dir
    options.run_dir = run_with_checkpoint(options.given)
    require("torch", *(("onnx", "onnxruntime", "onnxscript") if options.format == "onnx" else ()))
    from herd.components.suites.api import BrokenEnvironmentError, UnknownTaskError  # noqa: PLC0415  loads torch; not needed for --help
    from herd.evaluation.protocols import EvaluationError  # noqa: PLC0415
    from herd.evaluation.trained_run import load_trained_run  # noqa: PLC0415

    try:
        return _export(load_trained_run(options.run_dir, options.checkpoint), options)
    except (BrokenEnvironmentError, EvaluationError, UnknownTaskError) as error:
        raise CommandError(str(error)) from error


def _export(run: TrainedRun, options: argparse.Namespace) -> int:
    from herd.export.formats import SUFFIXES, reader, write  # noqa: PLC0415  loads torch; not needed for --help
    from herd.export.network import ExportedPolicy  # noqa: PLC0415
    from herd.export.parity import compare  # noqa: PLC0415

    output = options.output or place_for_results(options.given, options.run_dir, f"policy-{run.learner_updates}{SUFFIXES[options.format]}")
    policy = ExportedPolicy(run.agent, run.spec)
    unchecked = output.with_name(f".{output.name}.unchecked")
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        try:
            write(policy, unchecked, options.format)
            parity = compare(run, policy, reader(unchecked, policy, options.format), steps=options.steps)
            print(_told(parity))
            if not parity.within(options.tolerance):
                print(
                    f"herd: the exported policy differs by more than --tolerance {options.tolerance:g}: nothing was written",
                    file=sys.stderr,
                )
                return 1
            described = output.with_name(output.name + ".json")
            described.write_text(json.dumps(_description(run, policy, parity, options.format), indent=1) + "\n", encoding="utf-8")
            unchecked.replace(output)
        finally:
            unchecked.unlink(missing_ok=True)
    except OSError as error:
        raise CommandError(f"cannot write {error.filename or output}: {error.strerror or error}") from error
    print(output, described, sep="\n")
    return 0


def _told(parity: Parity) -> str:
    found = ", ".join(f"{name} {value:.2g}" for name, value in parity.differences.items())
    played = f"{parity.rows:,} observations, {parity.games:,} finished games"
    return f"largest difference from the network: {found} ({played}); different greedy actions: {parity.other_actions:,}"


def _description(run: TrainedRun, policy: ExportedPolicy, parity: Parity, kind: str) -> dict[str, Any]:
    return {
        "format": kind,
        "run": run.settings.name,
        "checkpoint": run.checkpoint.name,
        "learner_updates": run.learner_updates,
        "env_frames": run.env_frames,
        "inputs": [port._asdict() for port in policy.inputs],
        "outputs": [port._asdict() for port in policy.outputs],
        "tasks": list(run.spec.task_names),
        "frame_stack": run.spec.frame_stack,
        "action_repeat": run.spec.action_repeat,
        "env": run.settings.env.model_dump(mode="json"),
        "parity": asdict(parity),
    }
