"""The state that the next row takes from the step before it, whichever policy plays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from herd.acting.policy import PolicyStep
from herd.acting.row_state import RowState
from herd.acting.temperatures import RangeTemperatures, Temperatures
from herd.components.cores.lstm import LSTMSettings
from herd.components.suites.api import FinishedGame, Observation, Transition
from herd.components.torsos.mlp import MLPTorsoSettings
from herd.config.run import NetworkSettings
from herd.contract.spaces import EnvSpec, discrete

SPEC = EnvSpec(("game",), (1, 1, 1), 4, discrete(4), 1, 0)
NETWORK = NetworkSettings(torso=MLPTorsoSettings(), core=LSTMSettings(size=3))


def state_of(temperatures: Temperatures | None = None) -> RowState:
    return RowState(SPEC, NETWORK, temperatures or Temperatures(), num_environments=2)


def seen(plane: int, game_reset: tuple[bool, bool] = (False, False)) -> Observation:
    """The newest plane is ``plane``. The older planes, which an environment also returns, are wrong on purpose."""
    stack = np.full((2, 4, 1, 1), 99, np.uint8)
    stack[:, -1] = plane
    return Observation(stack, np.array(game_reset), None)


def after(reward: float = 2.5, *, game_reset: tuple[bool, bool] = (False, False), **ends: Any) -> Transition:
    fields = {name: np.array(ends.get(name, [False, False])) for name in ("terminated", "truncated")}
    rewards, valid = np.array([reward, -reward], np.float32), ~np.array(game_reset)
    return Transition(seen(1, game_reset), rewards, **fields, valid=valid, finished=ends.get("finished", ()))


def chosen(action: int = 1, core: float = 7.0) -> PolicyStep:
    two = np.zeros(2, np.float32)
    return PolicyStep(np.full(2, action, np.int32), np.zeros((2, 4), np.float32), two, np.full((2, 2, 3), core, np.float32))


def test_the_first_row_has_empty_history() -> None:
    rows = state_of().rows(seen(1, (True, True)))
    assert (rows.core_reset.tolist(), rows.last_actions.tolist(), rows.last_rewards.tolist()) == ([True, True], [0, 0], [0.0, 0.0])
    assert rows.core_state.tolist() == np.zeros((2, 6)).tolist()
    assert rows.inverse_temperatures is None


@pytest.mark.parametrize(
    ("transition", "forgets"),
    [
        (after(), False),
        (after(terminated=[True, False]), True),  # game over or a lost life
        (after(truncated=[True, False]), False),  # the value of the final observation needs the state of the game that was cut off
        (after(game_reset=(True, False)), True),
    ],
)
def test_a_row_holds_the_last_action_and_reward_unless_reset(transition: Transition, forgets: bool) -> None:
    state = state_of()
    state.rows(seen(1, (True, True)))
    state.advance(chosen(action=3), transition)
    rows = state.rows(transition.observation)
    assert rows.core_reset.tolist() == [forgets, False]
    assert rows.last_actions.tolist() == [0 if forgets else 3, 3]
    assert rows.last_rewards.tolist() == [0.0 if forgets else 2.5, -2.5]
    assert (rows.core_state == 7.0).all()


def test_a_state_that_was_not_told_stays_unless_a_game_began() -> None:
    state = state_of()
    state.core_state = np.full((2, 6), 7.0, np.float32)
    for transition, expected in ((after(), [7.0, 7.0]), (after(game_reset=(True, False)), [0.0, 7.0])):
        state.advance(chosen()._replace(core_state=None), transition)
        assert state.core_state[:, 0].tolist() == expected


def test_only_a_new_game_increments_the_episode_id() -> None:
    state, numbers = state_of(), []
    for transition in (after(terminated=[True, True]), after(game_reset=(True, False)), after()):
        state.advance(chosen(), transition)
        numbers.append((state.episode_ids.tolist(), state.index_in_episode.tolist()))
    assert numbers == [([0, 0], [1, 1]), ([1, 0], [0, 2]), ([1, 0], [1, 3])]


def test_the_frame_stack_holds_planes_of_one_game() -> None:
    state = state_of()
    stacks = []
    for plane, reset in ((5, (True, True)), (6, (False, True))):
        frames = state.rows(seen(plane, reset)).frames
        assert frames is not None
        stacks.append(frames[:, :, 0, 0].tolist())
    assert stacks == [[[0, 0, 0, 5], [0, 0, 0, 5]], [[0, 0, 5, 6], [0, 0, 0, 6]]]


class Recorded(Temperatures):
    """Records its calls."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def of_row(self, game_reset: np.ndarray) -> np.ndarray:
        self.told.append(game_reset.tolist())
        return np.array([0.5, 2.0], np.float32)

    def finished(self, games: Any, episode_ids: np.ndarray) -> None:
        self.told.append(([game.episode_return for game in games], episode_ids.tolist()))


def test_temperatures_are_read_per_row_and_get_finished_games() -> None:
    temperatures = Recorded()
    state = state_of(temperatures)
    np.testing.assert_array_equal(state.rows(seen(1, (True, True))).inverse_temperatures, [0.5, 2.0])
    state.advance(chosen(), after(game_reset=(True, False)))
    state.advance(chosen(), after(terminated=[True, False], finished=(FinishedGame(0, 0, 17.0, 4),)))
    assert temperatures.told == [[True, True], ([17.0], [1, 0])]


def test_each_game_draws_a_temperature_from_its_tasks_range() -> None:
    tasks = np.array([0, 1] * 50, np.int32)
    games = RangeTemperatures(((8.0, 9.0), (0.0, 0.1)), tasks, seed=1)
    first = games.of_row(np.ones(100, np.bool_)).copy()
    assert ((first[::2] >= 8.0) & (first[::2] <= 9.0)).all()
    assert ((first[1::2] >= 0.0) & (first[1::2] <= 0.1)).all()
    assert len(set(first.tolist())) > 90
    # Rows that start no game change nothing; a row that starts one changes only its own environment.
    np.testing.assert_array_equal(games.of_row(np.zeros(100, np.bool_)), first)
    again = games.of_row(np.arange(100) == 4)
    assert np.flatnonzero(again != first).tolist() == [4]
