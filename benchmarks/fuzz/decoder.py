"""Coverage-guided fuzzing of the decoder: ``python -m benchmarks.fuzz.decoder --seconds 60 --output FILE``.

It needs the extra ``fuzz`` (atheris, which is libFuzzer). Each target runs in its own process and begins with the golden messages: first
with MessagePack in Python, whose coverage can be measured, then with MessagePack in C, which production uses, beginning with the inputs
that the first one found. It prints a table and writes a report. The exit code is 1 if anything crashed, and the input that caused the crash
is kept.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ROOT = Path(__file__).parents[2]
VARIANTS = ("python", "c")
"""The implementation of MessagePack that reads the headers."""
MODULES = {
    **dict.fromkeys(("header", "unrolls", "weights", "replay", "snapshot", "inference"), "targets"),
    **dict.fromkeys(("learner", "bandit", "population", "replica"), "services"),
    "tensors": "tensors",
}
"""Target -> its module; each target imports only what it needs."""
UNFRAMED = ("header", "tensors")
"""Targets whose input is one frame."""


def load(target: str) -> tuple[Callable[[bytes], None], Callable[[], Sequence[bytes]], int]:
    """Return the function, its seeds, and the length of the longest input in bytes."""
    module = importlib.import_module(f"benchmarks.fuzz.{MODULES[target]}")
    found: tuple[Callable[[bytes], None], Callable[[], Sequence[bytes]], int] = module.TARGETS[target]
    return found


def child(target: str, arguments: list[str]) -> None:
    """Fuzz one target in this process; libFuzzer ends it."""
    import atheris  # noqa: PLC0415  an extra of its own

    own = [
        *("herd.protocols", "herd.rpc", "herd.run", "herd.transport"),
        *("herd_bandit", "herd_inference", "herd_learner", "herd_paramserver", "herd_population"),
    ]
    with atheris.instrument_imports(include=[*own, "herd_replay", "msgpack"]):
        function, _, _ = load(target)  # instrumented while imported
        from benchmarks.fuzz.targets import mutate  # noqa: PLC0415
    random_step = importlib.import_module("benchmarks.fuzz.tensors").mutate_tensors if target == "tensors" else None

    def mutator(data: bytes, max_bytes: int, seed: int) -> bytes:
        if random_step is not None:
            data = random_step(data, Random(seed))
        return mutate(data, max_bytes, Random(seed), atheris.Mutate, framed=target not in UNFRAMED)

    atheris.Setup([sys.argv[0], *arguments], function, custom_mutator=mutator)
    atheris.Fuzz()


def run(target: str, variant: str, corpus: Path, crashes: Path, *, seconds: int, runs: int, seed: int) -> dict[str, Any]:
    """Fuzz one target for ``seconds`` or ``runs`` inputs, whichever comes first; return libFuzzer's final statistics."""
    _, seeds, max_bytes = load(target)
    corpus.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(seeds()):
        (corpus / f"seed-{number:03d}").write_bytes(data)
    limits = [f"-max_total_time={seconds}", f"-runs={runs}", f"-max_len={max_bytes}", "-rss_limit_mb=2048", "-timeout=10"]
    command = [sys.executable, "-m", "benchmarks.fuzz.decoder", "--child", target, *limits, f"-seed={seed}"]
    command += ["-print_final_stats=1", f"-artifact_prefix={crashes}/{target}-{variant}-", str(corpus)]
    environ = os.environ | ({"MSGPACK_PUREPYTHON": "1"} if variant == "python" else {})
    started = time.monotonic()
    done = subprocess.run(
        command, cwd=ROOT, env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False,
        errors="replace", timeout=seconds + 300,
    )  # fmt: skip
    wall = time.monotonic() - started
    if done.returncode != 0:
        print(done.stderr[-4000:], file=sys.stderr)
    return read_statistics(done.stderr) | {"crashed": done.returncode != 0, "wall_seconds": round(wall, 1), "max_input_bytes": max_bytes}


def read_statistics(said: str) -> dict[str, Any]:
    """Read the numbers in libFuzzer's last lines."""
    executions = re.search(r"stat::number_of_executed_units: *(\d+)", said)
    rate = re.search(r"stat::average_exec_per_sec: *(\d+)", said)
    progress = re.findall(r"cov: (\d+) ft: (\d+) corp: (\d+)", said)
    coverage, features, inputs = map(int, progress[-1]) if progress else (0, 0, 0)
    return {
        "executions": int(executions.group(1)) if executions else 0,
        "executions_per_second": int(rate.group(1)) if rate else 0,
        "coverage": coverage,
        "features": features,
        "corpus_inputs": inputs,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=60, help="of each target and variant")
    parser.add_argument("--runs", type=int, default=-1, help="inputs of each, at most; -1 for no bound")
    parser.add_argument("--targets", nargs="*", default=list(MODULES), choices=list(MODULES))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--corpus", type=Path, help="kept here between runs; default: a temporary folder")
    parser.add_argument("--output", type=Path, help="the report, as JSON")
    arguments = parser.parse_args()
    if find_spec("atheris") is None:
        parser.error("needs atheris: pip install 'herd-rl[fuzz]'")
    from herd.service.host import describe_hardware  # noqa: PLC0415  see above

    report: dict[str, Any] = {
        "command": " ".join(["python -m benchmarks.fuzz.decoder", *sys.argv[1:]]),
        "date": time.strftime("%Y-%m-%d"),
        "hardware": describe_hardware(),
        "targets": {},
    }
    with tempfile.TemporaryDirectory() as temporary:
        crashes = Path(temporary)
        corpus = arguments.corpus or crashes / "corpus"
        print(f"{'target':<10}{'msgpack':<9}{'executions':>12}{'per second':>12}{'coverage':>10}{'features':>10}{'corpus':>8}  crashed")
        for target in arguments.targets:
            for variant in VARIANTS:
                limits = {"seconds": arguments.seconds, "runs": arguments.runs, "seed": arguments.seed}
                result = run(target, variant, corpus / target, crashes, **limits)
                report["targets"][f"{target}, msgpack in {variant}"] = result
                row = (result[name] for name in ("executions", "executions_per_second", "coverage", "features", "corpus_inputs"))
                print(
                    "{:<10}{:<9}{:>12,}{:>12,}{:>10,}{:>10,}{:>8,}".format(target, variant, *row), " yes" if result["crashed"] else "  no"
                )
        for found in sorted(crashes.glob("*-*-*")):
            kept = Path(f"crash-{found.name}")
            kept.write_bytes(found.read_bytes())
            print(f"input kept as {kept}")
    report["executions"] = sum(result["executions"] for result in report["targets"].values())
    report["crashes"] = sum(result["crashed"] for result in report["targets"].values())
    if arguments.output is not None:
        arguments.output.write_text(json.dumps(report, indent=2) + "\n")
    print(f"{report['executions']:,} inputs, {report['crashes']} crashes")
    return 1 if report["crashes"] else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2], sys.argv[3:])
    sys.exit(main())
