"""How far the recurrent states that actors stored are from those under newer weights: ``python benchmarks/state_drift.py``.

One process plays games of an experiment with an LSTM under the newest weights, one unroll after the other, and trains on each. Then the
replayer runs the core over the same games, from their first step, under the last weights, as it does for replayed episodes. At the start of
each unroll the two states are compared: |recomputed - stored| / |stored| (Euclidean, of the hidden and the cell state together), by the
number of updates between the policy that played the unroll and the last weights.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from benchmarks.self_play import SelfPlay
from herd.acting.policy import LocalPolicy
from herd.agent import agent_of
from herd.components.suites import environment_spec, make_environments
from herd.config.experiments import find_run_file
from herd.config.loading import load_settings
from herd.config.run_contract import run_layout
from herd.service.host import describe_hardware
from herd.training.batch import BatchBuffer
from herd.training.trainer import Trainer

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from herd.config.run import RunSettings
    from herd.contract.unroll import Array

LEAST_NORM = 1e-3
"""States below this norm were reset just before."""


def play_and_train(settings: RunSettings, trainer: Trainer, num_updates: int) -> list[dict[str, Array]]:
    """Return the unrolls [E, ...] of ``num_updates`` updates on E environments, in order."""
    spec, num_environments = environment_spec(settings.env), settings.actor.environments
    layout = run_layout(settings, spec)
    environments = make_environments(settings.env, num_environments=num_environments, first_slot=0, seed=settings.seed, num_threads=1)
    policy = LocalPolicy(agent_of(settings, spec), seed=settings.seed, precision=torch.float32)
    game = SelfPlay(settings, spec, layout, environments=environments, policy=policy)
    unrolls, env_frames = [], 0
    buffer = BatchBuffer(layout, 2 * num_environments)
    for update in range(num_updates):
        policy.load(trainer.weights(), (1, update))
        unrolls.append(game.unroll())
        env_frames += layout.new_steps * num_environments * spec.action_repeat
        write(buffer, unrolls[-1], 0, num_environments)
        buffer.set_counts(num_environments, 0)
        trainer(buffer, settings.optimizer.rates(env_frames=env_frames, learner_updates=update))
    environments.close()
    return unrolls


def recomputed(settings: RunSettings, trainer: Trainer, unrolls: list[dict[str, Array]]) -> list[NDArray[np.float32]]:
    """Return the states [E, 2, H] at the start of each unroll under the trainer's weights; the games begin with the first unroll."""
    num_environments = settings.actor.environments
    buffer = BatchBuffer(run_layout(settings, environment_spec(settings.env)), 2 * num_environments)
    states = []
    for unroll in unrolls:
        write(buffer, unroll, 0, num_environments)
        write(buffer, unroll, num_environments, 2 * num_environments)
        buffer.set_counts(num_environments, num_environments)
        batch = trainer.to_device(buffer)
        trainer.begin(batch, num_environments)
        trainer.launch(batch)
        states.append(buffer.arrays["initial_core_state"][num_environments:].copy())
    return states


def write(buffer: BatchBuffer, unroll: dict[str, Array], start: int, stop: int) -> None:
    for name, array in buffer.arrays.items():
        if name in unroll:
            array[start:stop] = unroll[name]


def drift_by_staleness(
    stored: list[Array], states: list[NDArray[np.float32]], num_bins: int
) -> list[tuple[int, int, int, float, float, float]]:
    """Rows of: least and most updates, number of states, median, 90 % quantile and maximum of the relative drift."""
    flat = [(np.asarray(one).reshape(len(one), -1), two.reshape(len(two), -1)) for one, two in zip(stored, states, strict=True)]
    ages, drifts = [], []
    for update, (one, two) in enumerate(flat):
        norms = np.linalg.norm(one, axis=1)
        known = norms > LEAST_NORM
        drifts += (np.linalg.norm(two - one, axis=1)[known] / norms[known]).tolist()
        ages += [len(flat) - update] * int(known.sum())
    rows = []
    for ages_of_bin in np.array_split(np.arange(1, len(flat) + 1), num_bins):
        least, most = int(ages_of_bin[0]), int(ages_of_bin[-1])
        found = np.array([drift for age, drift in zip(ages, drifts, strict=True) if least <= age <= most])
        if len(found):
            rows.append((least, most, len(found), float(np.median(found)), float(np.quantile(found, 0.9)), float(found.max())))
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--experiment", default="laser-quick", help="it is played with an LSTM, and without an average image")
    parser.add_argument("--environments", type=int, default=8, help="games side by side; each update trains on one unroll of each")
    parser.add_argument("--updates", type=int, default=100)
    parser.add_argument("--bins", type=int, default=8, help="of staleness")
    parser.add_argument("--output", type=Path, help="the report, as Markdown")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    batch_size, num_environments = str(2 * arguments.environments), str(arguments.environments)
    words = ["--network.core", "lstm", "--network.input_centering", "none", "--replay.fraction", "0.5"]
    words += ["--learner.batch_size", batch_size, "--actor.environments", num_environments]
    settings = load_settings([find_run_file(Path(arguments.experiment))], words, {})
    trainer = Trainer(settings, environment_spec(settings.env), torch.device("cpu"), torch.float32)
    started = time.process_time()
    unrolls = play_and_train(settings, trainer, arguments.updates)
    states = recomputed(settings, trainer, unrolls)
    rows = drift_by_staleness([unroll["initial_core_state"] for unroll in unrolls], states, arguments.bins)
    hardware, command = describe_hardware(), " ".join(["python benchmarks/state_drift.py", *sys.argv[1:]])
    num_steps = sum(unroll["actions"].size for unroll in unrolls)
    lines = [
        "# Drift of stored recurrent states",
        "",
        f"`{command}`, {time.strftime('%Y-%m-%d')}, {hardware['usable_cores']} cores of {hardware['processor']}, "
        f"{time.process_time() - started:.0f} core-seconds: {arguments.experiment} with an LSTM, {num_steps} agent steps in all.",
        "",
        "| updates since it was played | states | median drift | 90 % | largest |",
        "| --- | --- | --- | --- | --- |",
        *(f"| {least} to {most} | {count} | {middle:.3f} | {high:.3f} | {top:.3f} |" for least, most, count, middle, high, top in rows),
    ]
    text = "\n".join(lines) + "\n"
    if arguments.output is not None:
        arguments.output.write_text(text)
    sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
