"""Groups of environments take turns: one group steps while the answer for another is pending."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

from herd.acting.policy import PolicyStep, Rows
from herd.config.run import RunSettings
from tests.acting.playing import make_group, play_unroll

SETTINGS = RunSettings.model_validate(
    {
        "env": {"suite": "catch", "tasks": ("catch",), "frame_height": 6, "frame_width": 5, "frame_stack": 2, "action_repeat": 1},
        "network": {"torso": "mlp", "core": {"kind": "lstm", "size": 2}},
        "algorithm": {"unroll_length": 9},
    }
)


@dataclass
class SlowPolicy:
    """Answers only when it is collected. Each environment's action depends on its own row and on all rows before it."""

    events: list[str] = field(default_factory=list)

    def submit(self, rows: Rows) -> tuple[str, Rows]:
        assert rows.frames is not None
        name = f"{len(rows.frames)} at {int(rows.core_state[0, 0])}"
        self.events.append(f"ask {name}")
        return name, rows

    def collect(self, ticket: tuple[str, Rows]) -> PolicyStep:
        name, rows = ticket
        self.events.append(f"step {name}")
        assert rows.frames is not None
        seen = (rows.frames.reshape(len(rows.frames), -1) @ np.arange(1, 61)).astype(np.int64)
        actions = ((seen + rows.last_actions + rows.core_state[:, 2].astype(np.int64)) % 3).astype(np.int32)
        core = rows.core_state + np.array([1.0, 1.0, 0.0, 0.0], np.float32)
        core[:, 2:] = actions[:, None] + np.where(rows.core_reset, 0, rows.core_state[:, 2])[:, None]
        return PolicyStep(actions, np.tile(actions[:, None], 3).astype(np.float32), seen.astype(np.float32), core)


@dataclass
class KeepingPolicy(SlowPolicy):
    """Keeps the states of its environments itself, as the inference service does, and tells them only when asked."""

    state: np.ndarray | None = None
    num_told: int = 0

    def collect(self, ticket: tuple[str, Rows]) -> PolicyStep:
        name, rows = ticket
        step = super().collect((name, rows if self.state is None else rows._replace(core_state=self.state)))
        self.state = step.core_state
        self.num_told += rows.wants_state
        return step if rows.wants_state else step._replace(core_state=None)


def test_one_group_is_requested_before_the_other_is_stepped() -> None:
    policy = SlowPolicy()
    play_unroll(SETTINGS, [make_group(SETTINGS, 1), make_group(SETTINGS, 2, first_slot=1)], policy)
    turns = [turn for row in range(9) for turn in (f"1 at {row}", f"2 at {row}")]
    asked = [f"ask {turn}" for turn in turns]
    stepped = [f"step {turn}" for turn in turns]
    assert policy.events == [asked[0], *(event for pair in zip(asked[1:], stepped[:-1], strict=True) for event in pair), stepped[-1]]


def test_with_one_group_requests_and_steps_alternate() -> None:
    policy = SlowPolicy()
    play_unroll(SETTINGS, [make_group(SETTINGS, 3)], policy)
    assert policy.events == [event for row in range(9) for event in (f"ask 3 at {row}", f"step 3 at {row}")]


def test_dividing_environments_into_groups_changes_no_unroll() -> None:
    policy = SlowPolicy()
    together = [make_group(SETTINGS, 3)]
    apart = [make_group(SETTINGS, 1), make_group(SETTINGS, 2, first_slot=1)]
    for version in range(3):
        one, other = (play_unroll(SETTINGS, groups, policy, version=version) for groups in (together, apart))
        for name, array in one.items():
            np.testing.assert_array_equal(array, other[name], err_msg=name)
    assert one["episode_id"].min() > 1  # some games ended on the way


@pytest.mark.parametrize("burn_in", [0, 2, 9])
def test_unrolls_are_the_same_if_states_are_told_only_when_asked(burn_in: int) -> None:
    settings = SETTINGS.model_copy(update={"algorithm": SETTINGS.algorithm.model_copy(update={"burn_in": burn_in})})
    policy = KeepingPolicy()
    known, kept = [make_group(settings, 3)], [make_group(settings, 3)]
    for version in range(4):
        expected, unrolls = (
            play_unroll(settings, groups, acting, version=version) for groups, acting in ((known, SlowPolicy()), (kept, policy))
        )
        for name, array in expected.items():
            np.testing.assert_array_equal(array, unrolls[name], err_msg=name)
    assert policy.num_told == 4
