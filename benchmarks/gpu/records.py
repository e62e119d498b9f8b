"""The cases of a part and their results in one JSON file, which is written after every case: a part that was interrupted goes on."""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from herd.service.host import describe_hardware

if TYPE_CHECKING:
    from pathlib import Path

Numbers = dict[str, Any]
Case = Callable[[], Numbers]
Cases = Mapping[str, Case]
"""By name, in the order in which they run. A name says all that distinguishes a case."""
REPEATS = 5


def run_cases(file: Path, cases: Cases, *, device: str | None = None) -> None:
    """Run the cases that ``file`` has no result of. A case that fails leaves its error there, and is tried again the next time."""
    record = json.loads(file.read_text()) if file.exists() else {"cases": {}}
    for name, case in cases.items():
        if name in record["cases"] and "error" not in record["cases"][name]:
            continue
        started = time.monotonic()
        try:
            numbers = case()
        except Exception as error:
            numbers = {"error": f"{type(error).__name__}: {error}".strip()[:500]}
        date = datetime.now(UTC).isoformat(timespec="seconds")
        record["cases"][name] = {**numbers, "date": date, "took_seconds": round(time.monotonic() - started, 1)}
        record |= {
            "date": date,
            "command": " ".join(["python", "-m", "benchmarks.gpu", *sys.argv[1:]]),
            "hardware": {**describe_hardware(), "gpu": device},
        }
        write_json(file, record)
        print(f"{file.stem}: {name}: {one_line(record['cases'][name])}", flush=True)


def write_json(file: Path, content: Mapping[str, Any]) -> None:
    """Write atomically, so that an interrupted run leaves a readable file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    new = file.with_suffix(".new")
    new.write_text(json.dumps(content, indent=1) + "\n")
    os.replace(new, file)


def one_line(numbers: Numbers) -> str:
    """Return a result for people who watch."""
    return " ".join(f"{key}={value:.5g}" if isinstance(value, float) else f"{key}={value}" for key, value in numbers.items())


def spread(values: list[float]) -> Numbers:
    """Return the median, the lowest and the highest."""
    return {"median": statistics.median(values), "lowest": min(values), "highest": max(values)}


def seconds_per_step(step: Callable[[], object], wait: Callable[[], object], *, seconds: float, warmup_steps: int = 3) -> list[float]:
    """Call ``step`` for ``seconds`` in `REPEATS` equal parts, and return the seconds of a step in each. ``wait`` waits for the device."""
    for _ in range(warmup_steps):
        step()
    wait()
    started = time.perf_counter()
    step()
    wait()
    number = max(1, round(seconds / REPEATS / max(1e-6, time.perf_counter() - started)))
    measured = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        for _ in range(number):
            step()
        wait()
        measured.append((time.perf_counter() - started) / number)
    return measured
