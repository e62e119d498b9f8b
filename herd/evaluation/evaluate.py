"""Scores runs: plays their checkpoints over whole games, or uses the returns of training, by a protocol or as in training."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from herd.acting.policy import inference_precision
from herd.components.suites import environment_spec
from herd.components.suites.api import UnknownTaskError
from herd.evaluation.play import drawn_from, num_environments, play_tasks, task_groups
from herd.evaluation.protocols import EvaluationError, protocol_named, training_scores
from herd.evaluation.report import EvaluationReport, Procedure, ScoredRun, TaskScore, make_report
from herd.evaluation.trained_run import best_temperatures, load_trained_run, settings_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from herd.components.suites import SuiteSettings
    from herd.config.run import RunSettings
    from herd.contract.spaces import EnvSpec
    from herd.evaluation.protocols import Protocol
    from herd.evaluation.trained_run import TrainedRun

    Progress = Callable[[str, int, int], None]
    """Called with (name of what is played, number of finished games, number of wanted games)."""

_EPISODES = 200
"""Default number of games per task, as in IMPALA."""


def evaluate_runs(
    run_dirs: Sequence[Path],
    *,
    protocol: str | None = None,
    episodes: int | None = None,
    overrides: Sequence[str] = (),
    checkpoint: Path | None = None,
    seed: int = 0,
    environments: int | None = None,
    greedy: bool = False,
    on_progress: Progress | None = None,
    while_playing: Callable[[], None] | None = None,
) -> EvaluationReport:
    """Play the checkpoints of one run or several. Runs of different tasks are put into one table; runs of the same tasks are seeds.

    Without a protocol, environments are as in training and actions are sampled as by actors, so a checkpoint reproduces the scores of
    its training. A score covers all lives of a game; the recurrent core is reset at a lost life if it was in training. Each game of a
    DiCE run is played at a temperature drawn from the best tile. The games that count are fixed in advance
    (see `play.assigned_episodes`).

    Args:
        run_dirs: run directories of ``herd train``, with config.yaml and checkpoints/.
        protocol: a protocol that plays games (see `herd.evaluation.protocols`); None: the environments as in training.
        episodes: number of games per task; None: the protocol's number, or 200.
        overrides: settings of ``env``, such as ``["--env.noop_max", "30"]``; see `load_trained_run`.
        checkpoint: directory of a checkpoint, with a single run; None: the newest.
        seed: random seed of games and of the policy's sampling.
        environments: number of games played at once; None: chosen automatically.
        greedy: take the most probable action instead of sampling.
        on_progress: called whenever a game has finished.
        while_playing: called before each step of the games.

    Raises:
        EvaluationError: there is no such run, protocol or checkpoint, or the checkpoint or an option does not fit; one line.

    """
    if checkpoint is not None and len(run_dirs) > 1:
        raise EvaluationError("a checkpoint belongs to one run: name only that run")
    followed = None if protocol is None else protocol_named(protocol)
    if followed is not None:
        _check_not_fixed(followed, overrides)
        overrides = [*overrides, *followed.words]
    for directory in run_dirs:
        _check_fits(directory, settings_of(directory)[0], followed)
    runs = [load_trained_run(directory, checkpoint, overrides) for directory in run_dirs]
    _check_together(run_dirs, [(run.settings.env, run.spec) for run in runs])
    count = episodes if episodes is not None else _EPISODES if followed is None else followed.episodes

    scores: dict[str, list[TaskScore]] = {}
    for directory, run in zip(run_dirs, runs, strict=True):
        # The most probable action does not depend on the temperature.
        ranges = None if greedy else best_temperatures(directory, run)
        where = "" if len(runs) == 1 else f"{directory}: "

        def progress(label: str, finished: int, wanted: int, where: str = where) -> None:
            if on_progress is not None:
                on_progress(where + label, finished, wanted)

        try:
            games = play_tasks(
                run.agent,
                run.settings,
                count,
                seed=seed,
                greedy=greedy,
                environments=environments,
                temperatures=drawn_from(ranges, seed=seed),
                on_progress=progress,
                while_playing=while_playing,
            )
        except UnknownTaskError as error:
            raise EvaluationError(str(error)) from error
        for task_id, name in enumerate(run.spec.task_names):
            own = [game for game in games if game.task_id == task_id]
            score = TaskScore(
                returns=np.array([game.episode_return for game in own]),
                episodes=len(own),
                mean_env_frames=float(np.mean([game.agent_steps for game in own])) * run.spec.action_repeat,
                truncated_episodes=sum(game.truncated for game in own),
                inverse_temperatures=None if ranges is None else ranges[task_id],
            )
            scores.setdefault(name, []).append(score)

    first = runs[0].settings
    procedure = Procedure(
        name=protocol,
        says=None if followed is None else followed.says,
        suite=first.env.suite,
        episodes_per_task=count,
        environments=num_environments(environments, episodes=count, num_tasks=len(environment_spec(task_groups(first.env)[0]).task_names)),
        seed=seed,
        policy="greedy" if greedy else "sampled",
        inference_precision=str(inference_precision(first)).removeprefix("torch."),
        env=first.env.model_dump(mode="json"),
        differs_from_training=tuple(dict.fromkeys(name for run in runs for name in run.differs_from_training)),
        differs_from_protocol=_differences(followed, [run.settings for run in runs], count, greedy=greedy),
    )
    return make_report([_scored_run(*each) for each in zip(run_dirs, runs, strict=True)], procedure, scores)


def score_training(run_dirs: Sequence[Path], *, protocol: str, frames: int | None = None) -> EvaluationReport:
    """Score one run or several by the returns of training, without playing.

    Args:
        run_dirs: run directories of ``herd train``, with config.yaml and metrics.jsonl.
        protocol: a protocol that scores the returns of training.
        frames: env frames of each task at which the returns are taken; None: at the end.

    Raises:
        EvaluationError: there is no such run or protocol, or the run was trained for fewer frames; one line.

    """
    followed = protocol_named(protocol)
    assert followed.training is not None
    runs = [settings_of(directory) for directory in run_dirs]
    for directory, (settings, _) in zip(run_dirs, runs, strict=True):
        _check_fits(directory, settings, followed)
    _check_together(run_dirs, [(settings.env, spec) for settings, spec in runs])
    scored = []
    scores: dict[str, list[TaskScore]] = {}
    for directory, (settings, spec) in zip(run_dirs, runs, strict=True):
        found = training_scores(directory, spec.task_names, followed.training, frames)
        for task, score in found.items():
            scores.setdefault(task, []).append(TaskScore(returns=np.array([score.mean]), episodes=score.episodes))
        newest = max(score.learner_updates for score in found.values())
        env_frames = sum(score.env_frames for score in found.values())
        scored.append(ScoredRun(settings.name, str(directory), settings.seed, None, newest, env_frames))
    env = runs[0][0].env
    procedure = Procedure(
        name=protocol,
        says=followed.says,
        suite=env.suite,
        policy="of training",
        env=env.model_dump(mode="json"),
        differs_from_training=(),
        differs_from_protocol=_differences(followed, [settings for settings, _ in runs], followed.episodes, greedy=False),
    )
    return make_report(scored, procedure, scores)


def _check_fits(directory: Path, settings: RunSettings, protocol: Protocol | None) -> None:
    if protocol is not None and (objection := protocol.objection(settings.env)) is not None:
        raise EvaluationError(f"{directory}: {objection}")


def _check_not_fixed(protocol: Protocol, overrides: Sequence[str]) -> None:
    for word in overrides:
        name = word.removeprefix("--env.").partition("=")[0]
        if word.startswith("--env.") and name in protocol.played:
            raise EvaluationError(f"env.{name} is set by protocol {protocol.name}: omit one of them")


def _check_together(run_dirs: Sequence[Path], runs: Sequence[tuple[SuiteSettings, EnvSpec]]) -> None:
    """Check that all runs play one suite in the same way, and that all tasks have equally many runs; else some tasks would weigh more."""
    first, _ = runs[0]
    for directory, (env, _) in zip(run_dirs, runs, strict=True):
        if env.suite != first.suite:
            raise EvaluationError(
                f"all runs of one table must play the same suite: {run_dirs[0]} plays {first.suite}, {directory} plays {env.suite}"
            )
    ranked = Counter(task for _, spec in runs for task in spec.task_names).most_common()
    (most, many), (fewest, few) = ranked[0], ranked[-1]
    if many != few:
        raise EvaluationError(f"all tasks need equally many runs: {most} has {many}, {fewest} has {few}")
    for directory, (env, _) in zip(run_dirs, runs, strict=True):
        for name, value in first.game_settings().items():
            if name != "tasks" and env.game_settings()[name] != value:
                raise EvaluationError(
                    f"all runs of one table must play the same environments: env.{name} is {getattr(first, name)} in {run_dirs[0]}, "
                    f"{getattr(env, name)} in {directory}"
                )


def _scored_run(directory: Path, run: TrainedRun) -> ScoredRun:
    settings = run.settings
    return ScoredRun(settings.name, str(directory), settings.seed, run.checkpoint.name, run.learner_updates, run.env_frames)


def _differences(protocol: Protocol | None, runs: Sequence[RunSettings], episodes: int, *, greedy: bool) -> tuple[str, ...]:
    """List the differences from the protocol, over all runs."""
    if protocol is None:
        return ()
    games = () if episodes == protocol.episodes else (f"{episodes} games (the paper: {protocol.episodes})",)
    policy = ("greedy policy (the paper: sampled)",) if greedy else ()
    return (*games, *policy, *dict.fromkeys(text for run in runs for text in protocol.differences(run.env)))
