"""Coverage-guided fuzzing in one process, with atheris, which is libFuzzer. Each target has its own process and begins with its seeds.

MessagePack in Python has coverage that can be measured; MessagePack in C is what production uses.
"""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
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
    "tensors": "targets",
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
        from benchmarks.fuzz.targets import mutate, mutate_tensors  # noqa: PLC0415
    random_step = mutate_tensors if target == "tensors" else None

    def mutator(data: bytes, max_bytes: int, seed: int) -> bytes:
        if random_step is not None:
            data = random_step(data, Random(seed))
        return mutate(data, max_bytes, Random(seed), atheris.Mutate, framed=target not in UNFRAMED)

    atheris.Setup([sys.argv[0], *arguments], function, custom_mutator=mutator)
    atheris.Fuzz()


def run(target: str, variant: str, corpus: Path, crashes: Path, *, seconds: int, seed: int) -> dict[str, Any]:
    """Fuzz one target for ``seconds``; return how many inputs it had, and whether one crashed it."""
    _, seeds, max_bytes = load(target)
    corpus.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(seeds()):
        (corpus / f"seed-{number:03d}").write_bytes(data)
    limits = [f"-max_total_time={seconds}", f"-max_len={max_bytes}", "-rss_limit_mb=2048", "-timeout=10"]
    command = [sys.executable, "-m", "benchmarks.fuzz.decoder", target, *limits, f"-seed={seed}"]
    command += ["-print_final_stats=1", f"-artifact_prefix={crashes}/{target}-{variant}-", str(corpus)]
    environ = os.environ | ({"MSGPACK_PUREPYTHON": "1"} if variant == "python" else {})
    done = subprocess.run(
        command, cwd=ROOT, env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False,
        errors="replace", timeout=seconds + 300,
    )  # fmt: skip
    if done.returncode != 0:
        print(done.stderr[-4000:], file=sys.stderr)
    executions = re.search(r"stat::number_of_executed_units: *(\d+)", done.stderr)
    return {"executions": int(executions.group(1)) if executions else 0, "crashed": done.returncode != 0}


if __name__ == "__main__":
    child(sys.argv[1], sys.argv[2:])
