"""Measures the cost of many tasks, and how equal their frames are:
``python -m benchmarks.many_tasks EXPERIMENT --output FILE [--section.key value]``.

It trains the experiment as it is, and each of its first tasks alone with the same settings, in turn. Every run is a ``herd train``,
measured from outside after a warm-up. It writes one JSON object: core-microseconds per agent step and frames/s of every repeat, and for the
run of all tasks each task's frames, with (most - least) / mean.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.machine.system import measure_system
from herd.components.suites import environment_spec
from herd.config.loading import dump_settings, load_settings

if TYPE_CHECKING:
    from herd.config.run import RunSettings

WARMUP_SECONDS = 10.0


def measured(settings: RunSettings, folder: Path, name: str, seconds: float) -> dict[str, Any]:
    """Return the cost of one run, and the report's figures of each task."""
    config = folder / f"{name}.yaml"
    config.write_text(dump_settings(settings))
    run_dir = folder / name
    measurement = measure_system(config, run_dir, seconds=seconds, warmup_seconds=WARMUP_SECONDS)
    report = json.loads((run_dir / "report.json").read_text())
    action_repeat = environment_spec(settings.env).action_repeat
    return {
        **asdict(measurement),
        "core_microseconds": measurement.core_microseconds,
        "frames_per_second": measurement.agent_steps_per_second * action_repeat,
        "task_frames_spread": report.get("task_frames_spread"),
        "accounting": report["accounting"],
        "tasks": {name: {"env_frames": task["env_frames"], **task["episode_return"]} for name, task in report["tasks"].items()},
    }


def line(name: str, runs: list[dict[str, Any]]) -> str:
    """Return the median and extremes over the repeats."""
    costs, rates = ([run[key] for run in runs] for key in ("core_microseconds", "frames_per_second"))
    text = (
        f"{name:24} {statistics.median(costs):8.1f} core-us ({min(costs):.1f} - {max(costs):.1f}) {statistics.median(rates):9,.0f} frames/s"
    )
    spreads = [run["task_frames_spread"] for run in runs if run["task_frames_spread"] is not None]
    return text + (f"  spread of frames {statistics.median(spreads):.2%} (at most {max(spreads):.2%})" if spreads else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment", type=Path)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--alone", type=int, default=3, help="so many of the tasks are also measured by themselves")
    options, overrides = parser.parse_known_args()
    together = load_settings([options.experiment], overrides, {})
    names = ["together", *together.env.tasks[: options.alone]]
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    with tempfile.TemporaryDirectory() as folder:
        for repeat in range(options.repeats):
            # In turn, so that a slow hour of the machine affects all.
            for name in names:
                tasks = together.env.tasks if name == "together" else (name,)
                settings = together.model_copy(update={"env": together.env.model_copy(update={"tasks": tasks})})
                runs[name].append(measured(settings, Path(folder), f"{name}-{repeat}", options.seconds))
                print(line(name, runs[name]), flush=True)
    result = {"experiment": together.name, "overrides": overrides, "machine": platform.processor() or platform.machine(), "runs": runs}
    options.output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
