"""Whether a change of the code leaves learning as it was, bit for bit.

``python -m benchmarks.equality record DIR`` plays and trains 200 updates of four experiments in one process and writes every loss and a
digest of the weights into DIR; ``python -m benchmarks.equality check DIR``, after the change, does it again and compares.

One process, one thread, float32 and fixed seeds: actors act under the newest weights, so a difference anywhere between the
environment and the optimizer's step shows in all that follows. Records hold for one kind of processor: others round otherwise.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from herd_learner.batches.assembler import BatchAssembler
from herd_learner.intake.queue import QueuedUnroll, UnrollQueue

from benchmarks.self_play import SelfPlay
from herd.acting.policy import LocalPolicy
from herd.acting.temperatures import Temperatures
from herd.agent import agent_of
from herd.components.suites import environment_spec, make_environments
from herd.config.loading import load_settings
from herd.config.run_contract import run_layout
from herd.training.trainer import Trainer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from herd.config.run import RunSettings

ROOT = Path(__file__).parents[1]
EXPERIMENTS = ("catch", "breakout", "dice-catch", "pong")
UPDATES = 200
DIGEST_EVERY = 20
SEED = 7


def main() -> int:
    """Record, or check against the records; exit code 1 where something differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=("record", "check"))
    parser.add_argument("directory", type=Path, metavar="DIR", help="of the records")
    parser.add_argument("experiments", nargs="*", default=EXPERIMENTS)
    arguments = parser.parse_args()
    arguments.directory.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    differing = 0
    for name in arguments.experiments:
        started = time.monotonic()
        found = train(load_settings([ROOT / f"experiments/{name}.yaml"], ["--seed", str(SEED)], {}))
        path = arguments.directory / f"{name}.json"
        if arguments.action == "record":
            path.write_text(json.dumps(found, indent=1) + "\n")
            print(f"{name}: recorded, {time.monotonic() - started:.0f} s")
            continue
        problem = difference(json.loads(path.read_text()), found)
        differing += problem is not None
        print(f"{name}: {problem or f'equal over {UPDATES} updates'}, {time.monotonic() - started:.0f} s", flush=True)
    return 1 if differing else 0


def train(settings: RunSettings) -> dict[str, Any]:
    """Losses of every update as hexadecimal floats, and digests of the weights by number of updates."""
    losses: list[dict[str, str]] = []
    digests: dict[str, str] = {}
    spec = environment_spec(settings.env)
    layout = run_layout(settings, spec)
    device, precision = torch.device("cpu"), torch.float32
    trainer = Trainer(settings, spec, device, precision)
    batches = BatchAssembler(layout, settings, device)
    queue = UnrollQueue()
    num_environments = settings.actor.environments
    agent = agent_of(settings, spec)
    policy = LocalPolicy(agent, seed=SEED, precision=precision)
    environments = make_environments(settings.env, num_environments=num_environments, first_slot=0, seed=SEED, num_threads=1)
    temperatures = _OneForEachGame(num_environments) if settings.loss.draws_temperatures else Temperatures()
    game = SelfPlay(settings, spec, layout, environments=environments, policy=policy, temperatures=temperatures)
    env_frames = 0
    while len(losses) < UPDATES:
        version = (1, len(losses))
        policy.load(trainer.weights(), version)
        arrays = game.unroll()
        frames = (arrays["row_valid"][:, layout.burn_in :].sum(axis=1) * spec.action_repeat).tolist()
        queue.put([QueuedUnroll(arrays, row, (0, 0), version, 0, frames[row]) for row in range(num_environments)])
        for unrolls in _batches(queue, settings):
            env_frames += sum(unroll.num_frames for unroll in unrolls)
            batch = batches.assemble(unrolls, with_replayed=batches.wait_for_replayed())
            done = trainer(batch, settings.optimizer.rates(env_frames=env_frames, learner_updates=len(losses)))
            measured = {name.removeprefix("loss_"): measured.value for name, measured in done.losses.items()}
            losses.append({name: value.hex() for name, value in {**measured, "norm": done.gradient_norm}.items()})
            if len(losses) % DIGEST_EVERY == 0:
                digests[str(len(losses))] = digest(trainer.weights())
    environments.close()
    return {"losses": losses[:UPDATES], "weights": digests}


class _OneForEachGame(Temperatures):
    """Every game under a temperature of its own, without a service."""

    def __init__(self, num_environments: int) -> None:
        self._slots = np.arange(num_environments)
        self._games = np.full(num_environments, -1)

    def of_row(self, game_reset: NDArray[np.bool_]) -> NDArray[np.float32]:
        self._games += game_reset
        return (0.5 + (self._games + self._slots) % 5).astype(np.float32)


def digest(tensors: dict[str, torch.Tensor]) -> str:
    """SHA-256 over names and values, in the order of names."""
    hashed = hashlib.sha256()
    for name in sorted(tensors):
        hashed.update(name.encode())
        hashed.update(tensors[name].contiguous().numpy().tobytes())
    return hashed.hexdigest()


def difference(expected: dict[str, Any], found: dict[str, Any]) -> str | None:
    """The first thing that differs, in words."""
    for number, (before, after) in enumerate(zip(expected["losses"], found["losses"], strict=True), 1):
        for name, value in before.items():
            if after.get(name) != value:
                now = float.fromhex(after[name]) if name in after else None
                return f"update {number}: {name} was {float.fromhex(value)!r}, is {now!r}"
    for number, value in expected["weights"].items():
        if found["weights"][number] != value:
            return f"weights differ after {number} updates"
    return None


def _batches(queue: UnrollQueue, settings: RunSettings) -> Iterator[list[QueuedUnroll]]:
    while len(queue) >= settings.num_online_unrolls:
        yield queue.take(settings.num_online_unrolls, lambda _: False, 0.0)[0]


if __name__ == "__main__":
    sys.exit(main())
