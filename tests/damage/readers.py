"""Everything that reads the files of a run directory: the commands, through `herd.cli.main`; the services, as far as they start; the API.

All of them run in this process, so that thousands of damaged files can be read.
"""

from __future__ import annotations

import contextlib
import io
import logging
import re
import resource
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast
from unittest.mock import patch

import torch
from herd_bandit.exchange import new_window
from herd_bandit.keeper import Keeper as BanditKeeper
from herd_bandit.meters import Meters as BanditMeters
from herd_bandit.snapshot import ForeignSnapshotError as ForeignBandits
from herd_bandit.task_bandit import groups_of, new_bandits
from herd_evaluator.evaluator import _lineage
from herd_evaluator.results import PointsFile
from herd_learner.record import checkpoints
from herd_learner.record.lineage import LineageError, open_lineage
from herd_population.controller import Controller
from herd_population.journal import Journal
from herd_replay.assembly import Assembler
from herd_replay.exchange import Replica
from herd_replay.snapshot import ForeignSnapshotError, SnapshotFolder
from herd_replay.store import EpisodeStore

from herd.api.playing import load_policy
from herd.api.runs import RunError, load_run
from herd.cli.main import main
from herd.cli.options import CommandError
from herd.cli.run_paths import existing_run
from herd.components.suites import environment_spec
from herd.config.encryption_keys import EVERY_ROLE, check_curve_keys
from herd.config.errors import SettingsError
from herd.config.loading import load_settings
from herd.config.run import RunSettings
from herd.config.run_contract import Origin, contract_digest, run_layout
from herd.config.sweep import swept_values
from herd.files import FileError
from herd.launch.supervisor import Outcome
from herd.protocols.bandit.tiling import tiling_of_run
from herd.protocols.replay.pieces import PieceLayout
from herd.rpc.serving import AtMostOnce
from herd.run.checkpoints import CheckpointError
from herd.run.paths import planned_agent_directories
from herd.service.startup import BadInputError
from herd.telemetry import Telemetry
from herd.training.trainer import Trainer
from herd.transport.keys import check_server_key
from tests.patience import patient

if TYPE_CHECKING:
    from structlog.stdlib import BoundLogger

HANG_SECONDS = 300
"""An intact run is read in less than two seconds, and in a minute on a machine that is far too busy."""
MAX_MEMORY_BYTES = 8 << 30
"""Torch and matplotlib take less than two."""
REFUSALS = (
    *(SettingsError, CommandError, BadInputError, RunError, FileError, CheckpointError, LineageError),
    *(ForeignBandits, ForeignSnapshotError),
)
"""What services and scripts get as one line."""


class Said(NamedTuple):
    """How a reader ended."""

    code: int
    out: str
    err: str

    @property
    def text(self) -> str:
        """All that it wrote."""
        return self.out + self.err


class HungError(BaseException):
    """A reader does not return. A BaseException, so that no reader catches it."""


@contextlib.contextmanager
def _alarm() -> Iterator[None]:
    def ring(*_: object) -> None:
        raise HungError

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(int(patient(HANG_SECONDS)))
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def _memory_limit() -> Iterator[None]:
    """A reader that takes a sparse file into memory gets a MemoryError, before the machine is out of memory."""
    before = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (MAX_MEMORY_BYTES, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


@contextlib.contextmanager
def _captured() -> Iterator[tuple[io.StringIO, io.StringIO]]:
    """Capture both streams; warnings of the log go to the second, as in a command."""
    out, err = io.StringIO(), io.StringIO()
    root = logging.getLogger()
    handlers, root.handlers = root.handlers, []
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            yield out, err
    finally:
        root.handlers = handlers


def _undrawn(_figure: object, output: object, **_: object) -> None:
    Path(str(output)).touch()


def read(reader: str, run_dir: Path, *, draws: bool = False) -> Said:
    """Let a reader read a run. Any exception but a refusal comes through, as does `HungError`.

    ``draws``: pictures are drawn to the last pixel, which takes most of the time.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(_alarm())
        stack.enter_context(_memory_limit())
        out, err = stack.enter_context(_captured())
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        if not draws:
            stack.enter_context(patch("matplotlib.figure.Figure.savefig", _undrawn))
        code = READERS[reader](run_dir, Path(folder))
    return Said(code, out.getvalue(), err.getvalue())


def _command(*words: str | Path) -> int:
    try:
        return main([str(word) for word in words])
    except SystemExit as error:
        return int(error.code or 0)


def _train(run_dir: Path, folder: Path) -> int:
    """All that ``herd train --resume`` does before and after its processes."""
    drawn = patch("herd.view.summary.draw_curve", lambda _: None)  # `herd plot` reads the same
    with drawn, patch("herd.launch.supervisor.Supervisor.run", lambda *_: Outcome(0, "")):
        return _command("train", "--resume", "--run_dir", run_dir, "--stop.env_frames", str(10**9))


def _report(run_dir: Path, folder: Path) -> int:
    """``herd report``, and what is on its page."""
    page = folder / "report.html"
    code = _command("report", run_dir, "--no_game", "--output", page)
    if page.exists():
        print(page.read_text())
    return code


def _service(read: Callable[[RunSettings], None]) -> Callable[[Path, Path], int]:
    def run(run_dir: Path, folder: Path) -> int:
        try:
            existing_run(run_dir)  # a run file given by hand may be a pipe, for whose writer a service waits
            settings = load_settings([run_dir / "config.yaml"], ["--run_dir", str(run_dir)], {})
            read(settings)
        except REFUSALS as error:
            print(f"herd: {error}", file=sys.stderr)
            return 2
        return 0

    return run


def _learner(settings: RunSettings) -> None:
    spec = environment_spec(settings.env)
    for directory in planned_agent_directories(settings):
        checkpoint = checkpoints.load_newest(directory, Origin.of(settings, spec))
        restored = checkpoints.restore_counters(checkpoint, spec, tiling_of_run(settings))
        if checkpoint is not None:
            trainer = Trainer(settings, spec, torch.device("cpu"), torch.float32)
            with torch.random.fork_rng(devices=[]):
                checkpoints.restore(checkpoint, trainer, replay=None)
            print(checkpoint.path.name, checkpoint.state["statistics"]["env_frames"])
        print(open_lineage(directory, restored.least_lineage))


def _log(line: str, **facts: object) -> None:
    print(line, facts)


class _Log:
    warning = info = staticmethod(_log)


def _bandit(settings: RunSettings) -> None:
    groups = groups_of(settings, 1)
    bandits = new_bandits(settings.bandit, settings.env.tasks, seed=1, num_agents=settings.agents, groups=groups)
    keeper = BanditKeeper(settings, bandits=bandits, window=new_window(), meters=BanditMeters(Telemetry("bandit", "run")))
    keeper.restore(cast("BoundLogger", _Log()))
    print(keeper.num_episodes)
    keeper.record()


def _replay(settings: RunSettings) -> None:
    spec = environment_spec(settings.env)
    layout = PieceLayout(run_layout(settings, spec))
    folder = SnapshotFolder(
        settings.directory, run=settings.name, contract=contract_digest(settings, spec), replica=Replica(0, 1), layout=layout
    )
    store = EpisodeStore(capacity_steps=10**6, max_bytes=lambda: 1 << 30, unroll_length=layout.unroll.new_steps)
    restored = folder.load(store, Assembler(1 << 28), AtMostOnce(1000, in_order=True))
    print(*restored.lost, store.num_steps, sep="\n")


def _population(settings: RunSettings) -> None:
    first = tuple(swept_values(settings.sweep, agent, settings.seed) for agent in range(settings.agents))
    controller = Controller(settings.population, num_members=settings.agents, seed=settings.seed, is_allowed=lambda _: True)
    journal = Journal(settings.directory, run=settings.name, members=first, note=controller.note)
    print(journal.num_events, *(controller.order_of(agent) for agent in range(settings.agents)))


def _evaluator(settings: RunSettings) -> None:
    with patch("herd_evaluator.results.warn_limited", lambda _key, line, **facts: _log(line, **facts)):
        for directory in planned_agent_directories(settings):
            print(PointsFile(directory, lambda: None).newest_version, _lineage(directory))


def _keys(settings: RunSettings) -> None:
    check_curve_keys(settings.security, {}, EVERY_ROLE)
    check_server_key(settings.security, {})


def _api(settings: RunSettings) -> None:
    run = load_run(settings.directory)
    print(run.settings.name)
    for each in run.agents:
        print(len(each.metrics), each.report["env_frames"], each.array("env_frames")[-1:], each.checkpoints)


def _words(*words: str) -> Callable[[Path, Path], int]:
    """A command; RUN, AGENT and OUT in its words are the run, its first agent, and a folder."""

    def run(run_dir: Path, folder: Path) -> int:
        places = {"RUN": str(run_dir), "AGENT": str(run_dir / "agents" / "0"), "OUT": str(folder)}
        return _command(*(re.sub("RUN|AGENT|OUT", lambda found: places[found[0]], word) for word in words))

    return run


READERS: Mapping[str, Callable[[Path, Path], int]] = {
    "status": _words("status", "RUN"),
    "status --json": _words("status", "--json", "RUN"),
    "report": _report,
    "plot": _words("plot", "RUN", "--output", "OUT/plot.svg"),
    "plot --bandit": _words("plot", "--bandit", "RUN", "--output", "OUT/plot.svg"),
    "plot --population": _words("plot", "--population", "RUN", "--output", "OUT/plot.svg"),
    "evaluate": _words("evaluate", "AGENT", "--episodes", "1", "--environments", "1", "--output", "OUT/evaluation"),
    "watch": _words("watch", "AGENT", "--min_seconds", "0", "--max_seconds", "0.2", "--output", "OUT/game.gif"),
    "load_policy": _service(lambda settings: print(load_policy(settings.directory / "agents" / "0").__class__)),
    "load_run": _service(_api),
    "learner": _service(_learner),
    "bandit": _service(_bandit),
    "replay": _service(_replay),
    "population": _service(_population),
    "evaluator": _service(_evaluator),
    "keys": _service(_keys),
    "train": _train,
}
"""By name; each takes the run and a folder for what it writes, and returns an exit code."""
