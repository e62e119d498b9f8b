"""The rows of an unroll, field by field, from made-up transitions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from herd_actor.unroll import UnrollBuilder
from numpy.typing import NDArray

from herd.acting.policy import PolicyStep
from herd.acting.row_state import RowState
from herd.acting.temperatures import Temperatures
from herd.components.cores.lstm import LSTMSettings
from herd.components.suites.api import Observation, Transition
from herd.components.torsos.mlp import MLPTorsoSettings
from herd.config.run import NetworkSettings
from herd.contract.spaces import EnvSpec, discrete
from herd.contract.unroll import UnrollLayout

LAYOUT = UnrollLayout(
    unroll_length=3,
    frame_stack=3,
    frame_shape=(2, 2, 2),
    actions=discrete(4),
    num_parameters=4,
    state_size=10,
    instruction_length=2,
    num_tasks=3,
)
NUM_ENVIRONMENTS = 2
TASK_IDS = np.array([1, 2], np.int32)


def _observation(time: int, game_reset: tuple[bool, bool] = (False, False)) -> Observation:
    """Every byte of the stack encodes its time, environment, plane, channel and position."""
    shape = (NUM_ENVIRONMENTS, LAYOUT.frame_stack * LAYOUT.frame_shape[2], 2, 2)
    stack = ((np.arange(np.prod(shape)).reshape(shape) + 50 * time) % 251).astype(np.uint8)
    instructions = np.array([[time, 1], [time, 2]], np.int64)
    return Observation(stack, np.array(game_reset), instructions)


def _transition(time: int, **changes: Any) -> Transition:
    reset = changes.pop("game_reset", (False, False))
    fields: dict[str, Any] = {
        "observation": _observation(time, reset),
        "rewards": np.array([time, -time], np.float32),
        "terminated": np.zeros(2, np.bool_),
        "truncated": np.zeros(2, np.bool_),
        "valid": np.ones(2, np.bool_),
        "finished": (),
    }
    return Transition(**{**fields, **{name: np.array(value) for name, value in changes.items()}})


class _Temperatures(Temperatures):
    """1/tau of row n is 1 / (n + 1)."""

    def __init__(self) -> None:
        self._rows = 0

    def of_row(self, game_reset: NDArray[np.bool_]) -> NDArray[np.float32]:
        self._rows += 1
        return np.full(len(game_reset), 1.0 / self._rows, np.float32)


class _Recorder:
    """State and builder together: advances to the next row as an actor does."""

    def __init__(self) -> None:
        spec = EnvSpec(("a", "b", "c"), LAYOUT.frame_shape, LAYOUT.frame_stack, LAYOUT.actions, 1, 2)
        network = NetworkSettings(torso=MLPTorsoSettings(), core=LSTMSettings(size=5))
        self.state = RowState(spec, network, _Temperatures(), num_environments=NUM_ENVIRONMENTS)
        self.builder = UnrollBuilder(LAYOUT, self.state, task_ids=TASK_IDS, first_slot=40)
        self.observation = _observation(0, (True, True))
        self.version = 0

    def begin(self, version: int = 0) -> None:
        self.version = version
        self.builder.begin(LAYOUT.allocate(NUM_ENVIRONMENTS), self.observation)

    def add(self, transition: Transition) -> None:
        """The transition's rewards encode the time."""
        time = int(transition.rewards[0])
        self.state.rows(self.observation)
        values, core = np.zeros(NUM_ENVIRONMENTS, np.float32), np.full_like(self.state.core_state, time)
        step = PolicyStep(_actions(time), _logits(time), values, core, (2, self.version))
        self.version += 1
        self.state.advance(step, transition)
        self.builder.add(step, transition)
        self.observation = transition.observation

    def unroll(self, transitions: list[Transition], version: int = 0) -> dict[str, NDArray[Any]]:
        self.begin(version)
        for transition in transitions:
            self.add(transition)
        return self.builder.finish()


def _actions(time: int) -> NDArray[np.int32]:
    return np.array([time % 4, (time + 1) % 4], np.int32)


def _logits(time: int) -> NDArray[np.float32]:
    return np.full((NUM_ENVIRONMENTS, 4), time, np.float32)


def _newest(observation: Observation) -> NDArray[np.uint8]:
    """[E, H, W, C]: the newest plane, element by element."""
    height, width, channels = LAYOUT.frame_shape
    plane = np.zeros((NUM_ENVIRONMENTS, height, width, channels), np.uint8)
    for index in np.ndindex(plane.shape):
        environment, row, column, channel = index
        plane[index] = observation.stack[environment, (LAYOUT.frame_stack - 1) * channels + channel, row, column]
    return plane


def test_every_field_holds_the_expected_rows() -> None:
    transitions = [_transition(time) for time in (1, 2, 3)]
    recorder = _Recorder()
    recorder.state.core_state = np.full((NUM_ENVIRONMENTS, LAYOUT.state_size), 9.0, np.float32)
    first = recorder.observation
    unroll = recorder.unroll(transitions, version=14)
    for row, observation in enumerate([first, *(transition.observation for transition in transitions)]):
        np.testing.assert_array_equal(unroll["frames"][:, row], _newest(observation))
        np.testing.assert_array_equal(unroll["instructions"][:, row], observation.instructions)
    for plane in range(LAYOUT.frame_stack - 1):
        for channel in range(2):
            np.testing.assert_array_equal(unroll["history_frames"][:, plane, :, :, channel], first.stack[:, 2 * plane + channel])
    for step, time in enumerate((1, 2, 3)):
        np.testing.assert_array_equal(unroll["actions"][:, step], _actions(time))
        np.testing.assert_array_equal(unroll["behaviour_parameters"][:, step], _logits(time))
        np.testing.assert_array_equal(unroll["rewards"][:, step], [time, -time])
        np.testing.assert_array_equal(unroll["inverse_temperature"][:, step], np.float32(1.0 / time))
    np.testing.assert_array_equal(unroll["policy_version"], [[[2, 14], [2, 16]]] * 2)
    np.testing.assert_array_equal(unroll["environment_slot"], [40, 41])
    np.testing.assert_array_equal(unroll["task_id"], TASK_IDS)
    assert (unroll["initial_core_state"] == 9.0).all()
    assert unroll["row_valid"].all()


def test_the_first_row_of_all_has_no_last_action_or_reward() -> None:
    unroll = _Recorder().unroll([_transition(time) for time in (1, 2, 3)])
    assert unroll["core_reset"].tolist() == [[True, False, False, False]] * 2
    assert (unroll["last_action"].tolist(), unroll["last_reward"].tolist()) == ([0, 0], [0.0, 0.0])
    assert (unroll["episode_id"].tolist(), unroll["index_in_episode"].tolist()) == ([0, 0], [0, 0])


def test_row_0_repeats_the_last_row_of_the_previous_unroll() -> None:
    recorder = _Recorder()
    before = recorder.unroll([_transition(1), _transition(2), _transition(3, terminated=[True, False])])
    after = recorder.unroll([_transition(4, valid=[False, True], game_reset=(True, False)), _transition(5), _transition(6)])
    for name in ("frames", "game_reset", "core_reset", "instructions"):
        np.testing.assert_array_equal(after[name][:, 0], before[name][:, -1])
    # The first environment's episode ended there; the second continues from its third step.
    assert after["core_reset"][:, 0].tolist() == [True, False]
    assert after["last_action"].tolist() == [0, int(_actions(3)[1])]
    assert after["last_reward"].tolist() == [0.0, -3.0]
    assert (after["initial_core_state"] == 3.0).all()
    assert (after["episode_id"].tolist(), after["index_in_episode"].tolist()) == ([0, 0], [3, 3])
    assert not np.shares_memory(before["frames"], after["frames"])


@pytest.mark.parametrize(
    ("change", "core_reset"),
    [
        ({}, False),
        ({"terminated": [True, False]}, True),
        ({"truncated": [True, False]}, False),
        ({"valid": [False, True], "game_reset": (True, False)}, True),
    ],
)
def test_ends_are_stored_with_their_step_and_resets_in_the_next_row(change: dict[str, Any], core_reset: bool) -> None:
    unroll = _Recorder().unroll([_transition(1), _transition(2), _transition(3, **change)])
    assert unroll["core_reset"][:, 3].tolist() == [core_reset, False]
    for name in ("terminated", "truncated"):
        assert unroll[name][:, 2].tolist() == change.get(name, [False, False])
    assert unroll["row_valid"][:, 2].tolist() == change.get("valid", [True, True])
    assert unroll["game_reset"][:, 3].tolist() == list(change.get("game_reset", (False, False)))


def test_episode_id_and_index_describe_the_first_row() -> None:
    recorder = _Recorder()
    recorder.unroll([_transition(1), _transition(2, valid=[False, True], game_reset=(True, False)), _transition(3)])
    unroll = recorder.unroll([_transition(time) for time in (4, 5, 6)])
    # Number of rows since the first row of the game.
    assert (unroll["episode_id"].tolist(), unroll["index_in_episode"].tolist()) == ([1, 0], [1, 3])


def test_returned_arrays_are_never_written_again() -> None:
    recorder = _Recorder()
    sent = recorder.unroll([_transition(time) for time in (1, 2, 3)])
    copies = {name: array.copy() for name, array in sent.items()}
    recorder.unroll([_transition(time) for time in (4, 5, 6)], version=3)
    for name, array in copies.items():
        np.testing.assert_array_equal(sent[name], array)


def test_finishing_an_incomplete_unroll_is_an_error() -> None:
    recorder = _Recorder()
    recorder.begin()
    recorder.add(_transition(1))
    with pytest.raises(RuntimeError, match="1 of 3"):
        recorder.builder.finish()
