"""Tests whether one agent learns two tasks whose returns differ by a factor of 1000:
``python -m benchmarks.popart_scales --output DIR --seeds 10``.

Both tasks are Catch. In the first, a caught ball gives 1 and a missed one -1; in the second they give 1000 and -1000. The first is drawn in
the left half of the frame, the second in the right half, so an agent that has learned one of them has not learned the other. Rewards are
not clipped. All variants share their other settings and are trained with ``herd``'s environments, policy and trainer, in one process on one
thread. Acting and learning alternate, so a seed gives the same run on every machine of a kind.

A run that is in ``DIR/runs`` is not repeated. It writes ``DIR/popart-scales.json`` and ``DIR/popart-scales.png``. Intervals are 95%
bootstrap intervals over seeds.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.intervals import Estimate, curve_estimates, estimate
from benchmarks.pictures import plain
from herd.components.suites import make_environments
from herd.components.suites.api import Observation, Transition
from herd.config.run import RunSettings
from herd.service.host import describe_hardware
from herd.view.plots.figure import drawn_to

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from herd.components.suites.api import BatchedEnvironment

SCALE = 1000.0
COMMON: dict[str, Any] = {
    "env": {"suite": "catch", "tasks": ["catch"], "reward_scales": [1.0, SCALE]},
    "network": {"torso": "mlp"},
    "algorithm": {"unroll_length": 20, "reward_shaping": "none"},
    "actor": {"environments": 32, "inference_precision": "float32"},
    "learner": {"batch_size": 32},
    "optimizer": {"schedule": "linear"},
}
"""The settings of the experiment ``catch``, except for the rewards."""
VARIANTS: dict[str, dict[str, Any]] = {
    "popart": {"value_scaling": {"kind": "popart"}},
    "multi_head": {"value_scaling": {"kind": "multi_head"}},
    "impala": {},
    "impala_clipped": {"algorithm": {**COMMON["algorithm"], "reward_shaping": "clip"}},
}
"""The last variant sees 1 and -1 in both tasks, which shows what network and frames achieve without different scales."""
LEARNED = 0.8
"""Share of the best return: nine balls in ten are caught."""
WINDOWS = 30
# Okabe and Ito's colours, which remain distinguishable with all common colour blindness.
_COLOURS = {"popart": "#D55E00", "multi_head": "#0072B2", "impala": "#009E73", "impala_clipped": "0.45"}


@dataclass(frozen=True, slots=True)
class Run:
    variant: str
    seed: int
    curves: tuple[tuple[float, ...], ...]
    """For each task, the mean return of the games that ended in each of `WINDOWS` equal parts of the run, divided by the task's scale."""
    finals: tuple[float, ...]
    """For each task, the mean of the last tenth of the run."""
    seconds: float


class BoardsApart:
    """Catch on frames of twice the width: task 0 is drawn in the left half, task 1 in the right half."""

    def __init__(self, boards: BatchedEnvironment) -> None:
        self._boards = boards
        self.num_environments, self.task_ids = boards.num_environments, boards.task_ids
        height, width, channels = boards.spec.frame_shape
        self.spec = replace(boards.spec, frame_shape=(height, 2 * width, channels))

    def reset(self) -> Observation:
        return self._drawn(self._boards.reset())

    def step(self, actions: NDArray[np.int32]) -> Transition:
        transition = self._boards.step(actions)
        return Transition(self._drawn(transition.observation), *[getattr(transition, name) for name in _REST])

    def close(self) -> None:
        self._boards.close()

    def _drawn(self, observation: Observation) -> Observation:
        boards, right = observation.stack, (self.task_ids == 1)[:, None, None, None]
        stack = np.concatenate([np.where(right, 0, boards), np.where(right, boards, 0)], axis=-1)
        return Observation(stack, observation.game_reset, observation.instructions)


_REST = ("rewards", "terminated", "truncated", "valid", "finished")


def settings_of(variant: str, seed: int, env_frames: int, learning_rate: float) -> RunSettings:
    changes = VARIANTS[variant]
    optimizer = {**COMMON["optimizer"], "learning_rate": learning_rate, "schedule_env_frames": env_frames}
    return RunSettings.model_validate({**COMMON, **changes, "optimizer": optimizer, "name": variant, "seed": seed})


def train(variant: str, seed: int, env_frames: int, learning_rate: float) -> Run:
    """Train one run: play an unroll, update, load the new weights, until the frames are used up."""
    import torch  # noqa: PLC0415  --help does without

    from benchmarks.self_play import SelfPlay  # noqa: PLC0415
    from herd.acting.policy import LocalPolicy  # noqa: PLC0415
    from herd.config.run_contract import run_layout  # noqa: PLC0415
    from herd.training.batch import BatchBuffer  # noqa: PLC0415
    from herd.training.trainer import Trainer  # noqa: PLC0415

    torch.set_num_threads(1)
    settings = settings_of(variant, seed, env_frames, learning_rate)
    count = settings.actor.environments
    boards = BoardsApart(make_environments(settings.env, num_environments=count, first_slot=0, seed=seed, num_threads=1))
    spec, layout = boards.spec, run_layout(settings, boards.spec)
    trainer = Trainer(settings, spec, torch.device("cpu"), torch.float32)
    policy = LocalPolicy(trainer.agent, seed=seed, precision=torch.float32)
    game = SelfPlay(settings, spec, layout, environments=boards, policy=policy)
    buffer = BatchBuffer(layout, count)
    games: list[tuple[int, int, float]] = []
    started, frames, updates = time.monotonic(), 0, 0
    while frames < env_frames:
        for transition in game.play():
            frames += int(transition.valid.sum())
            games += [(frames, each.task_id, each.episode_return) for each in transition.finished]
        unrolls = game.finish()
        for name, target in buffer.arrays.items():
            if name in unrolls:
                target[...] = unrolls[name]
        trainer(buffer, settings.optimizer.rates(env_frames=frames, learner_updates=updates))
        updates += 1
        policy.load(trainer.weights(), (1, updates))
    return _run_of(variant, seed, np.array(games), env_frames, time.monotonic() - started)


def _run_of(variant: str, seed: int, games: NDArray[np.float64], env_frames: int, seconds: float) -> Run:
    """Summarise ``games`` [G, 3]: env frames at the end, task, return."""
    scales = (1.0, SCALE)
    windows = np.clip((games[:, 0] / env_frames * WINDOWS).astype(int), 0, WINDOWS - 1)
    curves, finals = [], []
    for task, scale in enumerate(scales):
        own = games[:, 1] == task
        returns = games[own, 2] / scale
        curves.append(tuple(float(returns[windows[own] == window].mean()) for window in range(WINDOWS)))
        finals.append(float(returns[games[own, 0] > 0.9 * env_frames].mean()))
    return Run(variant, seed, tuple(curves), tuple(finals), seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="of runs, popart-scales.json and popart-scales.png")
    parser.add_argument("--seeds", type=int, default=10, metavar="N", help="runs of each variant")
    parser.add_argument("--first_seed", type=int, default=1, metavar="N", help="the others follow it")
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--learning_rate", type=float, default=2e-3, metavar="RATE", help="at the start; falls linearly to 0")
    parser.add_argument("--env_frames", type=int, default=400_000, metavar="N", help="of each run")
    options = parser.parse_args()
    results: dict[str, list[Run]] = {}
    for seed in range(options.first_seed, options.first_seed + options.seeds):
        for variant in options.variants:
            file = options.output / "runs" / f"{variant}-{seed}-{options.env_frames}-{options.learning_rate:g}.json"
            run = _made(file, variant, seed, options.env_frames, options.learning_rate)
            print(f"{variant} {seed}: {', '.join(f'{final:.2f}' for final in run.finals)} ({run.seconds:.0f} s)", flush=True)
            results.setdefault(variant, []).append(run)
    summaries = {variant: _summary(runs) for variant, runs in results.items()}
    _print_table(summaries, options.env_frames)
    report = {
        "command": f"python -m benchmarks.popart_scales --output DIR --seeds {options.seeds} --learning_rate {options.learning_rate:g}",
        "date": time.strftime("%Y-%m-%d"),
        "hardware": describe_hardware(),
        "env_frames": options.env_frames,
        "learning_rate": options.learning_rate,
        "scales": [1.0, SCALE],
        "learned_at": LEARNED,
        "settings": COMMON,
        "variants": VARIANTS,
        "summaries": summaries,
        "runs": [asdict(run) for runs in results.values() for run in runs],
    }
    (options.output / "popart-scales.json").write_text(json.dumps(report, indent=1, default=asdict) + "\n")
    _draw(results, options.output / "popart-scales.png", env_frames=options.env_frames)
    print(f"wrote {options.output / 'popart-scales.json'} and popart-scales.png")


def _made(file: Path, variant: str, seed: int, env_frames: int, learning_rate: float) -> Run:
    if file.exists():
        told = json.loads(file.read_text())
        return Run(**{**told, "curves": tuple(map(tuple, told["curves"])), "finals": tuple(told["finals"])})
    run = train(variant, seed, env_frames, learning_rate)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(asdict(run)) + "\n")
    return run


def _summary(runs: Sequence[Run]) -> dict[str, Any]:
    return {
        "num_seeds": len(runs),
        "finals": [estimate([run.finals[task] for run in runs]) for task in range(2)],
        "worse_task": estimate([min(run.finals) for run in runs]),
        "num_learned": [sum(run.finals[task] >= LEARNED for run in runs) for task in range(2)],
        "num_learned_both": sum(min(run.finals) >= LEARNED for run in runs),
        "mean_seconds": float(np.mean([run.seconds for run in runs])),
    }


def _print_table(summaries: dict[str, dict[str, Any]], env_frames: int) -> None:
    title = f"last tenth of {env_frames:,} env frames: return divided by the task's scale, mean (95% interval over seeds)"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for heading in ("variant", "returns of 1", f"returns of {SCALE:g}", "worse of the two", "seeds that learned both"):
        table.add_column(heading, justify="left" if heading == "variant" else "right")
    for variant, one in summaries.items():
        texts = [_text(final) for final in (*one["finals"], one["worse_task"])]
        table.add_row(variant, *texts, f"{one['num_learned_both']} of {one['num_seeds']}")
    Console(width=120).print(table)


def _text(one: Estimate) -> str:
    return f"{one.mean:.2f} ({one.low:.2f} to {one.high:.2f})"


def _draw(results: Mapping[str, Sequence[Run]], path: Path, *, env_frames: int) -> None:
    """Draw, for each of the two tasks, the learning curves of the variants with their 95% intervals."""
    with drawn_to(path, (11.0, 4.4)) as figure:
        panels = figure.subplots(1, 2, sharey=True)
        for task, (axes, factor) in enumerate(zip(panels, (1.0, SCALE), strict=True)):
            axes.set_title(f"the task with returns of {factor:g}", loc="left", fontweight="bold")
            plain(axes, "environment frames of both tasks (thousands)")
            axes.set_xlim(0.0, env_frames / 1e3)
            for variant, runs in results.items():
                curves = np.array([run.curves[task] for run in runs])
                middles = (np.arange(curves.shape[1]) + 0.5) * env_frames / curves.shape[1] / 1e3
                points = curve_estimates(curves)
                style = (0, (4, 2)) if variant == "impala_clipped" else "-"
                axes.plot(middles, [one.mean for one in points], color=_COLOURS[variant], linestyle=style, linewidth=1.8, label=variant)
                lows, highs = [one.low for one in points], [one.high for one in points]
                axes.fill_between(middles, lows, highs, color=_COLOURS[variant], alpha=0.18, linewidth=0)
        panels[0].set_ylabel("mean return of a game, divided by the task's scale")
        seeds = {len(runs) for runs in results.values()}
        title = f"mean and 95% interval of {max(seeds)} seeds"
        panels[1].legend(loc="center right", frameon=False, title=title, alignment="left")


if __name__ == "__main__":
    main()
