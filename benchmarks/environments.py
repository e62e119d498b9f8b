"""Tries out environments that other people have published: ``python -m benchmarks.environments --output DIR``.

Each is checked (``herd check``), played at random, and trained for some seconds with the settings that docs/index.md recommends for an
environment of one's own. Random play and the returns in training are read from the environment itself, without Herd: a recorder around the
environment writes the return of every game into a file, and the sum over the games that Herd has counted must be Herd's. So the table shows
whether Herd trains on the rewards that the environment gives.

Packages that are not installed are skipped. A run that is in ``DIR/runs`` is not repeated. It writes ``DIR/environments.json`` and
``DIR/environments.md``.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import re
import shutil
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np

from herd.files import replace_file
from herd.run.journals import newest_point, read_report
from herd.service.host import describe_hardware
from herd.sweeps.whole_runs import Trial, WholeRun

if TYPE_CHECKING:
    from collections.abc import Sequence

RECIPE = {"optimizer.learning_rate": "1e-3", "actor.count": "1", "actor.environments": "8", "learner.batch_size": "8"}
"""Of docs/index.md. All environments of the only actor send together, and one batch is one message: Herd's games are the first ones."""
MODULE = "benchmarks.environments"
GAMES = "games.txt"
RANDOM_GAMES, RANDOM_STEPS, RANDOM_SECONDS = 20, 5000, 60.0
START_SECONDS = 600.0
"""Until the last process plays, on a busy machine."""


@dataclass(frozen=True)
class Published:
    """An environment, and the wheel that it comes from."""

    task: str
    wheel: str = "gymnasium"
    kwargs: dict[str, Any] = field(default_factory=dict)
    words: tuple[str, ...] = ()
    """Settings that a user adds because of what Herd says about the environment."""

    @property
    def name(self) -> str:
        inner = next((f" {value}" for key, value in self.kwargs.items() if key in {"env_id", "game"}), "")
        return self.task.removeprefix(f"{MODULE}:") + inner


def against_random(render_mode: str | None = None) -> gymnasium.Env[Any, Any]:
    """Return Connect Four of PettingZoo, a game of two, as an environment of one, against an opponent that plays at random."""
    make = resolve_name("pettingzoo.classic.connect_four_v3:env")

    class Single(gymnasium.Env[Any, Any]):
        def __init__(self) -> None:
            self._board = make(render_mode=render_mode)
            self.render_mode = render_mode
            self.observation_space = self._board.observation_space("player_0")
            self.action_space = self._board.action_space("player_0")

        def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
            super().reset(seed=seed, options=options)
            self._board.reset(seed=seed)
            return self._board.observe("player_0"), {}

        def step(self, action: Any) -> Any:
            self._board.step(int(action))
            if not any(self._board.terminations.values()):
                allowed = np.flatnonzero(self._board.observe("player_1")["action_mask"])
                self._board.step(int(self.np_random.choice(allowed)))
            is_over = any(self._board.terminations.values())
            return self._board.observe("player_0"), float(self._board.rewards["player_0"]), is_over, False, {}

        def render(self) -> Any:
            return self._board.render()

    return Single()


OLD_GYM = "shimmy:GymV21Environment-v0"
ENVIRONMENTS = (
    *map(Published, ("CartPole-v1", "Acrobot-v1", "MountainCar-v0", "Pendulum-v1", "FrozenLake-v1", "Taxi-v4", "CliffWalking-v1")),
    Published("Blackjack-v1"),
    *(Published(task, "box2d") for task in ("LunarLander-v3", "BipedalWalker-v3", "CarRacing-v3")),
    *(Published(task, "mujoco") for task in ("HalfCheetah-v5", "InvertedPendulum-v5")),
    Published("ale_py:ALE/Pong-v5", "ale-py"),
    *(Published(f"minigrid:{task}", "minigrid") for task in ("MiniGrid-Empty-5x5-v0", "MiniGrid-DoorKey-5x5-v0", "BabyAI-GoToRedBall-v0")),
    Published("highway_env:highway-fast-v0", "highway-env"),
    Published("highway_env:parking-v0", "highway-env"),
    Published(f"{MODULE}:against_random", "pettingzoo"),
    Published("flappy_bird_gymnasium:FlappyBird-v0", "flappy-bird-gymnasium"),
    Published("gymnasium_2048:gymnasium_2048/TwentyFortyEight-v0", "gymnasium_2048"),
    Published("tetris_gymnasium.envs:tetris_gymnasium/Tetris", "tetris-gymnasium"),
    Published("minatar.gym:BaseEnv", "MinAtar", {"game": "breakout"}),
    Published("popgym.envs.repeat_previous:RepeatPreviousEasy", "popgym"),
    Published("memory_gym:MortarMayhem-Grid-v0", "memory-gym"),
    Published("mo_gymnasium:deep-sea-treasure-v0", "mo-gymnasium"),
    Published("gymnasium_robotics:PointMaze_UMaze-v3", "gymnasium-robotics"),
    Published("panda_gym:PandaReachDense-v3", "panda-gym"),
    Published("shimmy:dm_control/cartpole-balance-v0", "dm_control"),
    Published("gym_electric_motor:Finite-SC-PermExDc-v0", "gym_electric_motor"),
    Published("gym_anytrading:stocks-v0", "gym-anytrading"),
    Published("buffalo_gym:Buffalo-v0", "buffalo_gym"),
    Published("simglucose.envs:T1DSimGymnaisumEnv", "simglucose", {"patient_name": "adolescent#001"}),
    Published("nle:NetHackScore-v0", "nle"),
    Published(
        "stable_retro:make", "stable-retro", {"game": "Airstriker-Genesis-v0", "render_mode": "rgb_array"}, ("--env.vectorization", "async")
    ),
    Published("crafter:Env", "crafter"),
    Published(OLD_GYM, "crafter", {"env_id": "crafter:CrafterReward-v1"}),
    Published(OLD_GYM, "gym-sokoban", {"env_id": "gym_sokoban:Sokoban-v0"}),
    Published(OLD_GYM, "procgen-mirror", {"env_id": "procgen:procgen-coinrun-v0"}),
)


class Recorder(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Appends the return of each game to a file of a folder, while the folder exists: a run's does from the start of training."""

    def __init__(self, environment: gymnasium.Env[Any, Any], folder: str) -> None:
        super().__init__(environment)
        self._file, self._return = Path(folder) / GAMES, 0.0

    def reset(self, **kwargs: Any) -> Any:
        self._return = 0.0
        return self.env.reset(**kwargs)

    def step(self, action: Any) -> Any:
        result = self.env.step(action)
        self._return += float(np.asarray(result[1]).sum())  # several rewards are for Herd to refuse
        if (result[2] or result[3]) and self._file.parent.is_dir():
            with self._file.open("a") as file:
                file.write(f"{self._return!r}\n")
        return result


def made(task: str, kwargs: dict[str, Any], folder: str | None = None, render_mode: str | None = None) -> gymnasium.Env[Any, Any]:
    """Return the environment as Herd makes it, with a recorder if there is a ``folder``."""
    drawn: dict[str, Any] = {} if render_mode is None else {"render_mode": render_mode}
    if re.fullmatch(r"[\w.]+:[A-Za-z_]\w*", task):
        environment = resolve_name(task)(**{**kwargs, **drawn})
    else:
        environment = gymnasium.make(task, disable_env_checker=True, **{**kwargs, **drawn})
    return environment if folder is None else Recorder(environment, folder)


def random_play(task: str, kwargs: dict[str, Any]) -> list[float]:
    """Return the returns of random games. They obey a mask where `gymnasium.Env.reset` and ``step`` offer one."""
    environment, returns, steps, began = made(task, kwargs), list[float](), 0, time.monotonic()
    environment.action_space.seed(1)
    seed: int | None = 1
    while len(returns) < RANDOM_GAMES and steps < RANDOM_STEPS and time.monotonic() - began < RANDOM_SECONDS:
        observation, info = environment.reset(seed=seed)
        seed, total, is_over = None, 0.0, False
        while not is_over and steps < RANDOM_STEPS and time.monotonic() - began < RANDOM_SECONDS:
            offered = info.get("action_mask", observation.get("action_mask") if isinstance(observation, dict) else None)
            mask = None if offered is None else np.asarray(offered, np.int8)
            observation, reward, terminated, truncated, info = environment.step(environment.action_space.sample(mask))
            total, steps, is_over = total + float(np.asarray(reward).item()), steps + 1, bool(terminated or truncated)
        returns += [total] if is_over else []
    return returns


def tried(published: Published, runs: Path, seconds: float) -> dict[str, Any]:
    """Check one environment, play it at random, and train."""
    words = ["--env.kwargs", json.dumps(published.kwargs)] if published.kwargs else []
    words += published.words
    print(f"{published.name}: check", flush=True)
    checked = _run(["-m", "herd.cli.main", "check", published.task, *words])
    found = [line.strip() for line in checked.stdout.splitlines()[1:]] or _last_line(checked.stderr)
    played = _run(["-m", MODULE, "--play", json.dumps([published.task, published.kwargs])])
    random = json.loads(played.stdout.splitlines()[-1]) if played.returncode == 0 else _last_line(played.stderr)
    result: dict[str, Any] = {"name": published.name, "wheel": published.wheel, "version": importlib.metadata.version(published.wheel)}
    result |= {"settings": published.words, "check": {"exit_code": checked.returncode, "findings": found}, "random": random}
    print(f"{published.name}: train", flush=True)
    directory = runs / "".join(letter if letter.isalnum() else "-" for letter in published.name)
    outcome = trained(published, directory, seconds)
    if outcome["exit_code"] and any("network.torso shallow" in line for line in outcome["told"]):  # of no or small pictures: use mlp
        outcome = {"refused": outcome["told"], **trained(published, directory, seconds, "--network.torso", "mlp")}
    return result | outcome


def trained(published: Published, directory: Path, seconds: float, *words: str) -> dict[str, Any]:
    """Train with a recorder around the environment; return what Herd printed and reports beside what was recorded."""
    recorded = {"task": published.task, "kwargs": published.kwargs, "folder": str(directory.with_name(directory.name + ".partial"))}
    settings = {**RECIPE, "name": directory.name, "env.suite": "gymnasium", "env.tasks": f"{MODULE}:made"}
    settings |= {"env.kwargs": json.dumps(recorded), "stop.wall_seconds": f"{seconds:g}"}
    words = (*(word for key, value in settings.items() for word in (f"--{key}", value)), *published.words, *words)
    shutil.rmtree(directory, ignore_errors=True)  # of a try that was interrupted after training
    run = WholeRun(Trial(directory, words))
    try:
        code = run.wait(seconds + START_SECONDS)
    except subprocess.TimeoutExpired:
        return {"exit_code": None, "told": [f"it did not end within {seconds + START_SECONDS:g} s"]}
    finally:
        run.stop()
    printed = run.trial.output.read_text().splitlines()
    told = [line for line in printed if re.match(r"herd: |warning |rewards: ", line)]
    if code:
        return {"exit_code": code, "told": told or printed[-3:]}
    report, point = read_report(directory), newest_point(directory)
    [task] = report["tasks"].values()
    result = {"exit_code": code, "told": told, "frames_per_second": report["frames_per_second"], "env_frames": report["env_frames"]}
    number = task["episode_return"]["episodes"]
    if not number:
        return result | {"games": 0}
    (directory / GAMES).touch()
    returns = [float(line) for line in (directory / GAMES).read_text().splitlines()][:number]
    [totals] = point["tasks"].values()
    half = task["progress"]["games"]
    return result | {
        "games": number,
        "recorded": {"games": len(returns), "sum": sum(returns), "first": np.mean(returns[:half]), "last": np.mean(returns[-half:])},
        "reported": {"sum": totals["episode_return_sum"], "first": task["progress"]["mean_first"], "last": task["progress"]["mean_last"]},
        "agree": len(returns) == number and bool(np.isclose(sum(returns), totals["episode_return_sum"], rtol=1e-4, atol=1e-3)),
    }


def _run(words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    limit_seconds = START_SECONDS + RANDOM_SECONDS
    return subprocess.run(["timeout", f"{limit_seconds:g}", sys.executable, *words], capture_output=True, text=True, check=False)


def _last_line(text: str) -> list[str]:
    return text.strip().splitlines()[-1:]


def table(results: Sequence[dict[str, Any]]) -> str:
    """Return the results in Markdown."""
    heads = ("environment", "wheel", "`herd check`", "random play", "training: first, last games", "reported", "equal", "frames/s", "said")
    lines = [f"| {' | '.join(heads)} |", "|" + " --- |" * len(heads)]
    for one in results:
        random, games = one["random"], one.get("games")
        played = f"{np.mean(random):.3g}" if random and isinstance(random[0], float) else "no game ended" if not random else "fails"
        found = [line for line in one["check"]["findings"] if not line.startswith("ok ")]
        cells = [f"`{one['name']}`", f"{one['wheel']} {one['version']}", f"{one['check']['exit_code']}: {'; '.join(found)}", played]
        if games:
            cells += [f"{one[which]['first']:.3g}, {one[which]['last']:.3g}" for which in ("recorded", "reported")]
            cells += ["yes" if one["agree"] else "**no**"]
        else:
            cells += ["no game ended" if one["exit_code"] == 0 else f"exit code {one['exit_code']}", "", ""]
        cells += [
            f"{one['frames_per_second']:,.0f}" if "frames_per_second" in one else "",
            "<br>".join([*one.get("refused", []), *one["told"]]),
        ]
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, metavar="DIR", help="of runs, environments.json and environments.md")
    parser.add_argument("--only", default="", metavar="NAME,...", help="parts of the names of environments")
    parser.add_argument("--seconds", type=float, default=20.0, metavar="S", help="of training")
    parser.add_argument("--play", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.play:
        print(json.dumps(random_play(*options.play)))
        return
    if options.output is None:
        parser.error("--output is missing")
    results, runs = [], options.output.resolve() / "runs"
    runs.mkdir(parents=True, exist_ok=True)
    for published in ENVIRONMENTS:
        if not any(part in published.name for part in options.only.split(",")):
            continue
        try:
            importlib.metadata.version(published.wheel)
        except importlib.metadata.PackageNotFoundError:
            print(f"{published.name}: {published.wheel} is not installed")
            continue
        kept = runs / f"{''.join(letter if letter.isalnum() else '-' for letter in published.name)}.json"
        if not kept.exists():
            replace_file(kept, json.dumps(asdict(published) | tried(published, runs, options.seconds), indent=1, default=float) + "\n")
        results.append(json.loads(kept.read_text()))
    report = {"date": time.strftime("%Y-%m-%d"), "hardware": describe_hardware(), "seconds": options.seconds, "environments": results}
    replace_file(options.output / "environments.json", json.dumps(report, indent=1) + "\n")
    replace_file(options.output / "environments.md", table(results))
    print(table(results))


if __name__ == "__main__":
    main()
