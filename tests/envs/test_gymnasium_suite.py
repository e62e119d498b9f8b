"""The gymnasium suite against environments stepped by hand, and the mistakes that it refuses."""

from __future__ import annotations

import logging
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium
import numpy as np
import pytest

from herd.components.suites import checking, environment_spec, make_environments
from herd.components.suites.api import BatchedEnvironment, BrokenEnvironmentError, UnknownTaskError
from herd.components.suites.checking import FINE, NOTE, PROBLEM, QUICK, SUMMARY, Effort, Finding, Level
from herd.components.suites.gymnasium.check import check
from herd.components.suites.gymnasium.settings import GymnasiumSettings
from herd.components.suites.reading import hash_instruction
from herd.config.loading import SettingsError, load_settings
from herd.contract.spaces import NO_FRAMES, EnvSpec, continuous, discrete
from herd.telemetry.telemetry import DEFAULT_ALIVE_SECONDS, Telemetry
from tests.patience import patient

DIALS = "herd.components.suites.gymnasium.examples:Dials"
MINIGRID = "minigrid:MiniGrid-Empty-5x5-v0"
SCRIPTED = '''
import gymnasium
import numpy as np
from gymnasium import spaces


# A space, and its observation after so many steps.
OBSERVED = {
    "picture": (spaces.Box(0, 255, (4, 6, 3), np.uint8), lambda steps: np.full((4, 6, 3), 10 * steps + np.arange(3), np.uint8)),
    "plane": (spaces.Box(0, 255, (4, 6), np.uint8), lambda steps: np.full((4, 6), steps, np.uint8)),
    "number": (spaces.Discrete(50), lambda steps: steps),
    "floats": (spaces.Box(-9, 9, (2, 2), np.float64), lambda steps: np.full((2, 2), steps / 2)),
    "board": (spaces.Box(0, 2, (2, 3), np.uint8), lambda steps: np.full((2, 3), steps, np.uint8)),
    "scores": (
        spaces.Box(np.array([-4, 0, -(2**31)]), np.array([4, 10**6, 2**31 - 1]), dtype=np.int64),
        lambda steps: np.array([2, 5 * 10**5, -7]),
    ),
    "channels first": (
        spaces.Box(0, 255, (3, 12, 13), np.uint8),
        lambda steps: np.stack([np.full((12, 13), 10 * c, np.int64) for c in range(3)]),
    ),
    "unit": (spaces.Box(0, 1, (2, 3, 3), np.float32), lambda steps: np.full((2, 3, 3), 0.5 * steps)),
    "rgba": (spaces.Box(0, 255, (2, 3, 4), np.uint8), lambda steps: np.full((2, 3, 4), [10, 11, 12, 255], np.uint8)),
    "two channels": (spaces.Box(0, 255, (4, 6, 2), np.uint8), lambda steps: np.zeros((4, 6, 2), np.uint8)),
    "stack": (spaces.Box(0, 255, (4, 8, 8, 3), np.uint8), None),
    "empty": (spaces.Box(-1, 1, (0,), np.float32), None),
    "tuple": (
        spaces.Tuple([spaces.Discrete(50), spaces.Box(-1, 1, (2,), np.float32)]),
        lambda steps: (steps, np.full(2, 0.5, np.float32)),
    ),
    "text": (
        spaces.Dict(said=spaces.Text(99), near=spaces.Box(0, 9, (3,), np.uint8)),
        lambda steps: {"said": "go to the red door", "near": np.array([0, 1, 2], np.uint8)},
    ),
    "sequence": (spaces.Sequence(spaces.Discrete(3)), None),
    "mission": (spaces.Text(9), None),
    "everything": (
        spaces.Dict(
            map=spaces.Box(0, 255, (2, 4), np.uint8),
            eye=spaces.Box(0, 1, (4, 8, 3), np.float32),
            body=spaces.Dict(angle=spaces.Box(-180, 180, (1,), np.float64), flags=spaces.MultiBinary(2)),
            parts=spaces.Tuple([spaces.Discrete(2), spaces.Box(-np.inf, np.inf, (1,), np.float64)]),
            said=spaces.Text(20, charset="gohme "),
            action_mask=spaces.MultiBinary(3),
        ),
        lambda steps: {
            "map": np.full((2, 4), 7, np.uint8),
            "eye": np.full((4, 8, 3), 0.5, np.float32),
            "body": {"angle": np.array([90.0]), "flags": np.array([0, 1], np.int8)},
            "parts": (1, np.array([1e5])),
            "said": "go home",
            "action_mask": np.ones(3, np.int8),
        },
    ),
    "of any length": (spaces.Dict(x=spaces.Box(0, 1, (1,)), tail=spaces.Sequence(spaces.Discrete(3))), None),
}


class Counting(gymnasium.Env):
    """Counts its steps in every observation; ends by itself after `length`."""

    def __init__(self, length=3, space="picture", reward=1.0, action_space=None):
        self.length, self.reward = length, reward
        self.action_space = action_space or spaces.Discrete(3, start=-1)
        self.observation_space, self.observed = OBSERVED[space]

    def observe(self):
        return self.observed(self.steps)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.observe(), {}

    def step(self, action):
        assert action in (-1, 0, 1), action
        self.steps += 1
        return self.observe(), self.reward * action, self.steps == self.length, False, {}


texts = lambda: Counting(action_space=spaces.Text(9))
unbounded = lambda: Counting(action_space=spaces.Box(-(2**31), 2**31 - 1, (2,), np.int32))


def broken():
    raise RuntimeError("no\\nmaze")


def nothing():
    return 7


def anything(**kwargs):
    return Counting()
'''


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """Write the user's file to the current folder, under a different name for each test because a module is imported only once."""
    name = f"mine_{abs(hash(request.node.name))}"
    (tmp_path / f"{name}.py").write_text(SCRIPTED)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("")
    return name


def found(env: GymnasiumSettings, effort: Effort) -> dict[Level, list[str]]:
    """What a check finds, by level, on a machine of any speed."""
    [task] = env.tasks
    findings = [each for each in check(env, task, effort._replace(seconds=1e6)) if isinstance(each, Finding)]
    findings = [each for each in findings if "its step is slow" not in each.what]
    levels: tuple[Level, ...] = (SUMMARY, FINE, NOTE, PROBLEM)
    return {level: [each.what.removeprefix(f"{task}: ") for each in findings if each.level == level] for level in levels}


def make(settings: GymnasiumSettings, num_environments: int = 1, first_slot: int = 0, seed: int = 3) -> BatchedEnvironment:
    return make_environments(settings, num_environments=num_environments, first_slot=first_slot, seed=seed, num_threads=1)


def seed_of(slot: int, seed: int = 3) -> int:
    """The seed of an environment's own random stream, the same in every process."""
    return int(np.random.default_rng((seed, slot, 1)).integers(2**31))


def test_rows_match_the_environment_stepped_by_hand() -> None:
    settings = GymnasiumSettings(tasks=("CartPole-v1",), max_episode_steps=15, scale_by_bounds=False)
    environments = make(settings, num_environments=3, first_slot=4)
    assert environments.spec == EnvSpec(("CartPole-v1",), NO_FRAMES, 1, discrete(2), 1, 0, vector_size=4, vector_is_bounded=False)
    by_hand = [gymnasium.make("CartPole-v1", max_episode_steps=15) for _ in range(3)]
    expected = np.stack([environment.reset(seed=seed_of(4 + slot))[0] for slot, environment in enumerate(by_hand)])
    observation = environments.reset()
    np.testing.assert_array_equal(observation.vector, expected)
    assert observation.game_reset.all()
    over, returns, lengths = [False] * 3, [0.0] * 3, [0] * 3
    ends = {"terminated": 0, "truncated": 0}
    random = np.random.default_rng(0)
    for _ in range(120):
        actions = random.integers(2, size=3, dtype=np.int32)
        actions[2] = random.random() < 0.53  # stays balanced for longer, so this game is cut off
        transition = environments.step(actions)
        finished = {game.environment: game for game in transition.finished}
        for slot, environment in enumerate(by_hand):
            row = transition.observation
            assert row.vector is not None
            assert row.game_reset[slot] == (not transition.valid[slot]) == over[slot]
            if over[slot]:
                np.testing.assert_array_equal(row.vector[slot], environment.reset()[0])
                assert (transition.rewards[slot], transition.terminated[slot], transition.truncated[slot]) == (0.0, False, False)
                over[slot], returns[slot], lengths[slot] = False, 0.0, 0
                continue
            after, reward, terminated, truncated, _ = environment.step(int(actions[slot]))
            np.testing.assert_array_equal(row.vector[slot], after)  # the last observation is a row too
            assert transition.rewards[slot] == reward
            assert transition.terminated[slot] == terminated
            assert transition.truncated[slot] == (truncated and not terminated)
            returns[slot] += float(reward)
            lengths[slot] += 1
            over[slot] = terminated or truncated
            ends["terminated"] += terminated
            ends["truncated"] += truncated and not terminated
            assert (slot in finished) == over[slot]
            if over[slot]:
                assert (finished[slot].episode_return, finished[slot].agent_steps, finished[slot].task_id) == (
                    returns[slot],
                    lengths[slot],
                    0,
                )
    assert min(ends.values()) >= 2
    environments.close()


@pytest.mark.processes
def test_worker_processes_play_the_same_games_as_one_process() -> None:
    one = GymnasiumSettings(tasks=("CartPole-v1",))
    several = one.model_copy(update={"vectorization": "async"})
    both = [make(settings, num_environments=2) for settings in (one, several)]
    first, second = (each.reset().vector for each in both)
    np.testing.assert_array_equal(first, second)
    random, num_ends = np.random.default_rng(1), 0
    for _ in range(40):
        actions = random.integers(2, size=2, dtype=np.int32)
        row, other = (each.step(actions) for each in both)
        for name in ("rewards", "terminated", "truncated", "valid"):
            np.testing.assert_array_equal(getattr(row, name), getattr(other, name))
        np.testing.assert_array_equal(row.observation.vector, other.observation.vector)
        num_ends += int(row.terminated.sum())
    assert num_ends > 0
    for each in both:
        each.close()


def test_actions_start_at_their_first_value_are_repeated_and_limited(folder: str) -> None:
    environments = make(GymnasiumSettings(tasks=(f"{folder}:Counting",), action_repeat=2, kwargs={"length": 5, "reward": 0.5}))
    environments.reset()
    # Rewards -1, -1 | 1, 1 | the game ends after one more frame.
    transitions = [environments.step(np.array([action], np.int32)) for action in (0, 2, 2)]
    assert [float(transition.rewards[0]) for transition in transitions] == [-1.0, 1.0, 0.5]
    assert transitions[-1].finished[0].episode_return == 0.5
    assert transitions[-1].finished[0].agent_steps == 3
    assert environments.spec.action_repeat == 2

    limited = make(GymnasiumSettings(tasks=(f"{folder}:Counting",), max_episode_steps=2))
    limited.reset()
    transitions = [limited.step(np.zeros(1, np.int32)) for _ in range(2)]
    assert [bool(transition.truncated[0]) for transition in transitions] == [False, True]
    assert not transitions[1].terminated[0]


@pytest.mark.parametrize(
    ("space", "settings", "frame", "vector"),
    [
        ("picture", {}, np.full((4, 6, 3), 10 + np.arange(3)), None),
        ("plane", {}, np.full((4, 6, 1), 1), None),
        ("picture", {"grayscale": True}, np.full((4, 6, 1), 11), None),  # 0.299 * 10 + 0.587 * 11 + 0.114 * 12 = 10.8
        ("picture", {"frame_height": 2, "frame_width": 3}, np.full((2, 3, 3), 10 + np.arange(3)), None),
        ("number", {}, None, np.eye(50)[1]),
        ("floats", {}, None, np.full(4, 0.5 / 9)),
        ("floats", {"scale_by_bounds": False}, None, np.full(4, 0.5)),
        ("tuple", {}, None, np.concatenate([np.eye(50)[1], [0.5, 0.5]])),
        ("text", {"vector_keys": ("near",)}, None, np.arange(3) / 9),
        ("text", {"vector_keys": ("near",), "scale_by_bounds": False}, None, np.arange(3)),
        ("board", {}, None, np.full(6, 0.5)),
        ("scores", {}, None, np.array([0.5, 5e5, -7])),
        ("plane", {"flatten": True}, None, np.full(24, 1 / 255)),
        ("channels first", {}, np.full((12, 13, 3), 10 * np.arange(3)), None),
        ("unit", {}, np.full((2, 3, 3), 128), None),
        ("rgba", {"grayscale": True}, np.full((2, 3, 1), 11), None),
    ],
)
def test_observations_become_frames_or_vectors(
    folder: str, space: str, settings: dict[str, Any], frame: np.ndarray | None, vector: np.ndarray | None
) -> None:
    env = GymnasiumSettings(tasks=(f"{folder}:Counting",), kwargs={"space": space}, **settings)
    environments = make(env)
    environments.reset()
    observation = environments.step(np.ones(1, np.int32)).observation
    spec = environments.spec
    assert (spec.frame_shape, spec.has_frames) == ((0, 0, 0) if frame is None else frame.shape, frame is not None)
    assert spec.vector_size == (0 if vector is None else len(vector))
    if frame is not None:
        np.testing.assert_array_equal(observation.stack[0].transpose(1, 2, 0), frame)
        assert observation.vector is None
    else:
        assert observation.vector is not None
        assert vector is not None
        np.testing.assert_allclose(observation.vector[0], vector.astype(np.float32), rtol=1e-6)
        assert observation.vector.dtype == np.float32


def test_without_keys_every_entry_is_read(folder: str) -> None:
    """Two pictures of different sizes become one frame, texts the instruction, a mask nothing, and all the rest the vector."""
    settings = GymnasiumSettings(tasks=(f"{folder}:Counting",), kwargs={"space": "everything"})
    environments = make(settings)
    observation = environments.reset()
    shown = observation.stack[0].transpose(1, 2, 0)
    assert shown.shape == environments.spec.frame_shape == (4, 8, 4)
    assert (np.unique(shown[..., 0]).tolist(), np.unique(shown[..., 1:]).tolist()) == ([7], [128])
    assert observation.vector is not None
    assert observation.instructions is not None
    np.testing.assert_allclose(observation.vector[0], [0.5, 0, 1, 0, 1, 1e5])
    assert observation.instructions[0].tolist() == hash_instruction("go home")
    assert not environments.spec.vector_is_bounded
    environments.close()
    assert found(settings, QUICK)[NOTE] == [
        "the pictures map 2x4, eye 4x8 become one of 4x8 with all of their channels",
        "pictures of eye in [0, 1] are rounded to 256 levels",
        "numbers (1 of 6) are scaled by their bounds to [0, 1] or [-1, 1] (env.scale_by_bounds)",
    ]
    assert environment_spec(settings.model_copy(update={"flatten": True})).vector_size == 8 + 96 + 1 + 2 + 2 + 1 + 20


def test_dict_observations_become_image_vector_and_instruction() -> None:
    settings = GymnasiumSettings(tasks=(MINIGRID,), image_key="image", vector_keys=("direction",), instruction_key="mission")
    environments = make(settings, num_environments=2)
    by_hand = gymnasium.make(MINIGRID)
    seen, _ = by_hand.reset(seed=seed_of(0))
    observation = environments.reset()
    np.testing.assert_array_equal(observation.stack[0].transpose(1, 2, 0), seen["image"])
    assert observation.vector is not None
    assert observation.instructions is not None
    np.testing.assert_array_equal(observation.vector[0], np.eye(4)[seen["direction"]])
    assert observation.instructions[0].tolist() == hash_instruction("get to the green goal square")
    assert environments.spec == EnvSpec((MINIGRID,), (7, 7, 3), 1, discrete(7), 1, 16, vector_size=4)
    assert environment_spec(GymnasiumSettings(tasks=(MINIGRID,))) == environments.spec  # the same without keys


def test_rendered_images_can_be_observed() -> None:
    environments = make(GymnasiumSettings(tasks=(MINIGRID,), render=True, frame_height=20, frame_width=24))
    observation = environments.reset()
    assert environments.spec.frame_shape == (20, 24, 3)
    assert len(np.unique(observation.stack)) > 3


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"tasks": ("MiniGrid-Empty-9x9-v0",)}, "an id that another package registers is module:id"),
        ({"tasks": ("MINE:broken",)}, "cannot be created: RuntimeError: no maze (MINE.py, line"),
        ({"tasks": ("MINE:nothing",)}, "must return a gymnasium.Env, not int"),
        ({"tasks": ("MINE:texts",)}, "its actions are Text(1, 9, charset="),
        ({"tasks": ("MINE:unbounded",)}, "integers need bounds, because each value is an output of the network"),
        ({"tasks": ("MINE:Counting",), "mask": "legal"}, "env.mask: the observations of MINE:Counting have no entry legal"),
        ({"tasks": (DIALS,), "action_repeat": 2}, f"env.action_repeat must be 1, as action_masks() of {DIALS} may forbid what is repeated"),
        ({"tasks": ("MINE:Counting",), "kwargs": {"size": 3}}, "got an unexpected keyword argument 'size'"),
        ({"tasks": ("MINE:Counting",), "render": True}, "env.tasks MINE:Counting: cannot be drawn: it must take render_mode"),
        ({"tasks": ("MINE:anything",), "render": True}, "env.tasks MINE:anything: cannot be drawn: it must take render_mode"),
        ({"tasks": ("MINE:Counting",), "kwargs": {"space": "mission"}}, "is not an observation of the game: add numbers or a picture"),
        ({"tasks": ("MINE:Counting",), "kwargs": {"space": "of any length"}}, "tail, Sequence(Discrete(3), stack=False), cannot be"),
        ({"tasks": ("MINE:Counting",), "kwargs": {"space": "sequence"}}, "cannot be converted to a vector"),
        ({"tasks": (MINIGRID,), "vector_keys": ("mission",)}, "cannot be converted to a vector"),
        ({"tasks": (MINIGRID,), "image_key": "picture"}, "have no entry picture; they have direction, image, mission"),
        ({"tasks": (MINIGRID,), "image_key": "direction"}, "direction of minigrid:MiniGrid-Empty-5x5-v0 is Discrete(4), not a picture"),
        ({"tasks": (MINIGRID,), "instruction_key": "mission"}, "is not an observation of the game"),
        ({"tasks": ("CartPole-v1",), "image_key": "image"}, "its observations are a Box, which has no entries"),
        ({"tasks": ("MINE:Counting",), "kwargs": {"space": "empty"}}, "its observations, Box([], [], (0,), float32), have no numbers"),
        ({"tasks": ("MINE:Counting",), "kwargs": {"space": "stack"}}, "is a stack of pictures: leave stacking to env.frame_stack"),
        (
            {"tasks": ("MINE:Counting",), "kwargs": {"space": "two channels"}, "grayscale": True},
            "env.grayscale: the pictures of MINE:Counting have 2 channels, not the 3 of RGB",
        ),
        ({"tasks": ("CartPole-v1",), "frame_stack": 4}, "env.frame_stack applies to pictures"),
        ({"tasks": ("CartPole-v1", "Acrobot-v1")}, "differ in their spaces: vector 4, actions 2 discrete; vector 6, actions 3 discrete"),
    ],
)
def test_unsupported_environments_are_refused_in_one_line(folder: str, settings: dict[str, Any], said: str) -> None:
    settings["tasks"] = tuple(task.replace("MINE", folder) for task in settings["tasks"])
    with pytest.raises(UnknownTaskError) as raised:
        environment_spec(GymnasiumSettings(**settings))
    assert said.replace("MINE", folder) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_an_id_without_a_version_is_refused_and_logging_of_an_environment_undone(odd: str) -> None:
    with pytest.warns(UserWarning, match="latest versioned"), pytest.raises(UnknownTaskError) as raised:
        environment_spec(GymnasiumSettings(tasks=("CartPole",)))
    assert str(raised.value).startswith("env.tasks CartPole: name the version, as in CartPole-v1")
    handlers, level = list(logging.root.handlers), logging.root.level
    environment_spec(GymnasiumSettings(tasks=(f"{odd}:talkative",)))
    assert (logging.root.handlers, logging.root.level) == (handlers, level)


ODD = """
import gymnasium, logging, numpy as np, os, signal
from decimal import Decimal
from gymnasium import spaces


class Odd(gymnasium.Env):
    def __init__(self, observation=None, reward=1.0, info=None, space=None, reset=None, step=None):
        self.observation_space = space or spaces.Box(0, 1, (2,), np.float32)
        self.action_space = spaces.Discrete(3)
        self.observation = np.ones(2, np.float32) if observation is None else observation
        self.reward, self.info, self.reset_result, self.step_result = reward, info or {}, reset, step

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return (self.observation, self.info) if self.reset_result is None else self.reset_result

    def step(self, action):
        return self.step_result or (self.observation, self.reward, np.array([False]), np.array([False]), {})


class Forgetful(Odd):
    def step(self, action):
        return np.random.default_rng().uniform(size=2).astype(np.float32), 1.0, False, False, {}


class Shared(Odd):
    count = 0

    def step(self, action):
        Shared.count += 1
        return np.full(2, Shared.count / 1e6, np.float32), 1.0, False, False, {}

    def reset(self, *, seed=None, options=None):
        Shared.count = 0 if seed is not None else Shared.count
        return super().reset(seed=seed)


class Painter(Odd):
    def __init__(self, render_mode=None):
        super().__init__()
        self.render_mode = render_mode

    def render(self):
        print("drawn")
        os.write(2, b"drawn by a library")
        return np.zeros((4, 4, 3), np.uint8)


class Single(Odd):
    is_open = False

    def __init__(self):
        super().__init__()
        assert not Single.is_open, "one per process"
        Single.is_open = True

    def close(self):
        Single.is_open = False


class Killed(Odd):
    def step(self, action):
        os.kill(os.getpid(), signal.SIGKILL)


class Stuck(Odd):
    def step(self, action):
        signal.pause()


class Slow(Odd):
    def reset(self, **options):
        import slow_steps

        slow_steps.take(40.0)
        return super().reset(**options)

    def step(self, action):
        import slow_steps

        slow_steps.take(161.0 if action == 2 else 90.0)
        return super().step(action)


class Chatty(Odd):
    def step(self, action):
        print("step" * 3, flush=True)
        print("step")
        return self.observation, 1.0, False, False, {}


def talkative():
    logging.basicConfig(level=logging.DEBUG, force=True)
    return Odd()


def leaves():
    print("bye", flush=True)
    os._exit(7)


class Doors(Odd):
    # Three doors, of which one is open at a time. `offer` says where the mask is, `length` after how many steps a game ends.

    def __init__(self, offer="info", start=0, length=5, empty_at=None, spaces_=None, size=3):
        entry = {"state": spaces.Box(-np.inf, np.inf, (1,)), "legal": spaces.Box(0, 1, (3,))}
        super().__init__(space=spaces.Dict(entry) if offer == "legal" else entry["state"])
        self.action_space = spaces_ or spaces.Discrete(3, start=start)
        self.offer, self.first, self.length, self.empty_at, self.size = offer, start, length, empty_at, size
        if offer == "method":
            self.action_masks = self.mask

    def mask(self):
        mask = np.zeros(self.size, np.int8)
        if self.steps not in (self.empty_at, self.length):
            mask[self.steps % 3] = 1
        return mask

    def row(self):
        state = np.full(1, self.steps, np.float32)
        info = {"action_mask": self.mask()} if self.offer == "info" and self.steps < self.length else {}
        return ({"state": state, "legal": self.mask().astype(np.float32)} if self.offer == "legal" else state), info

    def reset(self, *, seed=None, options=None):
        self.steps = 0
        return self.row()

    def step(self, action):
        assert action == self.first + self.steps % 3, "this door is closed"
        self.steps += 1
        observation, info = self.row()
        return observation, 1.0, self.steps == self.length, False, info


class Late(Doors):
    # Its info has a mask from the first step on, before which every door is open.
    def reset(self, *, seed=None, options=None):
        return super().reset()[0], {}

    def step(self, action):
        return super().step(self.steps % 3)


class Fickle(Doors):
    # Every other game begins without a mask.
    resets = 0

    def reset(self, *, seed=None, options=None):
        Fickle.resets += 1
        observation, info = super().reset()
        return observation, info if Fickle.resets % 2 else {}


empty = lambda: Doors(empty_at=2)
empty_first = lambda: Doors(empty_at=0, offer="method")
wide = lambda: Doors(size=4)
free = lambda: Doors(spaces_=spaces.Box(-1, 1, (1,)))


class Seedless(Odd):
    def reset(self):
        return self.observation, {}


class SeedOnly(Odd):
    def reset(self, seed=None):
        assert isinstance(seed, int | None)
        return self.observation, {}


class Torn(Odd):
    def close(self):
        self.window.close()


class Blind(Odd):
    def step(self, action):
        return self.nothing


Rich, Poor = (lambda: Odd(reward=5000.0)), (lambda: Odd(reward=0.0))
Coded = lambda: Odd(np.full((8, 6, 3), 7, np.uint8), space=spaces.Box(0, 255, (8, 6, 3), np.uint8))
many = lambda: Odd(np.zeros(20_000, np.float32), space=spaces.Box(-np.arange(20_000, dtype=np.float32), 1.0))
Wide, Double = (lambda: Odd(np.full(2, 1.5, np.float32))), (lambda: Odd(np.ones(2)))
one = lambda: Odd(reward=np.array([0.5]))
zero_d = lambda: Odd(reward=np.float64(0.5))
decimal = lambda: Odd(reward=Decimal("0.5"))
flag = lambda: Odd(reward=True)
two = lambda: Odd(reward=np.array([1.0, 2.0]))
text = lambda: Odd(reward="1.0")
turned = lambda: Odd(np.zeros((8, 6, 3), np.uint8), space=spaces.Box(0, 255, (6, 8, 3), np.uint8))
numbers = lambda: Odd([[0] * 8] * 6, space=spaces.Box(0, 255, (6, 8), np.uint8))
flat = lambda: Odd({"x": np.ones(2, np.float32)}, space=spaces.Dict(x=spaces.Box(0, 1, (1,))))
bright = lambda: Odd(np.full((8, 9, 3), 200, np.float32), space=spaces.Box(0, 1, (8, 9, 3), np.float32))
overflow = lambda: Odd(np.full((8, 6), 300), space=spaces.Box(0, 255, (8, 6), np.uint8))
below = lambda: Odd({"card": -1, "x": np.ones(1, np.float32)}, space=spaces.Dict(card=spaces.Discrete(4), x=spaces.Box(0, 1, (1,))))
beyond = lambda: Odd(np.array([1, 3]), space=spaces.MultiDiscrete([2, 3]))
bits = lambda: Odd(np.array([0, 2], np.int8), space=spaces.MultiBinary(2))
words = lambda: Odd(np.array(["1.0", "2.0"]))
complex_ = lambda: Odd(np.array([1j, 1.0]))
lost = lambda: Odd({"x": np.ones(1, np.float32)}, space=spaces.Dict(x=spaces.Box(0, 1, (1,)), y=spaces.Box(0, 1, (1,))))
old_reset = lambda: Odd(reset=np.ones(2, np.float32))
old_step = lambda: Odd(step=(np.ones(2, np.float32), 1.0, False, {}))
"""


@pytest.fixture
def odd(tmp_path: Path, folder: str) -> str:
    (tmp_path / f"odd_{folder}.py").write_text(ODD)
    return f"odd_{folder}"


@pytest.mark.parametrize(
    ("task", "settings", "notes"),
    [
        *((task, {}, []) for task in ("one", "zero_d", "decimal", "flag", "SeedOnly")),
        *(("one", {"max_episode_steps": limit}, []) for limit in (5, 500)),
        ("Coded", {}, ["its pictures have no value above 7 of 255"]),
        ("numbers", {}, ["its pictures have no value above 0 of 255"]),
        ("many", {"scale_by_bounds": False}, ["its vector has 20,000 numbers, each with a weight to every unit of the first layer"]),
        ("SeedOnly", {"max_episode_steps": 5}, []),
        ("Seedless", {"max_episode_steps": 5}, ["its reset() takes no seed, so its games cannot be repeated"]),
        ("Torn", {}, ["close() failed: AttributeError: 'Torn' object has no attribute 'window' (MINE.py, line LINE)"]),
        ("Forgetful", {}, ["two games from reset(seed=1) with the same actions differ, first in row 1"]),
        ("Wide", {}, ["its observation leaves its declared bounds"]),
        ("Double", {}, ["its observation is float64, but its space declares float32"]),
        ("Rich", {}, ["rewards from 5000 to 5000"]),
        ("Poor", {}, ["all rewards of 100 random steps are 0"]),
    ],
)
def test_a_check_says_what_a_user_may_not_expect(odd: str, task: str, settings: dict[str, Any], notes: list[str]) -> None:
    env = GymnasiumSettings(tasks=(f"{odd}:{task}",), **settings)
    told = found(env, QUICK)
    assert not told[PROBLEM]
    never_ends = [note for note in told[NOTE] if note == "no game ended in 100 random steps"]
    is_limited = "max_episode_steps" in settings
    assert len(never_ends) == (0 if is_limited else 1)
    said = [re.sub(r"line \d+", "line LINE", note.replace(odd, "MINE")) for note in told[NOTE] if note not in never_ends]
    assert said == notes
    [summary] = told[SUMMARY]
    ends = settings.get("max_episode_steps", 500) < 100
    assert summary.startswith("100 random steps in 21 games, returns" if ends else "100 random steps in 1 game, which did not end,")
    assert not any("\n" in each for level in told.values() for each in level)
    environments = make(env)
    environments.reset()
    assert environments.step(np.zeros(1, np.int32)).valid.all()
    environments.close()


@pytest.mark.parametrize(
    ("offer", "settings"),
    [
        ("info", {}),
        ("method", {}),
        ("legal", {"mask": "legal"}),
        pytest.param("method", {"vectorization": "async"}, marks=pytest.mark.processes),
    ],
)
def test_a_mask_is_obeyed_wherever_an_environment_offers_it(odd: str, offer: str, settings: dict[str, Any]) -> None:
    env = GymnasiumSettings(tasks=(f"{odd}:Doors",), kwargs={"offer": offer, "start": 2}, **settings)
    spec = environment_spec(env)
    assert (str(spec.actions), spec.actions.mask_size, spec.vector_size) == ("3 discrete, masked", 3, 1)
    assert found(env, QUICK)[PROBLEM] == []
    environments = make(env, num_environments=2)
    masks = environments.reset().action_masks
    for step in range(14):
        assert masks is not None
        game_step = step % 6  # the step after a game's last one only starts the next
        if game_step < 5:
            assert masks.tolist() == [[index == game_step % 3 for index in range(3)]] * 2
        else:
            assert masks.all()  # nothing is played, so that everything is allowed
        before = masks.copy()
        transition = environments.step(masks.argmax(axis=1).astype(np.int32))
        assert (masks == before).all()
        masks = transition.observation.action_masks
        assert transition.terminated.all() == (game_step == 4)
    environments.close()
    ignored = environment_spec(env.model_copy(update={"mask": "none", "flatten": True}))
    assert ignored.actions == discrete(3)
    assert environment_spec(GymnasiumSettings(tasks=(f"{odd}:free",))).actions == continuous([-1.0], [1.0])


SOME_ROWS = "is in some rows and not in others: return it from reset() and from every step(), or ignore it with env.mask: none"


def test_a_mask_that_is_in_some_rows_only_ends_the_actor_with_advice(odd: str, caplog: pytest.LogCaptureFixture) -> None:
    env = GymnasiumSettings(tasks=(f"{odd}:Late",))
    assert not environment_spec(env).actions.mask_size
    environments = make(env)
    environments.reset()
    for _ in range(2):
        assert not environments.step(np.array([0])).valid[0]  # a failed game is replaced twice
    with pytest.raises(BrokenEnvironmentError, match=rf'odd_.*:Late, .* info\["action_mask"\] {re.escape(SOME_ROWS)}$'):
        environments.step(np.array([0]))
    environments.close()
    # If only some games begin without one, those are replaced by others.
    env = GymnasiumSettings(tasks=(f"{odd}:Fickle",))
    assert environment_spec(env).actions.mask_size
    environments = make(env)
    environments.reset()
    assert f'Fickle, environment 0: it failed: info["action_mask"] {SOME_ROWS}; restarted' in caplog.text
    environments.close()


def test_a_row_that_allows_nothing_is_an_error_that_names_the_task(odd: str) -> None:
    environments = make(GymnasiumSettings(tasks=(f"{odd}:empty",)))
    environments.reset()
    environments.step(np.array([0]))
    for _ in range(2):
        assert not environments.step(np.array([1])).valid[0]  # a failed game is replaced twice
        environments.step(np.array([0]))
    with pytest.raises(BrokenEnvironmentError, match=r'odd_.*:empty, .* info\["action_mask"\] allows no action in a game that goes on'):
        environments.step(np.array([1]))
    environments.close()


KINDS = """
import gymnasium, numpy as np
from gymnasium import spaces

LOW, HIGH = np.array([-2, 0, -np.inf, 0], np.float32), np.array([2, 10, np.inf, np.inf], np.float32)
SPACES = {
    "multi_discrete": spaces.MultiDiscrete([[2, 3], [4, 5]], start=[[1, 1], [0, -7]]),
    "multi_binary": spaces.MultiBinary([2, 2]),
    "integers": spaces.Box(-3, 5, (2,), np.int16),
    "box": spaces.Box(LOW, HIGH),
    "number": spaces.Box(-1, 3, (), np.float64),
    "limits": spaces.Box(np.array([np.finfo("f8").min, 0, 0]), np.array([np.finfo("f8").max, np.finfo("f8").max, 1e5]), dtype="f8"),
    "tuple": spaces.Tuple([spaces.Discrete(3, start=4), spaces.MultiDiscrete([2, 2])]),
    "dict": spaces.Dict(thrust=spaces.Box(0, 1, (2,)), gear=spaces.Dict(up=spaces.Discrete(2))),
    "one": spaces.Tuple([spaces.Discrete(3, start=4)]),
}


class Taker(gymnasium.Env):
    taken = []
    observation_space = spaces.Box(0, 1, (1,))

    def __init__(self, kind):
        self.action_space = SPACES[kind]

    def reset(self, *, seed=None, options=None):
        return np.ones(1, np.float32), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        Taker.taken.append(action)
        return np.ones(1, np.float32), 0.0, False, False, {}
"""


@pytest.mark.parametrize(
    ("kind", "said", "action", "own"),
    [
        ("multi_discrete", "2 x 3 x 4 x 5 discrete", [1, 2, 3, 4], [[2, 3], [3, -3]]),
        ("multi_binary", "2 x 2 x 2 x 2 discrete", [1, 0, 0, 1], [[1, 0], [0, 1]]),
        ("integers", "9 x 9 discrete", [0, 8], [-3, 5]),
        ("box", "4 continuous", [0.5, -1.0, -123.0, -5.0], [1.0, 0.0, -123.0, 0.0]),
        ("box", "4 continuous", [9.0, -9.0, 7.5, 7.5], [2.0, 0.0, 7.5, 7.5]),
        ("number", "1 continuous in [-1, 3]", [0.5], 2.0),
        ("limits", "3 continuous", [7.5, -0.5, 1.0], [7.5, 0.0, 1e5]),
        ("tuple", "3 x 2 x 2 discrete", [2, 0, 1], (6, [0, 1])),
        ("dict", "2 discrete and 2 continuous in [0, 1]", [1.0, 0.0, 1.0], {"thrust": [1.0, 0.5], "gear": {"up": 1}}),
        ("one", "3 discrete", 2, (6,)),
    ],
)
def test_actions_of_every_kind_are_the_environments(tmp_path: Path, folder: str, kind: str, said: str, action: Any, own: Any) -> None:
    (tmp_path / f"kinds_{folder}.py").write_text(KINDS)
    env = GymnasiumSettings(tasks=(f"kinds_{folder}:Taker",), kwargs={"kind": kind})
    space = environment_spec(env).actions
    assert (str(space), space.shape) == (said, np.shape(action))
    told = found(env, QUICK)
    assert told[PROBLEM] == []
    wide = "numbers of its actions with bounds more than 1,000,000 apart are chosen as if they had none"
    assert (wide in told[NOTE]) == (kind == "limits")
    environments = make(env)
    environments.reset()
    environments.step(np.array([action], space.dtype))
    environments.close()
    taken = sys.modules[f"kinds_{folder}"].Taker.taken[-1]
    assert _plain(taken) == own
    with pytest.raises(ValueError, match="actions must"):
        environments.step(np.full((1, *space.shape), -1, "i4") if "discrete" in said else np.full((1, 1), np.nan, "f4"))


def _plain(action: Any) -> Any:
    """Return an environment's action without arrays."""
    if isinstance(action, dict):
        return {key: _plain(each) for key, each in action.items()}
    return tuple(_plain(each) for each in action) if isinstance(action, tuple) else np.asarray(action).tolist()


@pytest.mark.parametrize(
    ("task", "said"),
    [
        ("two", "returned the reward array([1., 2.]), not a number: return their weighted sum"),
        ("text", "returned the reward '1.0', not a number"),
        ("turned", "its observation is an array of uint8 (8, 6, 3), but its observation_space declares Box(0, 255, (6, 8, 3), uint8)"),
        ("bright", "its observation has values in 200..200, but its observation_space declares Box(0.0, 1.0, (8, 9, 3), float32)"),
        ("overflow", "its observation has values in 300..300, but its observation_space declares Box(0, 255, (8, 6), uint8)"),
        ("below", "entry card of its observation is a int: -1, but its observation_space declares Discrete(4)"),
        ("beyond", "its observation is an array of int64 (2,): [1 3], but its observation_space declares MultiDiscrete([2 3])"),
        ("bits", "its observation is an array of int8 (2,): [0 2], but its observation_space declares MultiBinary(2)"),
        ("words", "its observation is an array of <U3 (2,), but its observation_space declares Box(0.0, 1.0, (2,), float32)"),
        ("complex_", "its observation is an array of complex128 (2,), but its observation_space declares Box(0.0, 1.0, (2,), float32)"),
        ("lost", "its observation is a dict and has no entry y"),
        ("flat", "entry x of its observation is an array of float32 (2,), but its observation_space declares Box(0.0, 1.0"),
        ("old_reset", "reset() returned an array of float32 (2,), not (observation, info); is it written for gym below 0.26?"),
        ("old_step", "step() returned a tuple of 4, not (observation, reward, terminated, truncated, info)"),
        ("Blind", "AttributeError: 'Blind' object has no attribute 'nothing'"),
        ("empty_first", "action_masks() allows no action in a game that goes on"),
        ("Late", f'info["action_mask"] {SOME_ROWS}'),
        ("Fickle", f'info["action_mask"] {SOME_ROWS}'),
        (
            "wide",
            'info["action_mask"] cannot be obeyed (env.mask: none ignores it): '
            "ValueError: a mask has 3 entries, one for each value of each action, not 4",
        ),
    ],
)
def test_a_check_says_in_one_line_what_cannot_be_learned_from(odd: str, task: str, said: str) -> None:
    [problem] = found(GymnasiumSettings(tasks=(f"{odd}:{task}",)), QUICK)[PROBLEM]
    assert said in problem
    assert "\n" not in problem


def test_a_thorough_check_compares_two_environments_and_draws(odd: str) -> None:
    told = found(GymnasiumSettings(tasks=("CartPole-v1",)), Effort(50, 5.0, is_full=True))
    assert told[PROBLEM] == []
    assert "reset(seed=1) repeats its games" in told[FINE]
    assert "render() returns a picture of 400x600x3" in told[FINE]
    shared = found(GymnasiumSettings(tasks=(f"{odd}:Shared",)), Effort(50, 5.0, is_full=True))
    assert "its games change while another environment plays in the same process" in shared[NOTE]
    assert any(note.startswith("cannot be drawn") for note in shared[NOTE])


def test_an_environment_that_is_alone_in_its_process_is_checked_as_it_is_played(odd: str) -> None:
    env, effort = GymnasiumSettings(tasks=(f"{odd}:Single",), vectorization="async"), Effort(50, 5.0, is_full=True)
    assert found(env, effort)[PROBLEM] == []
    [problem] = found(env.model_copy(update={"vectorization": "sync"}), effort)[PROBLEM]
    assert re.match(r"a second one in the same process cannot be created: AssertionError: one per process", problem)


@pytest.mark.processes
@pytest.mark.parametrize(
    ("task", "said"),
    [
        ("leaves", r"creating the environment: its process ended itself with code 7, at last 'bye'"),
        ("Killed", r"the first game: its process was ended by SIGKILL"),
        ("Stuck", r"the first game: no answer within \d+ s"),
        ("Chatty", r"it prints, [\d,]+ bytes so far, at last 'step'"),
        ("one", ""),
        ("Painter", ""),
    ],
)
def test_what_an_environment_does_to_its_process_ends_no_command(odd: str, task: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if task == "Stuck":
        monkeypatch.setattr(checking, "START_SECONDS", 0.0)
    env = GymnasiumSettings(tasks=(f"{odd}:{task}",), step_timeout_seconds=patient(4) if task == "Stuck" else 120)
    findings = checking.check_task(env, env.tasks[0], QUICK._replace(is_full=task == "Painter"))
    assert task != "Painter" or any("returns a picture of 4x4x3" in each.what for each in findings)
    wrong = [each for each in findings if (each.level == PROBLEM or "prints" in each.what)]
    assert re.fullmatch(f"{odd}:{task}: {said}", wrong[0].what) if said else not wrong, findings


def test_many_slow_environments_are_alive_and_one_that_hangs_is_not(odd: str) -> None:
    now = [0.0]
    env = GymnasiumSettings(tasks=(f"{odd}:Slow",), step_timeout_seconds=100)
    telemetry = Telemetry("actor", "run", alive_seconds=DEFAULT_ALIVE_SECONDS + env.longest_step_seconds(), clock=lambda: now[0])
    seen: list[tuple[float, bool]] = []

    def take(seconds: float) -> None:
        now[0] += seconds
        seen.append((seconds, telemetry.alive()))

    sys.modules["slow_steps"] = ModuleType("slow_steps")
    sys.modules["slow_steps"].take = take  # type: ignore[attr-defined]
    environments = make_environments(env, num_environments=8, first_slot=0, seed=3, num_threads=3, beat=telemetry.beat)
    seen.clear()
    telemetry.beat()
    environments.reset()
    environments.step(np.array([0] * 7 + [2]))
    environments.close()
    # Whoever asks while the last one hangs gets the answer; the others took longer together.
    assert seen == [(40.0, True)] * 8 + [(90.0, True)] * 7 + [(161.0, False)]


@pytest.mark.parametrize(
    ("kwargs", "what"), [({"reward": float("nan")}, "a reward"), ({"space": "floats", "reward": 0.0}, "an observation")]
)
def test_non_finite_numbers_raise_an_error_with_the_tasks_name(folder: str, kwargs: dict[str, Any], what: str, tmp_path: Path) -> None:
    file = tmp_path / f"{folder}.py"
    file.write_text(SCRIPTED.replace("steps / 2", "0.0 if steps < 1 else float('inf')"))
    environments = make(GymnasiumSettings(tasks=(f"{folder}:Counting",), kwargs=kwargs))
    environments.reset()
    with pytest.raises(RuntimeError, match=f"{folder}:Counting returned {what} that is not a finite number"):
        environments.step(np.zeros(1, np.int32))


@pytest.mark.parametrize(
    ("reward", "said"),
    [
        (1e20, r"returned the reward 1e\+20: "),
        (-1e39, r"returned the reward -1e\+39: "),  # beyond float32
        (0.6e15, r"ended a game with the return 1\.2e\+15: "),
    ],
)
def test_rewards_too_large_for_a_learner_are_named(folder: str, reward: float, said: str, tmp_path: Path) -> None:
    (tmp_path / f"{folder}.py").write_text(SCRIPTED)
    environments = make(GymnasiumSettings(tasks=(f"{folder}:Counting",), kwargs={"reward": reward, "length": 2}))
    environments.reset()
    with pytest.raises(BrokenEnvironmentError, match=f"^{folder}:Counting {said}at most 1e\\+15 can be used, scale the rewards"):
        [environments.step(np.full(1, 2, np.int32)) for _ in range(2)]
    [told] = found(GymnasiumSettings(tasks=(f"{folder}:Counting",), kwargs={"reward": reward}), QUICK)["problem"]
    assert told.endswith(": at most 1e+15 can be used, scale the rewards")


def test_kwargs_can_be_set_by_file_environment_and_options(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("env:\n  suite: gymnasium\n  tasks: ['mine:make']\n  kwargs: {length: 3, space: plane}\n")

    def kwargs(words: list[str], variables: dict[str, str]) -> object:
        env = load_settings([file], words, variables).env
        assert isinstance(env, GymnasiumSettings)
        return env.kwargs

    assert kwargs([], {}) == {"length": 3, "space": "plane"}
    assert kwargs(["--env.kwargs", '{"length": 5}'], {}) == {"length": 5, "space": "plane"}
    assert kwargs([], {"HERD_ENV__KWARGS": '{"space": "number"}'}) == {"length": 3, "space": "number"}
    with pytest.raises(SettingsError, match=r"env\.kwargs: should be .*mapping, not 'length=3' \(command line\)"):
        load_settings([], ["--env.suite", "gymnasium", "--env.kwargs", "length=3"], {})
