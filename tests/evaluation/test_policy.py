"""A trained policy gives the network's outputs for rows that a slow loop writes down, whichever code steps the environments."""

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any, cast

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

import herd
from herd.acting.temperatures import Temperatures
from herd.components.suites import make_environments
from herd.components.suites.api import Observation, Transition
from herd.components.suites.gymnasium.examples import Dials
from herd.components.suites.reading import hash_instruction
from herd.evaluation.play import start_play
from herd.evaluation.trained_run import load_trained_run
from tests.acting.mixed import Mixed
from tests.evaluation.conftest import BREAKOUT, CATCH, RunMaker

STACK, HEIGHT, WIDTH = 3, 36, 40


class Scene(gymnasium.Env):
    """Random pictures, and a mission that changes with each game. Actions are numbered 5, 6 and 7; a game has ``length`` steps."""

    def __init__(self, length: int = 4) -> None:
        self.action_space = spaces.Discrete(3, start=5)
        self.observation_space = spaces.Dict(
            {
                "picture": spaces.Box(0, 255, (HEIGHT, WIDTH, 3), np.uint8),
                "mission": spaces.Text(40),
                "speed": spaces.Box(-1.0, 1.0, (2,), np.float64),
            }
        )
        self._length, self._step, self._games = length, 0, 0

    def reset(self, *, seed=None, options=None):  # noqa: ARG002
        super().reset(seed=seed)
        self._step, self._games = 0, self._games + 1
        return self._observation(), {}

    def step(self, action):
        assert self.action_space.contains(action)
        self._step += 1
        return self._observation(), float(self.np_random.normal(scale=2.0)), self._step == self._length, False, {}

    def _observation(self):
        picture = self.np_random.integers(0, 256, (HEIGHT, WIDTH, 3), np.uint8)
        # Values exceed the declared bounds, as in many environments.
        return {"picture": picture, "mission": f"go to door {self._games}", "speed": self.np_random.normal(size=2, scale=3.0)}


SCENE = {
    "env": {
        "suite": "gymnasium", "tasks": [f"{__name__}:Scene"], "frame_stack": STACK, "image_key": "picture", "instruction_key": "mission",
        "vector_keys": ["speed"],
    },
    "network": {"core": {"kind": "lstm", "size": 8}, "last_action_and_reward": True, "language": True},
}  # fmt: skip


@pytest.fixture
def scene_run(make_run: RunMaker, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setitem(sys.modules, "scenes", sys.modules[__name__])
    return make_run(SCENE | {"env": SCENE["env"] | {"tasks": ["scenes:Scene"]}})


def played(run: Path, environment: gymnasium.Env, policy: herd.TrainedPolicy, *, games: int, seed: int):
    """Rows of ``games`` games, played as by the loop of docs/python-api.md: observation, start, previous reward, action, logits."""
    rows = []
    for game in range(games):
        observation, _ = environment.reset(seed=seed if game == 0 else None)
        reward, starts, over = 0.0, True, False
        while not over:
            action = policy.act(observation, reward=reward, reset=starts)
            assert policy.last_step is not None
            rows.append((observation, starts, reward, action, policy.last_step.behaviour_parameters[0]))
            observation, earned, terminated, truncated, _ = environment.step(action)
            reward = float(earned)
            starts, over = False, terminated or truncated
    return rows


def expected_logits(run: Path, rows) -> np.ndarray:
    """Logits [T, A] of all rows at once, from inputs built here by definition."""
    agent = load_trained_run(run).agent
    frames, starts, actions, rewards, words, vectors = [], [], [], [], [], []
    for number, (observation, start, reward, _, _) in enumerate(rows):
        first = max(earlier for earlier in range(number + 1) if rows[earlier][1])
        planes = [
            rows[row][0]["picture"] if row >= first else np.zeros((HEIGHT, WIDTH, 3), np.uint8) for row in range(number - 2, number + 1)
        ]
        frames.append(np.concatenate([plane.transpose(2, 0, 1) for plane in planes]))
        starts.append(start)
        actions.append(rows[number - 1][3] - 5 if number else 0)
        rewards.append(0.0 if start else min(1.0, max(-1.0, reward)))
        words.append(hash_instruction(observation["mission"]))
        vectors.append(observation["speed"])
    with torch.inference_mode():
        output, _ = agent(
            torch.tensor(np.array(frames)).unsqueeze(1),
            torch.tensor(starts).unsqueeze(1),
            torch.zeros(1, 16),
            torch.tensor(actions).unsqueeze(1),
            torch.tensor(rewards, dtype=torch.float32).unsqueeze(1),
            torch.tensor(words).unsqueeze(1),
            torch.tensor(np.array(vectors), dtype=torch.float32).unsqueeze(1),
        )
    logits: np.ndarray = output.parameters[:, 0].numpy()
    return logits


def test_acting_in_one_environment_matches_the_network(scene_run: Path) -> None:
    policy = herd.load_policy(scene_run, seed=3)
    rows = played(scene_run, Scene(length=5), policy, games=3, seed=2)
    assert len(rows) == 15
    assert {action for *_, action, _ in rows} == {5, 6, 7}
    assert max(abs(reward) for _, _, reward, _, _ in rows) > 1.0
    np.testing.assert_allclose([logits for *_, logits in rows], expected_logits(scene_run, rows), rtol=1e-4, atol=1e-5)
    # After `reset` the same game is played the same way, except for the random draws, which continue.
    policy.reset()
    again = played(scene_run, Scene(length=5), policy, games=1, seed=2)
    np.testing.assert_allclose(again[0][4], rows[0][4], rtol=1e-5)


def test_acting_in_a_batch_equals_acting_in_each_environment(scene_run: Path) -> None:
    lengths = (2, 3, 7)
    batch = gymnasium.vector.SyncVectorEnv(
        [partial(Scene, length) for length in lengths], autoreset_mode=gymnasium.vector.AutoresetMode.NEXT_STEP
    )
    policy = herd.load_policy(scene_run, num_environments=3, greedy=True)
    observations, _ = batch.reset(seed=4)
    rewards, starts, over = np.zeros(3), np.ones(3, np.bool_), np.zeros(3, np.bool_)
    seen = []
    for _ in range(9):
        actions = policy.act(observations, reward=rewards, reset=starts)
        assert policy.last_step is not None
        seen.append((observations, rewards, starts, actions, policy.last_step.behaviour_parameters))
        observations, rewards, terminated, truncated, _ = batch.step(actions)
        # NextStep: the step after the last one of a game returns the first row of the next game.
        starts, over = over, terminated | truncated
    assert sum(int(starts.sum()) for _, _, starts, _, _ in seen) == 3 + 2 + 2 + 1
    for slot in range(3):
        own = herd.load_policy(scene_run, greedy=True)
        for observations, rewards, starts, actions, logits in seen:
            one = {"picture": observations["picture"][slot], "mission": observations["mission"][slot], "speed": observations["speed"][slot]}
            assert own.act(one, reward=rewards[slot], reset=starts[slot]) == actions[slot]
            assert own.last_step is not None
            np.testing.assert_allclose(own.last_step.behaviour_parameters[0], logits[slot], rtol=1e-4, atol=1e-5)
    batch.close()


def test_acting_in_herds_environments_equals_evaluation(make_run: RunMaker) -> None:
    run = make_run(BREAKOUT)
    trained = load_trained_run(run)
    environments = make_environments(trained.settings.env, num_environments=2, first_slot=0, seed=9, num_threads=1)
    play = start_play(trained.agent, trained.settings, environments, seed=5, greedy=False, temperatures=Temperatures())
    policy = herd.load_policy(run / "checkpoints" / "000000000250", seed=5)
    mirrored = policy.make_environments(2, seed=9)
    row: Observation | Transition = mirrored.reset()
    lost_lives = 0
    for _ in range(60):
        step = play.step()
        actions = policy.act(row)
        assert policy.last_step is not None
        np.testing.assert_array_equal(policy.last_step.behaviour_parameters, step.choice.behaviour_parameters)
        np.testing.assert_array_equal(actions, step.choice.actions)
        row = transition = mirrored.step(actions)
        lost_lives += int(transition.terminated.sum())
    assert lost_lives > 0
    environments.close()
    mirrored.close()
    assert (policy.learner_updates, policy.env_frames, policy.task_name) == (250, 160_000, "breakout")


def test_single_frames_and_stacks_give_the_same_results(make_run: RunMaker) -> None:
    run = make_run({"env": BREAKOUT["env"]})
    random = np.random.default_rng(1)
    frames = random.integers(0, 256, (6, 42, 42), np.uint8)
    forms = {
        "plane": lambda row: frames[row],
        "channel": lambda row: frames[row][..., None],
        "stack": lambda row: np.stack([frames[max(0, row - back)] for back in (3, 2, 1, 0)]),
        "mapping": lambda row: {"frame": frames[row]},
    }
    logits: dict[str, list[np.ndarray]] = {}
    for form, of_row in forms.items():
        policy = herd.load_policy(run, seed=1)
        logits[form] = []
        for row in range(6):
            policy.act(of_row(row), reset=row == 4)
            assert policy.last_step is not None
            logits[form].append(policy.last_step.behaviour_parameters)
    for other in ("channel", "stack", "mapping"):
        np.testing.assert_array_equal(logits["plane"], logits[other])
    # A stack starts with its game, so row 4 is treated as a first row.
    fresh = herd.load_policy(run)
    fresh.act(frames[4])
    assert fresh.last_step is not None
    np.testing.assert_array_equal(fresh.last_step.behaviour_parameters, logits["plane"][4])
    assert not np.array_equal(logits["plane"][4], logits["plane"][5])


INVALID: list[tuple[Any, dict[str, Any], str]] = [
    (np.zeros((6, 5), np.float32), {}, r"^frames are uint8, not float32$"),
    (np.zeros((5, 6), np.uint8), {}, r"^expected a frame of shape \(6, 5, 1\), not \(5, 6\)$"),
    ({"picture": np.zeros((6, 5), np.uint8)}, {}, r"^the observation has no entry frame; it has picture$"),
    (np.zeros((6, 5), np.uint8), {"reset": [True, False]}, r"^reset must be one value, .* not an array of shape \(2,\)$"),
]


def test_invalid_observations_are_refused_in_one_line(scene_run: Path, make_run: RunMaker) -> None:
    catch = make_run(CATCH, name="catch")
    for observation, options, line in INVALID:
        with pytest.raises(ValueError, match=line):
            herd.load_policy(catch).act(observation, **options)
    with pytest.raises(ValueError, match="of 2 environments, not of 3"):
        herd.load_policy(catch, num_environments=2).act(np.zeros((3, 6, 5), np.uint8))

    seen, _ = Scene().reset(seed=1)
    policy = herd.load_policy(scene_run)
    policy.act(seen)
    for observation, options, line in (
        (seen, {}, "needs the last reward"),
        (seen["picture"], {"reward": 0.0}, "expected an observation of Dict"),
        (seen | {"speed": np.array([0.0, np.nan])}, {"reward": 0.0}, "not finite"),
    ):
        with pytest.raises(ValueError, match=line):
            policy.act(observation, **options)
    environments = policy.make_environments(2)
    with pytest.raises(ValueError, match="reward, reset and mask must be omitted"):
        policy.act(environments.reset(), reward=1.0)
    environments.close()


def test_unknown_tasks_and_runs_are_refused(make_run: RunMaker, tmp_path: Path) -> None:
    run = make_run(CATCH)
    with pytest.raises(herd.RunError, match="plays catch, not pong"):
        herd.load_policy(run, task="pong")
    with pytest.raises(herd.RunError, match="no such run"):
        herd.load_policy(tmp_path / "nowhere")
    (run / "checkpoints" / "000000000250" / "state.json").write_text(json.dumps({}))
    with pytest.raises(herd.RunError, match=r"state\.json"):
        herd.load_policy(run)


TASKS = {
    "masked by info": ("Taxi-v4", np.int64, ()),
    "masked by a method": ("herd.components.suites.gymnasium.examples:Dials", np.int64, (3,)),
    "continuous": ("Pendulum-v1", np.float32, (1,)),
}


@pytest.mark.parametrize("case", TASKS)
def test_actions_of_every_kind_are_those_of_the_environment(make_run: RunMaker, case: str) -> None:
    task, dtype, shape = TASKS[case]
    run = make_run({"env": {"suite": "gymnasium", "tasks": [task]}, "network": {"torso": "mlp", "last_action_and_reward": True}})
    make: Any = Dials if case == "masked by a method" else partial(gymnasium.make, task)
    one, batch = make(), gymnasium.vector.SyncVectorEnv([make] * 3, autoreset_mode=gymnasium.vector.AutoresetMode.NEXT_STEP)
    policies = herd.load_policy(run, seed=3), herd.load_policy(run, seed=3, num_environments=3)
    observation, info = one.reset(seed=1)
    observations, infos = batch.reset(seed=1)
    for row in range(8):
        masks: Any = {"masked by info": (info.get("action_mask"), infos.get("action_mask")), "continuous": (None, None)}.get(case)
        if masks is None:
            masks = one.action_masks(), [each.action_masks() for each in cast("Any", batch.envs)]
        if masks[0] is not None and row == 0:
            with pytest.raises(ValueError, match=r"these environments have masks: act\(observation, mask=...\)"):
                policies[0].act(observation)
            for policy, empty in ((policies[0], np.array(masks[0])), (policies[1], np.array(masks[1]))):
                empty[..., : one.action_space.nvec[0] if shape else None] = 0  # of the first number
                with pytest.raises(ValueError, match="a mask allows no action"):
                    policy.act(observation if policy is policies[0] else observations, mask=empty)
        action = policies[0].act(observation, reward=0.0, reset=row == 0, mask=masks[0])
        actions = policies[1].act(observations, reward=0.0, reset=np.full(3, row == 0), mask=masks[1])
        assert one.action_space.contains(action)
        assert (actions.dtype, actions.shape) == (dtype, (3, *shape))
        if case == "masked by info":
            assert masks[0][action]
        observation, _, _, _, info = one.step(action)  # Dials refuse what their mask forbids
        observations, _, _, _, infos = batch.step(actions)
    with pytest.raises(ValueError, match=r"a mask has|trained without masks"):
        policies[0].act(observation, reward=0.0, reset=False, mask=np.ones(2))
    batch.close()


def test_an_action_of_a_mapping_is_a_mapping(make_run: RunMaker) -> None:
    run = make_run({"env": {"suite": "gymnasium", "tasks": ["tests.acting.mixed:Mixed"]}, "network": {"torso": "mlp"}})
    environment = Mixed()
    observation, _ = environment.reset(seed=1)
    policy = herd.load_policy(run, greedy=True)
    for _ in range(3):
        observation = environment.step(policy.act(observation))[0]  # it refuses anything else
    batch = gymnasium.vector.SyncVectorEnv([Mixed] * 2)
    actions = herd.load_policy(run, num_environments=2).act(batch.reset(seed=1)[0])
    assert batch.action_space.contains(actions)
    batch.close()
