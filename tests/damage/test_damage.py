"""Every file of a run directory, damaged, and every command, service and function that reads it.

The reader uses an older copy and says so, or refuses in one line that names the file. It never ends in a traceback, never waits, and never
uses what a digest could have noticed. The run is a real one with every part: two members of a population, a bandit, shared replay, an
evaluator and keys.
"""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from collections.abc import Callable
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import pytest

from tests.damage.readers import READERS, HungError, Said, read
from tests.damage.table import ROWS, damage, judged, kinds_of, name_of, row_of
from tests.system.whole_runs import herd

pytestmark = [pytest.mark.processes, pytest.mark.timeout(1800)]

SWEEP = json.dumps({"optimizer.learning_rate": {"draw": "log_uniform", "low": 1e-6, "high": 1e-2}})
WORDS = (
    *("--agents", "2", "--actor.count", "2", "--sweep", SWEEP, "--optimizer.schedule", "constant", "--stop.env_frames", "12000"),
    *("--population.strategy", "pbt", "--population.fitness", "frames_per_second", "--population.fitness_episodes", "100"),
    *("--population.burn_in_env_frames", "2000", "--population.threshold", "0.01", "--population.report_interval_seconds", "0.2"),
    *("--replay.kind", "shared", "--replay.fraction", "0.5", "--replay.minimum_fill_agent_steps", "2000"),
    *("--replay_service.snapshot_interval_seconds", "1"),
    *("--evaluation.interval_seconds", "1", "--evaluation.episodes", "2", "--evaluation.final", "true"),
    *("--bandit.snapshot_interval_seconds", "1"),
    *("--actor.environments", "8", "--learner.batch_size", "8", "--learner.queue_batches", "4", "--learner.threads", "1"),
    *("--learner.checkpoint_interval_seconds", "1", "--learner.log_interval_seconds", "1"),
)


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run; its keys are in it, so that it can be copied as a whole."""
    folder = tmp_path_factory.mktemp("damage")
    assert herd("keys", folder / "keys").returncode == 0
    run_dir = folder / "run"
    done = herd("train", "dice-catch", "--run_dir", run_dir, "--security.curve_keys", folder / "keys", *WORDS)
    assert done.returncode == 0, done.stderr + done.stdout
    (folder / "keys").rename(run_dir / "keys")
    config = run_dir / "config.yaml"
    config.write_text(config.read_text().replace(str(folder / "keys"), str(folder / "copy" / "keys")))
    return run_dir


def _files(run_dir: Path) -> list[Path]:
    return sorted(path for path in run_dir.rglob("*") if path.is_file())


def _fresh(intact: Path) -> Path:
    copy = intact.with_name("copy")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(intact, copy)
    return copy


def _try(intact: Path, file: Path, kind: str, reader: str, seed: str, expected: Said, *, draws: bool) -> str:
    """Damage one file of a copy and let a reader read it; returns how it took that."""
    copy = _fresh(intact)
    damaged, row = copy / file.relative_to(intact), row_of(intact, file)
    where = f"{reader} reads {name_of(intact, file)}: {kind} (seed {seed})"
    try:
        if not damage(damaged, kind, seed):
            return "unchanged"
        return judged(row, damaged, kind, reader, read(reader, copy, draws=draws), expected)
    except (Exception, HungError) as error:
        raise AssertionError(f"{where}: {type(error).__name__}: {error}") from error


@pytest.fixture(scope="module")
def expect(intact: Path) -> Callable[[str], Said]:
    """Return what a reader says about the intact run."""

    @cache
    def said(reader: str) -> Said:
        found = read(reader, _fresh(intact))
        assert found.code == 0, found.err
        return found

    return said


def test_every_file_has_a_row_and_every_row_a_file(intact: Path) -> None:
    names = [name_of(intact, file) for file in _files(intact)]
    assert [name for name in names if not any(fnmatch(name, pattern) for pattern in ROWS)] == []
    assert [pattern for pattern in ROWS if not any(fnmatch(name, pattern) for name in names)] == []


@pytest.mark.parametrize("pattern", ROWS)
def test_a_damaged_file_is_named_and_never_used(intact: Path, expect: Callable[[str], Said], pattern: str) -> None:
    chance = random.Random(pattern)
    files = [file for file in _files(intact) if fnmatch(name_of(intact, file), pattern)]
    strangers = [reader for reader in READERS if reader not in ROWS[pattern].readers]
    for reader in [*ROWS[pattern].readers, *chance.sample(strangers, 1)]:
        file = chance.choice(files)
        kind = chance.choice(kinds_of(file))
        _try(intact, file, kind, reader, f"{pattern} {reader} {kind}", expect(reader), draws=False)


@pytest.mark.soak
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("seed", range(5))
def test_many_damages(intact: Path, expect: Callable[[str], Said], seed: int) -> None:
    chance, outcomes, failures = random.Random(seed), Counter[str](), list[str]()
    for file in _files(intact):
        for kind in kinds_of(file):
            readers = row_of(intact, file).readers
            for reader in [*readers, *chance.sample([each for each in READERS if each not in readers], 1)]:
                draws = chance.random() < 0.1
                try:
                    outcomes[_try(intact, file, kind, reader, f"{seed} {file.name} {reader} {kind}", expect(reader), draws=draws)] += 1
                except AssertionError as error:
                    failures.append(str(error))
    print(dict(outcomes))
    assert not failures, "\n".join(failures)
