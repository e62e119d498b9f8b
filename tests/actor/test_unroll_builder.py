"""Rows of an unroll, field by field, from made-up transitions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from herd_actor.unroll import UnrollBuilder
from numpy.typing import NDArray

from herd.envs.api import Observation, Transition
from herd.wire.layout import UnrollLayout

LAYOUT = UnrollLayout(unroll_length=3, frame_stack=3, frame_shape=(2, 2, 2), num_actions=4, core_size=5, instruction_length=2, num_tasks=3)
NUM_ENVIRONMENTS = 2
TASK_IDS = np.array([1, 2], np.int32)


def _observation(time: int, game_reset: tuple[bool, bool] = (False, False)) -> Observation:
    """Every byte of the stack tells its time, environment, plane, channel and place."""
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


def _builder() -> UnrollBuilder:
    return UnrollBuilder(LAYOUT, task_ids=TASK_IDS, first_slot=40)


def _actions(time: int) -> NDArray[np.int32]:
    return np.array([time % 4, (time + 1) % 4], np.int32)


def _logits(time: int) -> NDArray[np.float32]:
    return np.full((NUM_ENVIRONMENTS, 4), time, np.float32)


def _unroll(
    builder: UnrollBuilder, first: Observation, transitions: list[Transition], core: float = 0.0, version: int = 0
) -> dict[str, NDArray[Any]]:
    """Steps are numbered from the first transition's time, which its rewards tell."""
    core_state = np.full((NUM_ENVIRONMENTS, 2, LAYOUT.core_size), core, np.float32)
    builder.begin(LAYOUT.allocate(NUM_ENVIRONMENTS), first, core_state, (2, version))
    for transition in transitions:
        time = int(transition.rewards[0])
        builder.add(_actions(time), _logits(time), 1.0 / time, transition)
    return builder.finish((2, version + 1))


def _newest(observation: Observation) -> NDArray[np.uint8]:
    """[E, H, W, C] of the newest plane, element by element."""
    height, width, channels = LAYOUT.frame_shape
    plane = np.zeros((NUM_ENVIRONMENTS, height, width, channels), np.uint8)
    for index in np.ndindex(plane.shape):
        environment, row, column, channel = index
        plane[index] = observation.stack[environment, (LAYOUT.frame_stack - 1) * channels + channel, row, column]
    return plane


def test_what_is_written_where() -> None:
    transitions = [_transition(time) for time in (1, 2, 3)]
    first = _observation(0, (True, True))
    unroll = _unroll(_builder(), first, transitions, core=9.0, version=14)
    for row, observation in enumerate([first, *(transition.observation for transition in transitions)]):
        np.testing.assert_array_equal(unroll["frames"][:, row], _newest(observation))
        np.testing.assert_array_equal(unroll["instructions"][:, row], observation.instructions)
    for plane in range(LAYOUT.frame_stack - 1):
        for channel in range(2):
            np.testing.assert_array_equal(unroll["history_frames"][:, plane, :, :, channel], first.stack[:, 2 * plane + channel])
    for step, time in enumerate((1, 2, 3)):
        np.testing.assert_array_equal(unroll["actions"][:, step], _actions(time))
        np.testing.assert_array_equal(unroll["behaviour_logits"][:, step], _logits(time))
        np.testing.assert_array_equal(unroll["rewards"][:, step], [time, -time])
        np.testing.assert_array_equal(unroll["inverse_temperature"][:, step], np.float32(1.0 / time))
    np.testing.assert_array_equal(unroll["policy_version"], [[[2, 14], [2, 15]]] * 2)
    np.testing.assert_array_equal(unroll["environment_slot"], [40, 41])
    np.testing.assert_array_equal(unroll["task_id"], TASK_IDS)
    assert (unroll["initial_core_state"] == 9.0).all()
    assert unroll["row_valid"].all()


def test_the_very_first_row_knows_no_action() -> None:
    unroll = _unroll(_builder(), _observation(0, (True, True)), [_transition(time) for time in (1, 2, 3)])
    assert unroll["core_reset"].tolist() == [[True, False, False, False]] * 2
    assert (unroll["last_action"].tolist(), unroll["last_reward"].tolist()) == ([-1, -1], [0.0, 0.0])
    assert (unroll["episode_id"].tolist(), unroll["index_in_episode"].tolist()) == ([0, 0], [0, 0])


def test_row_0_repeats_the_last_row_of_the_unroll_before() -> None:
    builder = _builder()
    before = _unroll(builder, _observation(0, (True, True)), [_transition(1), _transition(2), _transition(3, terminated=[True, False])])
    row = _transition(3).observation
    after = _unroll(builder, row, [_transition(4, valid=[False, True], game_reset=(True, False)), _transition(5), _transition(6)])
    for name in ("frames", "game_reset", "core_reset", "instructions"):
        np.testing.assert_array_equal(after[name][:, 0], before[name][:, -1])
    # The first environment's episode ended there; the second goes on from its third step.
    assert after["core_reset"][:, 0].tolist() == [True, False]
    assert after["last_action"].tolist() == [-1, int(_actions(3)[1])]
    assert after["last_reward"].tolist() == [0.0, -3.0]
    assert (after["episode_id"].tolist(), after["index_in_episode"].tolist()) == ([0, 0], [3, 3])
    assert not np.shares_memory(before["frames"], after["frames"])


@pytest.mark.parametrize(
    ("change", "core_reset", "last_action", "last_reward"),
    [
        ({}, False, 3, 3.0),
        ({"terminated": [True, False]}, True, -1, 0.0),  # game over or a lost life
        ({"truncated": [True, False]}, False, 3, 3.0),  # the final observation's value needs the state as it was
        ({"valid": [False, True], "game_reset": (True, False)}, True, -1, 0.0),
    ],
)
def test_what_the_next_row_knows_of_the_step_before(change: dict[str, Any], core_reset: bool, last_action: int, last_reward: float) -> None:
    builder = _builder()
    unroll = _unroll(builder, _observation(0, (True, True)), [_transition(1), _transition(2), _transition(3, **change)])
    assert unroll["core_reset"][:, 3].tolist() == [core_reset, False]
    assert builder.core_reset.tolist() == [core_reset, False]
    assert builder.last_actions.tolist() == [last_action, int(_actions(3)[1])]
    assert builder.last_rewards.tolist() == [last_reward, -3.0]
    for name in ("terminated", "truncated"):
        assert unroll[name][:, 2].tolist() == change.get(name, [False, False])
    assert unroll["row_valid"][:, 2].tolist() == change.get("valid", [True, True])
    assert unroll["game_reset"][:, 3].tolist() == list(change.get("game_reset", (False, False)))


def test_only_a_game_starts_a_new_episode_id() -> None:
    builder = _builder()
    builder.begin(LAYOUT.allocate(2), _observation(0, (True, True)), None, (1, 0))
    seen = []
    for time, change in enumerate(
        [{"terminated": [True, True]}, {"valid": [False, True], "game_reset": (True, False)}, {}],
        start=1,
    ):
        builder.add(_actions(time), _logits(time), 1.0, _transition(time, **change))
        seen.append((builder.episode_id(0), builder.episode_id(1)))
    assert seen == [(0, 0), (1, 0), (1, 0)]
    builder.begin(LAYOUT.allocate(2), _observation(3), None, (1, 0))
    builder.add(_actions(4), _logits(4), 1.0, _transition(4))
    # Rows since the game's first one.
    builder.add(_actions(5), _logits(5), 1.0, _transition(5))
    builder.add(_actions(6), _logits(6), 1.0, _transition(6))
    unroll = builder.finish((1, 0))
    assert (unroll["episode_id"].tolist(), unroll["index_in_episode"].tolist()) == ([1, 0], [1, 3])


def test_arrays_that_were_handed_over_are_never_written_again() -> None:
    builder = _builder()
    sent = _unroll(builder, _observation(0, (True, True)), [_transition(time) for time in (1, 2, 3)])
    copies = {name: array.copy() for name, array in sent.items()}
    _unroll(builder, _observation(3), [_transition(time) for time in (4, 5, 6)], core=1.0, version=3)
    for name, array in copies.items():
        np.testing.assert_array_equal(sent[name], array)


def test_an_unroll_is_not_finished_early() -> None:
    builder = _builder()
    builder.begin(LAYOUT.allocate(2), _observation(0, (True, True)), None, (1, 0))
    builder.add(_actions(1), _logits(1), 1.0, _transition(1))
    with pytest.raises(RuntimeError, match="1 of 3"):
        builder.finish((1, 0))
