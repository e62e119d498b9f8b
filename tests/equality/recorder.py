"""``python recorder.py EXPERIMENT --updates N [--section.key value]``: prints one line of digests for each update of a training.

It trains in one thread, without sockets and clocks. The same parts as in a run work in a fixed order: environments, acting, unrolls,
replay's episodes, batches, updates, and weights back to the policy. Two trees that compute the same print the same lines on the same
machine. The recorder goes with its tree: it imports modules by their present names.

E environments, B unrolls.
"""

from __future__ import annotations

import argparse
import hashlib
from collections import deque
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from herd_actor.unroll import UnrollBuilder
from herd_replay.assembly import Assembler
from herd_replay.store import EpisodeStore

from herd.acting.policy import LocalPolicy, inference_precision, precision_of
from herd.acting.row_state import RowState
from herd.acting.temperatures import RangeTemperatures, Temperatures
from herd.agent import build_agent
from herd.components.suites import environment_spec, make_environments
from herd.config.loading import load_settings
from herd.config.run_contract import run_layout
from herd.protocols.replay.pieces import PieceLayout
from herd.protocols.replay.samples import EpisodePart
from herd.training.batch import BatchBuffer
from herd.training.trainer import Trainer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from herd.config.run import RunSettings

    Arrays = Mapping[str, NDArray[Any]]

SMALL_CATCH = {
    "env.suite": "catch",
    "env.tasks": ["catch", "catch_instructed"],
    "env.frame_height": 8,
    "env.frame_width": 8,
    "env.frame_stack": 2,
    "network.torso": "mlp",
    "network.core": "lstm",
    "network.core.size": 16,
    "network.language": True,
    "network.last_action_and_reward": True,
    "algorithm.unroll_length": 10,
    "actor.environments": 8,
    "learner.batch_size": 8,
    "learner.queue_batches": 4,
}
COMPOSITIONS: dict[str, dict[str, Any]] = {
    "popart": SMALL_CATCH
    | {
        "algorithm.burn_in": 4,
        "algorithm.reward_shaping": "soft_asymmetric",
        "value_scaling.kind": "popart",
        "auxiliary.kind": "pixel_control",
        "auxiliary.cell_size": 1,
        "optimizer.momentum": 0.5,
        "optimizer.max_gradient_norm": 5.0,
        "learner.micro_batch_size": 3,
    },
    "recurrent-replay": SMALL_CATCH
    | {
        "loss.trust_region": "behaviour",
        "value_scaling.kind": "multi_head",
        "optimizer.kind": "adamw",
        "replay.kind": "shared",
        "replay.fraction": 0.5,
        "replay.minimum_fill_agent_steps": 500,
    },
}
"""Runs that no shipped experiment covers without an emulator."""
OVERRIDES: dict[str, dict[str, Any]] = {
    "breakout": {"actor.environments": 8},
    "pong": {"actor.environments": 8},
}
"""Settings of shipped experiments that are changed here, to take less time."""


def settings_of(experiment: str, overrides: Sequence[str] = ()) -> RunSettings:
    """Return the settings of a composition or of a shipped experiment, for one learner in float32 on a CPU.

    ``overrides``: as on the command line, such as ``["--loss.entropy_cost", "0.02"]``.
    """
    given = {"learner.device": "cpu", "learner.precision": "float32", "learner.health_interval_updates": 10}
    if experiment in COMPOSITIONS:
        return load_settings([], overrides, {}, base={**COMPOSITIONS[experiment], "name": experiment}, given=given)
    return load_settings([Path(experiment)], overrides, {}, given=given | OVERRIDES.get(experiment, {}))


def digest(arrays: Iterable[NDArray[Any]]) -> str:
    """Return a digest of the bytes of some arrays, whatever their order, names and shapes."""
    parts = sorted(hashlib.sha256(np.ascontiguousarray(array).tobytes()).digest() for array in arrays if array.size)
    return hashlib.sha256(b"".join(parts)).hexdigest()[:12]


def digest_of_tensors(tensors: Mapping[str, torch.Tensor]) -> str:
    """Return a digest of some tensors on any device."""
    return digest(tensor.detach().cpu().numpy() for tensor in tensors.values())


def _numbers(tree: object) -> Iterator[NDArray[Any]]:
    """Yield all numbers of nested tuples."""
    if isinstance(tree, tuple):
        for entry in tree:
            yield from _numbers(entry)
    elif isinstance(tree, int | float):
        yield np.array(tree)


class Unroll(NamedTuple):
    """One unroll of a message [E, ...]."""

    arrays: Arrays
    row: int


class Actor:
    """One process's environments with a local policy."""

    def __init__(self, settings: RunSettings) -> None:
        self._spec = environment_spec(settings.env)
        self._layout = run_layout(settings, self._spec)
        self._num_environments = settings.actor.environments
        self._environments = make_environments(
            settings.env, num_environments=self._num_environments, first_slot=0, seed=settings.seed, num_threads=1
        )
        task_ids = self._environments.task_ids
        ranges = [(0.5, 50.0)] * len(self._spec.task_names)
        temperatures = RangeTemperatures(ranges, task_ids, settings.seed) if settings.loss.draws_temperatures else Temperatures()
        self._state = RowState(self._spec, settings.network, temperatures, num_environments=self._num_environments)
        self._builder = UnrollBuilder(self._layout, self._state, task_ids=task_ids, first_slot=0)
        self.policy = LocalPolicy(build_agent(settings, self._spec), seed=settings.seed, precision=inference_precision(settings))
        self._observation = self._environments.reset()

    def play(self) -> dict[str, NDArray[Any]]:
        """Play one unroll in each environment; [E, ...]."""
        self._builder.begin(self._layout.allocate(self._num_environments), self._observation)
        for _ in range(self._layout.new_steps):
            step = self.policy.collect(self.policy.submit(self._state.rows(self._observation)))
            transition = self._environments.step(step.actions)
            self._state.advance(step, transition)
            self._builder.add(step, transition)
            self._observation = transition.observation
        return self._builder.finish()

    def close(self) -> None:
        """Close the environments."""
        self._environments.close()


class Replay:
    """The replay service's episodes, and places of a batch that are filled from them."""

    def __init__(self, settings: RunSettings) -> None:
        replay = settings.replay
        assert replay.kind == "shared"
        self._layout = run_layout(settings, environment_spec(settings.env))
        self._pieces = PieceLayout(self._layout)
        self._assembler = Assembler(1 << 30)
        self._store = EpisodeStore(
            capacity_steps=replay.capacity_agent_steps, max_bytes=lambda: 1 << 30, unroll_length=self._layout.new_steps
        )
        self._minimum = replay.minimum_fill_agent_steps
        self._random = np.random.default_rng(settings.seed)
        self._whole_episodes = settings.network.core.state_size() > 0
        self._places: list[tuple[EpisodePart, int] | None] = [None] * settings.num_replayed_unrolls

    @property
    def is_filled(self) -> bool:
        """Whether batches may be drawn."""
        return self._store.num_steps >= max(self._minimum, 1)

    def insert(self, unroll: Unroll) -> None:
        """Cut an unroll into pieces of episodes, and store the episodes that are complete."""
        for segment in self._pieces.cut(unroll.arrays, unroll.row, agent=0, actor_index=0, incarnation=0):
            episode = self._assembler.insert(self._pieces.pack(unroll.arrays, segment))
            if episode is not None:
                self._store.append(episode)

    def write(self, place: int, arrays: Arrays, row: int) -> None:
        """Draw an unroll into entry ``row`` of a batch; with a recurrent core a place works through whole episodes."""
        if not self._whole_episodes:
            stored, first_step = self._store.draw_unroll(self._random)
            self._part(stored).write(first_step, arrays, row)
            return
        part, first_step = self._places[place] or (self._part(self._store.draw_episode(self._random)), 0)
        part.write(first_step, arrays, row)
        following = first_step + self._layout.new_steps
        self._places[place] = (part, following) if following < part.episode_steps else None

    def _part(self, stored: Any) -> EpisodePart:
        record = self._store.record(stored)
        ends = [0, *accumulate(record.pieces["num_bytes"].tolist())]
        return EpisodePart(self._pieces, record.part[0], record.pieces, [record.packed[a:b] for a, b in pairwise(ends)])


class Batches:
    """Plays, keeps what is not in a batch yet, and fills batches with online and replayed unrolls."""

    def __init__(self, settings: RunSettings) -> None:
        self._settings = settings
        spec = environment_spec(settings.env)
        layout = run_layout(settings, spec)
        self._first_trained, self._action_repeat = layout.burn_in, spec.action_repeat
        self._queue: deque[Unroll] = deque()
        self._replay = Replay(settings) if settings.replay.kind == "shared" else None
        self.actor = Actor(settings)
        self.buffer = BatchBuffer(layout, settings.num_online_unrolls + settings.num_replayed_unrolls)
        self.num_frames = 0
        """Frames in all batches."""
        self.played = ""
        """Digest of everything that was played."""

    def fill_replay(self) -> None:
        """Play until replay has its minimum; nothing of it is trained on as online unrolls."""
        while self._replay is not None and not self._replay.is_filled:
            self._play()
            while self._queue:
                self._replay.insert(self._queue.popleft())

    def next(self) -> BatchBuffer:
        """Return the next batch."""
        settings, arrays = self._settings, self.buffer.arrays
        while len(self._queue) < settings.num_online_unrolls:
            self._play()
        online = [self._queue.popleft() for _ in range(settings.num_online_unrolls)]
        for row, unroll in enumerate(online):
            for name in arrays.keys() & unroll.arrays.keys():
                arrays[name][row] = unroll.arrays[name][unroll.row]
            self.num_frames += int(unroll.arrays["row_valid"][unroll.row, self._first_trained :].sum()) * self._action_repeat
        if self._replay is not None:
            if not settings.replay.train_online:
                arrays["row_valid"][: len(online)] = False
            for place in range(settings.num_replayed_unrolls):
                self._replay.write(place, arrays, len(online) + place)
            for unroll in online:
                self._replay.insert(unroll)
        self.buffer.set_counts(len(online), settings.num_replayed_unrolls)
        return self.buffer

    def _play(self) -> None:
        arrays = self.actor.play()
        self._queue.extend(Unroll(arrays, row) for row in range(len(arrays["actions"])))
        self.played = digest([np.frombuffer(self.played.encode(), np.uint8), *arrays.values()])


def record(settings: RunSettings, num_updates: int) -> Iterator[str]:
    """Train for ``num_updates`` updates; yields one line for each."""
    torch.set_num_threads(1)
    device = torch.device("cpu")
    batches = Batches(settings)
    trainer = Trainer(settings, environment_spec(settings.env), device, precision_of(settings.learner.precision, device))
    batches.actor.policy.load(trainer.weights(), (1, 0))
    batches.fill_replay()
    updates = 0
    while updates < num_updates:
        buffer = batches.next()
        batch = trainer.to_device(buffer)
        trainer.begin(batch, buffer.num_replayed)
        for _ in range(settings.learner.sample_reuse):
            rates = settings.optimizer.rates(env_frames=batches.num_frames, learner_updates=updates)
            trainer.finish(trainer.launch(batch), rates)
            statistics = trainer.arrived(wait=True)[-1]
            updates += 1
            yield " ".join(
                [
                    f"{updates:4}",
                    f"unrolls={batches.played}",
                    f"batch={digest(buffer.arrays.values())}",
                    f"losses={digest([np.array(measured.value) for measured in statistics.losses.values()])}",
                    f"health={digest(_numbers(statistics.health))}",
                    f"norm={statistics.gradient_norm.hex()}",
                    f"weights={digest_of_tensors(trainer.weights())}",
                    f"optimizer={digest_of_tensors(trainer.parts['optimizer'].tensors())}",
                    f"rest={digest_of_tensors(trainer.parts['auxiliary'].tensors() | trainer.parts['value_statistics'].tensors())}",
                ]
            )
            if updates % settings.learner.publish_interval_updates == 0:
                batches.actor.policy.load(trainer.weights(), (1, updates))
    batches.actor.close()


def main() -> None:
    """Print the lines of one experiment."""
    parser = argparse.ArgumentParser()
    parser.add_argument("experiment")
    parser.add_argument("--updates", type=int, default=200)
    arguments, overrides = parser.parse_known_args()
    for line in record(settings_of(arguments.experiment, overrides), arguments.updates):
        print(line, flush=True)


if __name__ == "__main__":
    main()
