"""Measures what a shared replay is worth: agents of one run with one replay, against each of them alone with its own.

``python -m benchmarks.shared_replay --output DIR --env.tasks breakout`` trains ``laser-quick-shared`` (or ``--experiment``)
for every seed, and each of its agents in a run of its own, with the same seed, settings and number of frames. Complete runs in ``DIR/runs``
are not trained again. It prints a table and writes ``DIR/shared-replay.json``. An agent and its twin are a pair, and differences are taken
within pairs. Intervals are 95 % bootstrap intervals over seeds. Words after the options are passed to ``herd train``.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import yaml

from benchmarks.intervals import Estimate, estimate, estimates_as_json, print_estimates
from benchmarks.whole_runs import train_missing
from herd.config.loading import load_settings
from herd.run.paths import agent_directories
from herd.service.host import describe_hardware
from herd.sweeps.summary import final_return
from herd.view.plots.history import read_run

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from herd.config.run import RunSettings

Pair = dict[str, dict[str, float]]
"""Figures of an agent, by name: ``shared`` with the others, ``alone`` in its twin."""
EXPERIMENTS = Path(__file__).parents[1] / "experiments"
MIN_SEEDS = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--experiment", default="laser-quick-shared")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--limit-seconds", type=float, default=3600.0, help="of one run")
    options, overrides = parser.parse_known_args()
    if options.seeds < MIN_SEEDS:
        parser.error(f"--seeds must be at least {MIN_SEEDS}: the bootstrap of fewer gives intervals that say nothing")
    # So that SIGTERM also ends the current run.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    shared = EXPERIMENTS / f"{options.experiment}.yaml"
    settings = load_settings([shared], overrides, {})
    options.output.mkdir(parents=True, exist_ok=True)
    alone = options.output / "alone.yaml"
    alone.write_text(yaml.safe_dump(without_sweep(yaml.safe_load(shared.read_text(encoding="utf-8")))))
    measured: dict[str, list[Pair]] = {}
    for number in range(options.seeds):
        # An agent's seed is the run's plus its number, so agents of different runs differ too.
        seed = 1 + number * settings.agents
        together = options.output / "runs" / f"shared-seed{seed}"
        train_missing(together, shared, ["--seed", str(seed), *overrides], limit_seconds=options.limit_seconds)
        for agent, directory in enumerate(agent_directories(together)):
            own = settings.model_copy(update={"seed": seed}).of_agent(agent)
            single = options.output / "runs" / f"alone-seed{own.seed}"
            train_missing(single, alone, [*overrides, *twin(own)], limit_seconds=options.limit_seconds)
            measured.setdefault(name_of(own), []).append({"shared": measure(directory), "alone": measure(single)})
    estimates = compare(measured)
    print_estimates(estimates)
    found = {
        "experiment": options.experiment,
        "overrides": overrides,
        "seeds": options.seeds,
        "hardware": describe_hardware(),
        "measured": measured,
        "estimates": estimates_as_json(estimates),
    }
    (options.output / "shared-replay.json").write_text(json.dumps(found, indent=1) + "\n")


def without_sweep(experiment: Mapping[str, object]) -> dict[str, object]:
    """Return the experiment for a single agent."""
    return {key: value for key, value in experiment.items() if key not in {"agents", "sweep"}}


def twin(own: RunSettings) -> list[str]:
    """Return the words that make a run of one agent equal to ``own``, an agent of a sweep."""
    values = [word for key, value in own.own_values.items() for word in (f"--{key}", str(value))]
    return ["--seed", str(own.seed), "--actor.count", str(own.actors_per_agent), *values]


def name_of(own: RunSettings) -> str:
    """Return the swept values of an agent, in words."""
    return ", ".join(f"{key} {value:g}" if isinstance(value, float) else f"{key} {value}" for key, value in own.own_values.items())


def measure(run_dir: Path) -> dict[str, float]:
    """Return mean returns at the end and over the whole run, of an agent of one task."""
    history = read_run(run_dir)
    (returns,) = history.episode_returns.values()
    return {"final": final_return(history.env_frames, returns), "whole run": float(np.nanmean(returns))}


def compare(measured: Mapping[str, Sequence[Pair]]) -> dict[str, dict[str, Estimate]]:
    """Return both, and the gain by sharing within pairs, for each agent and for the best one of each seed."""
    rows: dict[str, dict[str, Estimate]] = {}
    for figure in ("final", "whole run"):
        agents = {name: [(pair["shared"][figure], pair["alone"][figure]) for pair in pairs] for name, pairs in measured.items()}
        seeds = list(zip(*agents.values(), strict=True))
        agents["the best"] = [(max(shared for shared, _ in each), max(alone for _, alone in each)) for each in seeds]
        for name, values in agents.items():
            rows[f"{figure}, {name}"] = {
                "shared": estimate([shared for shared, _ in values]),
                "alone": estimate([alone for _, alone in values]),
                "gain": estimate([shared - alone for shared, alone in values]),
            }
    return rows


if __name__ == "__main__":
    main()
