"""Measures the cost of ``herd status --release`` for thousands of actors: API calls, seconds in addition to the sampling time, memory.

``python -m benchmarks.status_cost --output benchmarks/results/FILE.json``. The API server is the tests' stand-in, in its own process on
loopback. Its answers have the form and size of a real server's, but may be faster or slower. Each run of the command is a process.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.kube.fake_api_server import FakeCluster, serving, write_kubeconfig
from tests.kube.fake_objects import holder_page, learner_page, pod, workload

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

MOST_CALLS, MOST_SECONDS, MOST_BYTES = 40, 3.0, 120 << 20
"""Limits for 4,000 actors."""
SAMPLING_SECONDS = 5.0
_OTHER_SERIES = 60
"""Number of series on a process's page that this command ignores, in addition to the dozen that it reads."""


def release(actors: int, shards: int, replicas: int) -> FakeCluster:
    """Return a release in which one actor in a hundred is not ready, with metrics pages as long as those of real processes."""
    filler = "".join(f'herd_other_series_{number}_total{{kind="something"}} {number}\n' for number in range(_OTHER_SERIES))
    counts = {"learner": shards, "paramserver": 1, "paramserver-replica": replicas}
    pods = [pod(f"herd-{name}-{number}", name) for name, count in counts.items() for number in range(count)]
    pods += [pod(f"herd-actor-5d9f7c-{number:05}", "actor", ready=number % 100 != 7) for number in range(actors)]
    sets = [workload("StatefulSet", name, count) for name, count in counts.items()]
    cluster = FakeCluster(objects={"pods": pods, "deployments": [workload("Deployment", "actor", actors)], "statefulsets": sets})
    start = time.monotonic()
    for each in pods:
        name = each["metadata"]["name"]
        if "learner" in name:
            cluster.pages[name] = lambda: learner_page(frames=1e4 * (time.monotonic() - start), updates=120) + filler
        else:
            cluster.pages[name] = holder_page(updates=119) + filler
    return cluster


def serve(pipe: Connection, actors: int, shards: int, replicas: int) -> None:
    """Serve until told to end; answer any other message with the number of requests since the last one."""
    cluster = release(actors, shards, replicas)
    with serving(cluster) as address:
        pipe.send(address)
        while pipe.recv() != "end":
            pipe.send(len(cluster.requests))
            cluster.requests.clear()


def run_once(kubeconfig: Path, words: tuple[str, ...] = ()) -> dict[str, float]:
    """Run the command once; return wall seconds in addition to the sampling time, processor seconds, and peak memory in bytes.

    Raises:
        RuntimeError: the command failed.
    """
    command = [sys.executable, "-m", "herd.cli.main", "status", "--release", "herd", "--seconds", str(SAMPLING_SECONDS), *words]
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("KUBE", "HERD_"))}
    began = time.perf_counter()
    with Path(os.devnull).open("w") as nowhere:
        child = os.posix_spawn(
            sys.executable,
            command,
            environ | {"KUBECONFIG": str(kubeconfig)},
            file_actions=[(os.POSIX_SPAWN_DUP2, nowhere.fileno(), 1)],
        )
        _, status, usage = os.wait4(child, 0)
    wall = time.perf_counter() - began
    if status:
        raise RuntimeError(f"herd status ended with {os.waitstatus_to_exitcode(status)}")
    return {
        "seconds_beside_sampling": wall - SAMPLING_SECONDS,
        "processor_seconds": usage.ru_utime + usage.ru_stime,
        "memory_bytes": usage.ru_maxrss * 1024,
    }


def measure(actors: int, shards: int, replicas: int, repeats: int, words: tuple[str, ...] = ()) -> list[dict[str, float]]:
    """Run the command ``repeats`` times, after one uncounted run that reads files from the disk."""
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(theirs, actors, shards, replicas), daemon=True)
    server.start()
    try:
        runs = []
        with tempfile.TemporaryDirectory() as folder:
            kubeconfig = write_kubeconfig(Path(folder) / "kubeconfig", ours.recv())
            for _ in range(repeats + 1):
                run = run_once(kubeconfig, words)
                ours.send("how many")
                runs.append(run | {"api_calls": ours.recv()})
        ours.send("end")
        return runs[1:]
    finally:
        server.join(timeout=5)
        server.terminate()


def summary(runs: list[dict[str, float]]) -> dict[str, Any]:
    """Return the median of each figure, with its lowest and highest value."""
    columns = {name: [run[name] for run in runs] for name in runs[0]}
    return {name: {"median": statistics.median(each), "lowest": min(each), "highest": max(each)} for name, each in columns.items()}


def is_within(figures: dict[str, Any]) -> bool:
    """Return whether the medians are within the limits."""
    return bool(
        figures["api_calls"]["median"] <= MOST_CALLS
        and figures["seconds_beside_sampling"]["median"] <= MOST_SECONDS
        and figures["memory_bytes"]["median"] <= MOST_BYTES
    )


def main() -> int:
    """Measure, print and write; return 1 if a limit is exceeded."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.status_cost", description="The cost of herd status --release.")
    parser.add_argument("--actors", type=int, default=4_000)
    parser.add_argument("--shards", type=int, default=2)
    parser.add_argument("--replicas", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--note", default="", help="what else the machine did meanwhile")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    figures = summary(measure(options.actors, options.shards, options.replicas, options.repeats))
    told = {
        "date": datetime.now(UTC).date().isoformat(),
        "command": " ".join(["python -m benchmarks.status_cost", *sys.argv[1:]]),
        "cores": os.cpu_count(),
        "note": options.note,
        "actors": options.actors,
        "learner_shards": options.shards,
        "paramserver_replicas": options.replicas,
        "repeats": options.repeats,
        "limits": {"api_calls": MOST_CALLS, "seconds_beside_sampling": MOST_SECONDS, "memory_bytes": MOST_BYTES},
        "figures": figures,
    }
    print(json.dumps(told, indent=2))
    if options.output is not None:
        options.output.write_text(json.dumps(told, indent=2) + "\n")
    return 0 if is_within(figures) else 1


if __name__ == "__main__":
    sys.exit(main())
