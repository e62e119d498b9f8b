"""Catch: a ball falls down a board, a paddle on the last row catches it. A game for tests: it is learned in seconds.

Board of ``frame_height`` x ``frame_width`` uint8 pixels, 0 or 255. Actions: 0 left, 1 stay, 2 right. Each env frame moves the
paddle, then lowers the ball by one row; on the last row the game ends with +1 if the paddle is under the ball, else -1.
``catch_instructed`` gives each game the instruction to catch or to avoid the ball, and the reward's sign follows.
``catch_deceptive`` has a safe corner: a miss with the paddle in the left-most column ends with +0.2 instead of -1. Going left at every
step needs no look at the ball and wins 0.2 + 0.8 / columns on average (0.4 with four columns), following the ball wins 1. From the
corner every further column that is learned takes one more deviating action in the same game, and all but the last of them cost.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from herd.components.suites.api import FrameStacks, Games, Observation, Transition, checked_actions
from herd.components.suites.catch import DECEPTIVE, INSTRUCTED, scaled_tasks
from herd.components.suites.reading import hash_instruction

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from herd.components.suites.api import Slots
    from herd.components.suites.catch import CatchSettings
    from herd.contract.spaces import EnvSpec

INSTRUCTIONS = ("catch the ball", "avoid the ball")
SAFE_REWARD = 0.2

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


class CatchEnvironments:
    """A ``BatchedEnvironment`` of Catch boards, all moved by the same few array operations."""

    def __init__(self, settings: CatchSettings, spec: EnvSpec, slots: Slots) -> None:
        self.spec = spec
        self.num_environments = num_environments = slots.num_environments
        self.task_ids = slots.task_ids(spec)
        self._max_frames = settings.max_episode_frames
        self._step_seconds = settings.step_seconds
        self._environments = np.arange(num_environments)
        tasks = scaled_tasks(settings)
        games = [tasks[task_id].game for task_id in self.task_ids]
        self._instructed = np.array([game == INSTRUCTED for game in games])
        # The reward of a miss with the paddle in the left-most column.
        self._corner_reward = np.array([SAFE_REWARD if game == DECEPTIVE else -1.0 for game in games])
        self._reward_scale = np.array([tasks[task_id].reward_scale for task_id in self.task_ids], np.float32)
        # One random stream per slot, a function of the game's number, without state.
        run_key = np.random.SeedSequence(slots.seed).generate_state(1, np.uint64)[0]
        self._slot_keys = _mixed(run_key + (slots.first_slot + self._environments).astype(np.uint64) * _GOLDEN)
        self._num_games = np.zeros(num_environments, np.uint64)
        rows, columns, _ = spec.frame_shape
        self._boards = np.zeros((num_environments, 1, rows, columns), np.uint8)
        self._stacks = FrameStacks(spec, num_environments)
        self._games = Games(self.task_ids)
        self._words = np.array([hash_instruction(text) for text in INSTRUCTIONS], np.int64)

        self._ball_row = np.zeros(num_environments, np.int64)
        self._ball_column = np.zeros(num_environments, np.int64)
        self._paddle = np.zeros(num_environments, np.int64)
        self._avoid = np.zeros(num_environments, np.bool_)
        self._frames = np.zeros(num_environments, np.int64)

    def reset(self) -> Observation:
        """Start a new game on every board."""
        everywhere = np.ones(self.num_environments, np.bool_)
        self._start_games(everywhere)
        self._games.begin()
        return self._observe(everywhere)

    def step(self, actions: NDArray[np.int32]) -> Transition:
        """Move every board by ``action_repeat`` env frames; boards whose game is over start the next one instead."""
        actions = checked_actions(actions, num_environments=self.num_environments, space=self.spec.actions)
        if self._step_seconds:
            time.sleep(self._step_seconds)
        starting = self._games.over
        valid = ~starting
        rewards = np.zeros(self.num_environments, np.float32)
        terminated = np.zeros(self.num_environments, np.bool_)
        for _ in range(self.spec.action_repeat):
            self._advance(actions, valid & ~terminated, rewards, terminated)
        rewards *= self._reward_scale
        truncated = valid & ~terminated & (self._frames >= self._max_frames)
        finished = self._games.count(starting, rewards, terminated | truncated)
        if starting.any():
            self._start_games(starting)
        return Transition(self._observe(starting), rewards, terminated, truncated, valid, finished)

    def close(self) -> None:
        """Do nothing: there is nothing to release."""

    def _start_games(self, starting: NDArray[np.bool_]) -> None:
        """Draw balls and instructions for boards ``starting`` [E]; the paddle begins in the middle."""
        columns = self.spec.frame_shape[1]
        draws = _mixed(self._slot_keys + self._num_games * _GOLDEN)
        self._num_games += starting
        # The low half determines the column, the top bit the instruction: independent, and even to one part in 2^32 / columns.
        self._ball_column[starting] = ((draws & np.uint64(0xFFFFFFFF)) % np.uint64(columns)).astype(np.int64)[starting]
        self._avoid[starting] = (self._instructed & (draws >> np.uint64(63)).astype(np.bool_))[starting]
        self._paddle[starting] = columns // 2
        self._ball_row[starting] = 0
        self._frames[starting] = 0

    def _advance(
        self, actions: NDArray[np.int32], moving: NDArray[np.bool_], rewards: NDArray[np.float32], terminated: NDArray[np.bool_]
    ) -> None:
        """Play one env frame on boards ``moving`` [E]; add to ``rewards`` and set ``terminated`` in place."""
        rows, columns, _ = self.spec.frame_shape
        self._paddle = np.where(moving, np.clip(self._paddle + actions - 1, 0, columns - 1), self._paddle)
        self._ball_row += moving
        self._frames += moving
        landed = moving & (self._ball_row == rows - 1)
        caught = self._paddle == self._ball_column
        missed = np.where(self._paddle == 0, self._corner_reward, -1.0)
        rewards += np.where(landed, np.where(caught != self._avoid, 1.0, missed), 0.0).astype(np.float32)
        terminated |= landed

    def _observe(self, game_reset: NDArray[np.bool_]) -> Observation:
        """Add the boards to the stacks, which restart at ``game_reset`` [E]."""
        boards = self._boards
        boards[...] = 0
        boards[self._environments, 0, self._ball_row, self._ball_column] = 255
        boards[self._environments, 0, -1, self._paddle] = 255
        instructions = None
        if self.spec.instruction_length:
            instructions = np.where(self._instructed[:, None], self._words[self._avoid.astype(np.int64)], 0)
        return Observation(self._stacks.add(boards, game_reset), game_reset, instructions)


def _mixed(keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return SplitMix64's finaliser (Steele et al. 2014), elementwise: it makes neighbouring keys independent."""
    keys = (keys ^ (keys >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    keys = (keys ^ (keys >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return keys ^ (keys >> np.uint64(31))
