"""Atari 2600 games over ale-py's C++ ``AtariVectorEnv``, with the switches of IMPALA's Table G.1.

The C++ side repeats actions, takes the maximum of the last two frames, resizes (area interpolation), stacks, and starts the next game one
step after the last one ended. This module corrects its differences from the papers:

- A lost life is detected by the number of lives, to distinguish it from the end of the game.
- The number of no-ops is uniform in 1..noop_max; the C++ side draws from 0..noop_max-1. It is configured for 0..noop_max, and a game that
  drew 0 is restarted, so the rest is uniform. The frame count of a new game shows what it drew. Only if it does not (``start.py``: Double
  Dunk with sticky actions), the number is in 0..noop_max.
- The time limit counts all emulator frames of a game, including no-ops, once per agent step. The limit on frames without a reward counts
  from the game's first row. The C++ side's own limit ends a step before the screen is read, so the last observation, from which a truncated
  game bootstraps, would be stale.

If a game over ends a step early, the newest plane of the last observation lacks the final frames. Nothing is learned from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from ale_py.vector_env import AtariVectorEnv
from gymnasium.vector import AutoresetMode

from herd.components.suites.api import FrameStacks, Games, Observation, Transition, checked_actions
from herd.components.suites.atari.start import GameStart, game_start

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from herd.components.suites.api import Slots
    from herd.components.suites.atari import AtariSettings
    from herd.contract.spaces import EnvSpec

_NO_LIMIT = 2**30
"""Frame limit. The C++ counter starts one above its limit, so the largest int would overflow."""
_NUM_SEEDS = 2**31
"""The emulator takes non-negative 32-bit seeds; a negative one means the clock."""
_MAX_RESTARTS = 200
"""Maximum number of draws per new game. In the worst case, one no-op after fire, a draw is accepted with probability 1/3: (2/3)^200 is
1e-35."""


@dataclass(slots=True)
class _Part:
    """The environments of this batch that play one game."""

    environments: slice
    emulators: Any
    """An ``AtariVectorEnv``, whose types are incomplete."""
    start: GameStart


@dataclass(slots=True)
class _Raw:
    """The emulators' results, [E, ...] each; the stack has the emulators' layout [E, S, H, W] or [E, S, H, W, 3]."""

    stack: NDArray[np.uint8]
    rewards: NDArray[np.int32]
    game_over: NDArray[np.bool_]
    lives: NDArray[np.int32]
    frames: NDArray[np.int32]
    """Emulator frames since the game began."""


class AtariEnvironments:
    """A ``BatchedEnvironment`` of Atari games: one C++ vector per game, its slots spread evenly over the batch."""

    def __init__(self, settings: AtariSettings, spec: EnvSpec, slots: Slots) -> None:
        self.spec = spec
        self.num_environments = num_environments = slots.num_environments
        self.task_ids = slots.task_ids(spec)
        self._settings = settings
        # Consecutive numbers are distinct over all slots of a run; the first one depends on the run's seed.
        first_seed = int(np.random.SeedSequence(slots.seed).generate_state(1, np.uint64)[0])
        self._seeds = (first_seed % _NUM_SEEDS + slots.first_slot + np.arange(num_environments)) % _NUM_SEEDS
        self._seeded = False

        num_tasks = len(spec.task_names)
        num_games = min(num_tasks, num_environments)
        threads_per_game = max(1, slots.num_threads // num_games)
        self._games_at_once = slots.num_threads // threads_per_game
        self._parts = [
            self._start(spec.task_names[self.task_ids[first]], slice(first, None, num_tasks), threads_per_game)
            for first in range(num_games)
        ]
        # The minimum number of frames of a new game: those before the no-ops, and one no-op if no-ops are enabled.
        self._least_frames = np.zeros(num_environments, np.int64)
        for part in self._parts:
            if part.start.frames_before_noops is not None:
                self._least_frames[part.environments] = part.start.frames_before_noops + min(1, settings.noop_max)
        # Two buffers for assembled stacks, used in turn, so that the arrays of the previous call stay valid.
        height, width, channels = spec.frame_shape
        shape = (num_environments, spec.frame_stack, height, width) + ((3,) if channels == 3 else ())
        self._gathered = [np.empty(shape, np.uint8) for _ in range(2)] if num_games > 1 else []
        self._planes = FrameStacks(spec, num_environments) if channels == 3 else None

        self._lives = np.zeros(num_environments, np.int32)
        self._games = Games(self.task_ids)
        self._cut_off = np.zeros(num_environments, np.bool_)
        self._rewarded_at = np.zeros(num_environments, np.int32)

    def reset(self) -> Observation:
        """Start a new game in every environment. The first call seeds the emulators, which takes about 70 ms each."""
        seeds = None if self._seeded else self._seeds
        self._seeded = True
        raw = self._empty_raw()
        for part in self._parts:
            observed, info = part.emulators.reset(seed=None if seeds is None else seeds[part.environments])
            self._store(raw, part, observed, info)
        raw.rewards[:] = 0
        raw.game_over[:] = False
        everywhere = np.ones(self.num_environments, np.bool_)
        self._restart(raw, raw.frames < self._least_frames)
        self._games.begin()
        self._lives = raw.lives
        self._rewarded_at = raw.frames
        return Observation(self._stack_of(raw, everywhere), everywhere, None)

    def step(self, actions: NDArray[np.int32]) -> Transition:
        """Repeat each action for ``action_repeat`` frames; games that are over are restarted instead."""
        actions = checked_actions(actions, num_environments=self.num_environments, space=self.spec.actions)
        raw = self._emulate(actions)
        starting = self._games.over
        valid = ~starting
        if starting.any():
            # The emulators do not know our time limit, so they have continued games that it ended.
            self._restart(raw, starting & (self._cut_off | (raw.frames < self._least_frames)))
            raw.rewards[starting] = 0
            raw.game_over[starting] = False
        rewards = raw.rewards.astype(np.float32)

        terminated = raw.game_over
        if self._settings.life_loss_ends_episode:
            # The game ends when no life is left; some games delay their end until the last animation is over.
            terminated = terminated | (valid & (raw.lives < self._lives) & (raw.lives > 0))
        self._lives = raw.lives
        self._rewarded_at = np.where(starting | (raw.rewards != 0), raw.frames, self._rewarded_at)
        self._cut_off = valid & self._at_a_limit(raw.frames) & ~raw.game_over
        finished = self._games.count(starting, rewards, raw.game_over | self._cut_off)
        truncated = self._cut_off & ~terminated
        return Transition(Observation(self._stack_of(raw, starting), starting, None), rewards, terminated, truncated, valid, finished)

    def close(self) -> None:
        """Stop the emulators' threads."""
        for part in self._parts:
            part.emulators.close()
        # The C++ side joins its threads when its last reference is released.
        self._parts = []

    def _at_a_limit(self, frames: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Return where a game of ``frames`` [E] has reached its maximum length, or the maximum time without a reward."""
        late: NDArray[np.bool_] = frames >= self._settings.max_episode_frames
        patience = self._settings.max_frames_without_reward
        return late if patience is None else late | (frames - self._rewarded_at >= patience)

    def _start(self, game: str, environments: slice, num_threads: int) -> _Part:
        settings = self._settings
        start = game_start(
            game,
            full_action_set=settings.action_set == "full",
            fire_on_reset=settings.fire_on_reset,
            sticky_action_probability=settings.sticky_action_probability,
        )
        if start.num_actions != self.spec.actions.num_actions:
            raise RuntimeError(f"{game} has {start.num_actions} actions in this ale-py, expected {self.spec.actions.num_actions}")
        emulators = AtariVectorEnv(
            game,
            len(range(self.num_environments)[environments]),
            num_threads=num_threads,
            max_num_frames_per_episode=_NO_LIMIT,
            repeat_action_probability=settings.sticky_action_probability,
            full_action_space=settings.action_set == "full",
            autoreset_mode=AutoresetMode.NEXT_STEP,
            img_height=settings.frame_height,
            img_width=settings.frame_width,
            grayscale=settings.grayscale,
            stack_num=settings.frame_stack,
            frameskip=settings.action_repeat,
            maxpool=settings.max_pool,
            # It draws a number below this one, and subtracts the press of fire.
            noop_max=settings.noop_max + 1 + start.fire_frames if settings.noop_max else 0,
            # Both of these would change the game: the first resets it at every lost life, the second clips its rewards.
            episodic_life=False,
            reward_clipping=False,
            life_loss_info=False,
            use_fire_reset=settings.fire_on_reset,
        )
        return _Part(environments, emulators, start)

    def _emulate(self, actions: NDArray[np.int32]) -> _Raw:
        """Step all emulators, with at most the allowed number of threads busy at a time."""
        if len(self._parts) == 1:
            stack, rewards, game_over, _, info = self._parts[0].emulators.step(_as_the_emulator_counts(self._parts[0], actions))
            return _Raw(stack, rewards, game_over, info["lives"], info["episode_frame_number"])
        raw = self._empty_raw()
        for part in self._parts[: self._games_at_once]:
            self._send(part, actions)
        for index, part in enumerate(self._parts, start=self._games_at_once):
            stack, rewards, game_over, _, info = part.emulators.recv()
            # The next game is started before this one is stored, so that its thread need not wait.
            for following in self._parts[index : index + 1]:
                self._send(following, actions)
            self._store(raw, part, stack, info)
            raw.rewards[part.environments] = rewards
            raw.game_over[part.environments] = game_over
        return raw

    @staticmethod
    def _send(part: _Part, actions: NDArray[np.int32]) -> None:
        part.emulators.send(_as_the_emulator_counts(part, np.ascontiguousarray(actions[part.environments])))

    def _empty_raw(self) -> _Raw:
        if len(self._parts) > 1:
            self._gathered.reverse()
            stack = self._gathered[0]
        else:
            height, width, channels = self.spec.frame_shape
            shape = (self.num_environments, self.spec.frame_stack, height, width) + ((3,) if channels == 3 else ())
            stack = np.empty(shape, np.uint8)
        rewards, lives, frames = np.empty((3, self.num_environments), np.int32)
        return _Raw(stack, rewards, np.empty(self.num_environments, np.bool_), lives, frames)

    @staticmethod
    def _store(raw: _Raw, part: _Part, stack: NDArray[np.uint8], info: dict[str, Any]) -> None:
        raw.stack[part.environments] = stack
        raw.lives[part.environments] = info["lives"]
        raw.frames[part.environments] = info["episode_frame_number"]

    def _restart(self, raw: _Raw, again: NDArray[np.bool_]) -> None:
        """Restart the games ``again``, [E], until each has the required number of no-ops; write into ``raw``."""
        for _ in range(_MAX_RESTARTS):
            if not again.any():
                return
            for part in self._parts_of(again):
                mask = again[part.environments]
                stack, info = part.emulators.reset(options={"reset_mask": mask})
                raw.stack[part.environments][mask] = stack[mask]
                raw.lives[part.environments][mask] = info["lives"][mask]
                raw.frames[part.environments][mask] = info["episode_frame_number"][mask]
            again = again & (raw.frames < self._least_frames)
        raise RuntimeError(f"environments {np.flatnonzero(again).tolist()} end every game during its initial no-ops")

    def _parts_of(self, environments: NDArray[np.bool_]) -> Iterable[_Part]:
        return (part for part in self._parts if environments[part.environments].any())

    def _stack_of(self, raw: _Raw, starting: NDArray[np.bool_]) -> NDArray[np.uint8]:
        """Return the emulators' stack as [E, S * C, H, W]."""
        if self._planes is None:
            return raw.stack
        # The colours of a pixel are adjacent and must be separated.
        return self._planes.add(raw.stack[:, -1].transpose(0, 3, 1, 2), starting)


def _as_the_emulator_counts(part: _Part, actions: NDArray[np.int32]) -> NDArray[np.int32]:
    return actions if part.start.emulator_actions is None else part.start.emulator_actions[actions]
