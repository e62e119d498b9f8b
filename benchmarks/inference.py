"""Compares local and central inference: whole runs in turn, for the shallow network, the deep one, and the deep one with an LSTM.

``python -m benchmarks.inference --pairs 3 --seconds 20 --output FILE [--networks shallow deep] [--inference.device cuda ...]``. Each run is
``herd train`` as a user starts it. The order within a pair alternates, so that a machine that slows down favours neither. Nothing else may
run. Options with a dot are settings of both runs.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import threading
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from benchmarks.machine.system import measure_system
from herd.config.loading import dump_settings, load_settings
from herd.config.loading.sources import split_arguments
from herd.protocols.inference import metrics as inference_metrics
from herd.service.host import describe_hardware
from herd.telemetry.scrape import ScrapeError, scrape, total

if TYPE_CHECKING:
    from collections.abc import Iterator

    from herd.telemetry.scrape import Samples

LSTM = {"network": {"core": {"kind": "lstm", "size": 256}, "last_action_and_reward": True}}
NETWORKS: dict[str, tuple[str, dict[str, Any]]] = {
    "shallow": ("breakout", {}),
    "deep": ("atari-deep", {}),
    "deep-lstm": ("atari-deep", LSTM),
}
"""The experiment of each network, and its changed settings."""
WAYS = ("local", "remote")
GOAL_SECONDS = 0.009
"""Longest round trip that 99 % of the answers may take."""
ROOT = Path(__file__).parents[1]


def main() -> int:
    """Measure, print a table, and write everything to FILE."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20.0, help="measured of each run")
    parser.add_argument("--warmup-seconds", type=float, default=10.0)
    parser.add_argument("--output", type=Path)
    options, words = parser.parse_known_args()
    _, overrides = split_arguments(words, file_option="--config")
    results: dict[str, Any] = {"date": datetime.now(UTC).isoformat(timespec="seconds"), "hardware": describe_hardware()}
    results |= {"seconds": options.seconds, "settings": words, "networks": {}}
    print(
        "| network | local, frames/s | remote, frames/s | ratio, median (lowest to highest) | core-us a step, local, remote | within 9 ms |"
    )
    print("| --- | --- | --- | --- | --- | --- |", flush=True)
    for network in options.networks:
        pairs = []
        for number in range(options.pairs):
            order = WAYS if number % 2 == 0 else WAYS[::-1]
            pairs.append({way: run(network, way, overrides, options.seconds, options.warmup_seconds) for way in order})
        results["networks"][network] = pairs
        print(row(network, pairs), flush=True)
    if options.output is not None:
        options.output.write_text(json.dumps(results, indent=1) + "\n")
    return 0


def run(network: str, way: str, overrides: Any, seconds: float, warmup_seconds: float) -> dict[str, float]:
    """Return the figures of one run: frames per second, core-us per agent step, and for remote inference the share of answers within 9
    ms."""
    experiment, changes = NETWORKS[network]
    with tempfile.TemporaryDirectory() as folder:
        own = Path(folder) / "changes.yaml"
        own.write_text(yaml.safe_dump({**changes, "actor": {"inference": way}}))
        settings = load_settings([ROOT / "experiments" / f"{experiment}.yaml", own], overrides, {})
        config = Path(folder) / "experiment.yaml"
        config.write_text(dump_settings(settings))
        run_dir = Path(folder) / "run"
        with watched(run_dir) as round_trips:
            measured = measure_system(config, run_dir, seconds=seconds, warmup_seconds=warmup_seconds)
    found = {
        "frames_per_second": measured.agent_steps_per_second * settings.env.action_repeat,
        "core_microseconds_per_agent_step": measured.core_microseconds,
    }
    if way == "remote":
        found |= {"within_goal": round_trips.share_within_goal, "mean_round_trip_seconds": round_trips.mean_seconds}
    return found


class RoundTrips:
    """The latest round-trip histogram of each actor."""

    def __init__(self) -> None:
        self._last: dict[str, Samples] = {}

    def look(self, run_dir: Path) -> None:
        """Read every actor's metrics; those of an actor that does not answer stay."""
        for file in run_dir.glob("processes/actor-*.json"):
            try:
                port = json.loads(file.read_text())["metrics_port"]
                self._last[file.name] = scrape(f"http://127.0.0.1:{port}/metrics")
            except (OSError, ValueError, KeyError, ScrapeError):
                continue

    @property
    def share_within_goal(self) -> float:
        """Share of all answers that arrived within `GOAL_SECONDS`."""
        return self._sum("_bucket", le=f"{GOAL_SECONDS}") / max(1.0, self._sum("_count"))

    @property
    def mean_seconds(self) -> float:
        """Mean over all answers."""
        return self._sum("_sum") / max(1.0, self._sum("_count"))

    def _sum(self, suffix: str, **labels: str) -> float:
        return sum(total(samples, inference_metrics.ACTOR_ROUND_TRIP.name + suffix, **labels) for samples in self._last.values())


@contextmanager
def watched(run_dir: Path) -> Iterator[RoundTrips]:
    """Read the metrics of the run's actors once a second."""
    round_trips, ended = RoundTrips(), threading.Event()

    def watch() -> None:
        while not ended.wait(1.0):
            round_trips.look(run_dir)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield round_trips
    finally:
        ended.set()
        thread.join()


def row(network: str, pairs: list[dict[str, dict[str, float]]]) -> str:
    """Return the medians of both ways, and the ratio of each pair."""

    def median(way: str, figure: str) -> float:
        return statistics.median(pair[way][figure] for pair in pairs)

    ratios = [pair["remote"]["frames_per_second"] / pair["local"]["frames_per_second"] for pair in pairs]
    frames = [f"{median(way, 'frames_per_second'):,.0f}" for way in WAYS]
    cost = ", ".join(f"{median(way, 'core_microseconds_per_agent_step'):,.0f}" for way in WAYS)
    spread = f"{statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})"
    return f"| {network} | {frames[0]} | {frames[1]} | {spread} | {cost} | {median('remote', 'within_goal'):.1%} |"


if __name__ == "__main__":
    sys.exit(main())
