"""A search for the best settings: Optuna's TPE chooses those of each run, and its median pruner stops runs that fall behind.

The study is a journal next to the runs. It outlives the processes that write it, and machines that share the folder share the study.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import optuna
from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
from optuna.trial import TrialState

from herd.files import FileError
from herd.run.journals import METRICS
from herd.sweeps.grid import Range
from herd.sweeps.summary import final_return
from herd.sweeps.whole_runs import TICK_SECONDS, ClaimedError, Trial, WholeRun, check_unclaimed
from herd.view.plots.history import read_run

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from herd.sweeps.grid import Combination
    from herd.view.plots.history import RunHistory

    Space = Mapping[str, Range | Sequence[str]]
    """A range or the texts of all values, by dotted key."""

JOURNAL = "study.journal"
NUM_STEPS = 20
"""Parts of a run after which it may be pruned. All runs are compared at the same ones."""
_PRUNES_AFTER = NUM_STEPS // 4
"""Steps before a run is pruned: a policy needs some time to leave the level of random play."""
_MIN_TRIALS = 4
"""Complete runs without which there is neither pruning nor an importance: a median of fewer means little."""
_START_SECONDS = 60
"""Longest time between the choice of a run's settings and its start."""
_EXIT_CODE = "exit_code"
_PLAN = "plan"
_LOG_RATIO = 10.0


class Result(NamedTuple):
    """One run of a study."""

    number: int
    state: str
    """complete, pruned, failed or running."""
    value: float | None
    """Its return; of a pruned run, the one at which it was pruned."""
    values: Combination
    """The settings that were chosen."""


@dataclass
class _Running:
    asked: optuna.trial.Trial
    run: WholeRun
    step: int = 0
    """The newest one that was compared."""
    size: int = 0
    """Bytes of the curve that were read."""


class Study:
    """A study on disk."""

    def __init__(self, output: Path, space: Space, plan: Mapping[str, Any]) -> None:
        """Open the study of ``output``, or create it with ``plan``, which says in JSON what is searched, and how runs are trained."""
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        output.mkdir(parents=True, exist_ok=True)
        backend = optuna.storages.journal.JournalFileBackend(str(output / JOURNAL))
        self._study = optuna.create_study(
            study_name=output.name,
            storage=optuna.storages.JournalStorage(backend),
            sampler=optuna.samplers.TPESampler(),
            pruner=optuna.pruners.MedianPruner(n_startup_trials=_MIN_TRIALS, n_warmup_steps=_PRUNES_AFTER),
            direction="maximize",
            load_if_exists=True,
        )
        if _PLAN not in self._study.user_attrs:
            self._study.set_user_attr(_PLAN, json.loads(json.dumps(plan)))
        self._output = output
        self._space = space
        self._running: dict[int, _Running] = {}

    @property
    def plan(self) -> dict[str, Any]:
        """What the study was begun with."""
        plan: dict[str, Any] = self._study.user_attrs[_PLAN]
        return plan

    def begin_with(self, values: Mapping[str, object]) -> None:
        """Try these settings first, unless they are outside of what is searched; afterwards this does nothing."""
        chosen: dict[str, object] = {}
        for key, choices in self._space.items():
            value = values.get(key)
            if isinstance(choices, Range):
                if isinstance(value, int | float) and choices.low <= value <= choices.high:
                    chosen[key] = value
            elif (text := _text(value)) in choices:
                chosen[key] = text
        if len(chosen) == len(self._space):
            self._study.enqueue_trial(chosen, skip_if_exists=True)

    def directory(self, number: int) -> Path:
        """Return the directory of a run."""
        return self._output / f"trial-{number:04d}"

    def search(
        self,
        words: Callable[[int, Combination], Sequence[str]],
        progress: Callable[[RunHistory], float],
        *,
        trials: int,
        parallel: int,
        on_start: Callable[[Path, Combination], None],
        on_end: Callable[[Path, Result], None],
    ) -> None:
        """Train until the study has ``trials`` runs, ``parallel`` at a time here; other processes may do the same.

        ``words`` are the arguments of ``herd train`` for a run; ``progress`` is the part of a run that is done. If this call ends early,
        its runs are stopped, and the next call tries their settings again.
        """
        try:
            while True:
                self._recover()
                while len(self._running) < parallel and self._num_counted() < trials:
                    asked = self._study.ask()
                    values = self._chosen(asked)
                    directory = self.directory(asked.number)
                    on_start(directory, values)
                    run = WholeRun(Trial(directory, tuple(words(asked.number, values))))
                    self._running[asked.number] = _Running(asked, run)
                if not self._running:
                    return
                for number, each in list(self._running.items()):
                    if self._has_ended(each, progress):
                        del self._running[number]
                        on_end(self.directory(number), self._result(self._study.get_trials(deepcopy=False)[number]))
                time.sleep(TICK_SECONDS)
        finally:
            for each in self._running.values():
                each.run.stop()

    def results(self) -> list[Result]:
        """Return the runs, the best first; without those that were interrupted and tried again."""
        found = [self._result(each) for each in self._study.get_trials(deepcopy=False) if _counts(each)]
        return sorted(found, key=lambda each: (each.state != "complete", each.value is None, -(each.value or 0.0), each.number))

    def importance(self) -> dict[str, float]:
        """Return the share of each setting in what separates the best runs from all (PED-ANOVA, arXiv:2304.10255); empty for few runs."""
        complete = self._study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        if len(complete) < _MIN_TRIALS or len({each.value for each in complete}) == 1:
            return {}
        return dict(get_param_importances(self._study, evaluator=PedAnovaImportanceEvaluator()))

    def _num_counted(self) -> int:
        return sum(_counts(each) for each in self._study.get_trials(deepcopy=False))

    def _result(self, trial: optuna.trial.FrozenTrial) -> Result:
        state = {TrialState.FAIL: "failed"}.get(trial.state, trial.state.name.lower())
        return Result(trial.number, state, trial.value, {key: _text(value) for key, value in trial.params.items()})

    def _chosen(self, asked: optuna.trial.Trial) -> Combination:
        for key, choices in self._space.items():
            if not isinstance(choices, Range):
                asked.suggest_categorical(key, list(choices))
            else:
                suggest = asked.suggest_int if choices.is_whole else asked.suggest_float
                low, high = (int(end) if choices.is_whole else end for end in choices[:2])
                suggest(key, low, high, log=low > 0 and high / low >= _LOG_RATIO)
        return {key: _text(value) for key, value in asked.params.items()}

    def _recover(self) -> None:
        """Finish the runs of processes that were killed. Whoever records this first, of several processes, tries them again."""
        for each in self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            trial = Trial(self.directory(each.number), ())
            if each.number in self._running or not _is_abandoned(each, trial):
                continue
            value = objective(trial.directory)
            try:
                if value is not None and trial.directory.is_dir():  # it has ended, but this was not recorded
                    self._study.tell(each.number, value)
                    continue
                self._study.tell(each.number, state=TrialState.FAIL)
            except (RuntimeError, ValueError):
                continue
            self._study.enqueue_trial(each.params)

    def _has_ended(self, each: _Running, progress: Callable[[RunHistory], float]) -> bool:
        code = each.run.exit_code()
        if code is None:
            if not self._falls_behind(each, progress):
                return False
            each.run.stop()
            each.run.exit_code()
            self._study.tell(each.asked, state=TrialState.PRUNED)
            return True
        value = objective(each.run.trial.directory) if code == 0 else None
        if value is None:
            each.asked.set_user_attr(_EXIT_CODE, code)
            self._study.tell(each.asked, state=TrialState.FAIL)
        else:
            self._study.tell(each.asked, value)
        return True

    def _falls_behind(self, each: _Running, progress: Callable[[RunHistory], float]) -> bool:
        """Report the return so far after each step; return whether the run should be pruned."""
        curve = each.run.partial / METRICS
        size = curve.stat().st_size if curve.is_file() else 0
        if size == each.size:
            return False
        each.size = size
        try:
            history = read_run(each.run.partial)
        except FileError:  # no point yet
            return False
        step, value = int(min(1.0, progress(history)) * NUM_STEPS), _objective(history)
        if step <= each.step or value is None:
            return False
        each.step = step
        each.asked.report(value, step)
        return bool(each.asked.should_prune())


def objective(directory: Path) -> float | None:
    """Return the number that a study maximises; None if the run has none."""
    try:
        return _objective(read_run(directory))
    except FileError:
        return None


def _objective(history: RunHistory) -> float | None:
    """Return the mean over tasks of the return at the end; human-normalised if there are several tasks that all have reference scores."""
    several = len(history.episode_returns) > 1 and history.task_scores.keys() == history.episode_returns.keys()
    curves = history.task_scores if several else history.episode_returns
    reached = [final_return(history.env_frames, curve) for curve in curves.values()]
    return float(np.mean(reached)) if reached and np.isfinite(reached).all() else None


def _counts(trial: optuna.trial.FrozenTrial) -> bool:
    """Whether it is one of the wanted number of runs: it was not interrupted, nor only planned."""
    return trial.state in {TrialState.COMPLETE, TrialState.PRUNED, TrialState.RUNNING} or _EXIT_CODE in trial.user_attrs


def _is_abandoned(each: optuna.trial.FrozenTrial, trial: Trial) -> bool:
    if not trial.output.exists():
        begun = each.datetime_start
        return begun is None or datetime.now(UTC) - begun.astimezone(UTC) > timedelta(seconds=_START_SECONDS)
    try:
        check_unclaimed(trial)
    except ClaimedError:
        return False
    return True


def _text(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
