"""Every switch of the Atari suite is compared bit for bit with a frame-by-frame player."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from herd.components.suites import environment_spec
from herd.components.suites.api import Slots
from herd.components.suites.atari import AtariSettings
from herd.components.suites.atari.environments import AtariEnvironments
from tests.envs.slow_atari import SlowAtari

NUM_ENVIRONMENTS = 2


def start(settings: AtariSettings, *, seed: int = 3, first_slot: int = 0, num_environments: int = NUM_ENVIRONMENTS) -> AtariEnvironments:
    spec = environment_spec(settings)
    return AtariEnvironments(settings, spec, Slots(num_environments, first_slot, seed, num_threads=1))


def check_against_the_slow_player(settings: AtariSettings, *, num_steps: int, num_noops: int) -> dict[str, int]:
    """Play both and compare every array; returns how often each event occurred."""
    fast = start(settings)
    slow = [SlowAtari(settings, int(seed), num_noops) for seed in fast._seeds]
    observation = fast.reset()
    for e, player in enumerate(slow):
        np.testing.assert_array_equal(observation.stack[e], player.reset().stack)
    assert observation.game_reset.all()
    events = dict.fromkeys(("life_lost", "game_over", "truncated", "reset"), 0)
    random = np.random.default_rng(0)
    for step in range(num_steps):
        actions = random.integers(fast.spec.actions.num_actions, size=NUM_ENVIRONMENTS, dtype=np.int32)
        after = fast.step(actions)
        finished = {game.environment: game for game in after.finished}
        for e, player in enumerate(slow):
            row = player.step(int(actions[e]))
            where = f"environment {e}, step {step}"
            assert after.rewards[e] == row.reward, where
            assert after.terminated[e] == row.terminated, where
            assert after.truncated[e] == row.truncated, where
            assert after.valid[e] == row.valid, where
            assert after.observation.game_reset[e] == (not row.valid), where
            assert (e in finished) == player.over, where
            if player.over:
                assert (finished[e].episode_return, finished[e].agent_steps) == (row.episode_return, row.agent_steps), where
            # At game over the emulator ends the step before it reads the screen (this is documented; nothing learns from that plane).
            planes = slice(None, -fast.spec.frame_shape[2]) if row.game_over else slice(None)
            np.testing.assert_array_equal(after.observation.stack[e][planes], row.stack[planes], err_msg=where)
            events["life_lost"] += row.terminated and not row.game_over
            events["game_over"] += row.game_over
            events["truncated"] += row.truncated
            events["reset"] += not row.valid
    fast.close()
    return events


@pytest.mark.parametrize(
    "switches",
    [
        {},
        {"frame_height": 210, "frame_width": 160},
        {"max_pool": False, "frame_stack": 6, "frame_height": 42, "frame_width": 64},
        {"action_repeat": 1, "grayscale": False},
        {"action_repeat": 2, "frame_stack": 1, "action_set": "full"},
        {"action_repeat": 7, "max_pool": False, "fire_on_reset": True},
        {"grayscale": False, "frame_height": 72, "frame_width": 96, "frame_stack": 2, "life_loss_ends_episode": False},
        {"grayscale": False, "frame_stack": 1},
    ],
    ids=lambda switches: "-".join(f"{key}={value}" for key, value in switches.items()) or "defaults",
)
def test_frames_match_the_reference_player_for_all_settings(switches: dict[str, Any]) -> None:
    # With at most one no-op there is exactly one (the range is 1..1). The limit ends games early, so that several begin.
    settings = AtariSettings(**({"tasks": ("breakout",), "noop_max": 1, "max_episode_frames": 200} | switches))
    events = check_against_the_slow_player(settings, num_steps=5 + 420 // settings.action_repeat, num_noops=1)
    assert events["reset"] > 0
    assert (events["life_lost"] > 0) == settings.life_loss_ends_episode


@pytest.mark.parametrize(("game", "num_steps"), [("breakout", 450), ("name_this_game", 60), ("freeway", 60), ("seaquest", 200)])
def test_games_with_lives_menus_and_fire_match_the_reference_player(game: str, num_steps: int) -> None:
    # Without no-ops no game is started twice: Seaquest begins slightly differently after every reset.
    settings = AtariSettings(tasks=(game,), noop_max=0, fire_on_reset=True)
    check_against_the_slow_player(settings, num_steps=num_steps, num_noops=0)


def test_breakout_reaches_game_over_without_the_limit() -> None:
    events = check_against_the_slow_player(AtariSettings(noop_max=1), num_steps=450, num_noops=1)
    assert events["game_over"] > 0
    assert events["reset"] >= events["game_over"] - 1
    assert events["truncated"] == 0


def test_sticky_actions_match_those_of_the_emulator() -> None:
    # Without no-ops and the limit, no game is started twice, so both emulators draw the same random numbers.
    settings = AtariSettings(noop_max=0, sticky_action_probability=0.25)
    events = check_against_the_slow_player(settings, num_steps=450, num_noops=0)
    assert events["game_over"] > 0
