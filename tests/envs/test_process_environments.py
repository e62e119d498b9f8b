"""Environments in separate processes, played by a scripted game that is controlled through files beside it."""

from __future__ import annotations

import os
import re
import signal
import socket
import struct
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import psutil
import pytest
from numpy.testing import assert_array_equal
from numpy.typing import NDArray

from herd.components.suites import SuiteSettings
from herd.components.suites.api import BrokenEnvironmentError, Slots
from herd.components.suites.batch import ProcessSeat, SoloEnvironments
from herd.components.suites.reading import hash_instruction
from herd.contract.spaces import EnvSpec, discrete
from tests.patience import patient

pytestmark = pytest.mark.processes
SCRIPT = '''
"""Frames are [seed % 251, steps, task], H W C = 2 3 3. The action decides what happens; a task is a folder with its files."""
import os
import signal
import subprocess
import time

import numpy as np

from herd.components.suites.reading import FRAME, WORDS, hashed_words
from herd.components.suites.solo import Played

WIN, TIME_OUT, RAISE, KILL, MEET, ENGINE, HANG, EXIT = range(1, 9)


def make(settings, task):
    if task.endswith("unmakeable"):
        raise ValueError("two\\nlines")
    return Scripted(task)


class Scripted:
    def __init__(self, task):
        self.task = task

    def reset(self, seed):
        if os.path.exists(os.path.join(self.task, "no-more-games")):
            raise RuntimeError("no more games")
        left = os.path.join(self.task, "failures-left")
        if os.path.exists(left) and os.path.getsize(left):
            os.truncate(left, os.path.getsize(left) - 1)
            raise RuntimeError("no licence")
        self.seed, self.steps = seed, 0
        open(os.path.join(self.task, f"seed-{seed}"), "w").close()
        return self.seen()

    def seen(self):
        frame = np.zeros((2, 3, 3), np.uint8)
        frame[:] = (self.seed % 251, self.steps, len(self.task) % 251)
        frame[0, 0, 0] = 7
        return {FRAME: frame, WORDS: hashed_words(f"game {self.seed}")}

    def step(self, action):
        self.steps += 1
        if action == WIN:
            return Played(None, 2.5, terminated=True)
        if action == TIME_OUT:
            return Played(self.seen(), -1.0, truncated=True)
        if action == RAISE:
            raise RuntimeError("the floor\\n  opened")
        if action == KILL:
            os.kill(os.getpid(), signal.SIGKILL)
        if action == MEET:
            # A named pipe opens only once both ends are opened, so two processes must be here at the same time.
            mode = os.O_RDONLY if os.path.exists(os.path.join(self.task, "reads")) else os.O_WRONLY
            os.close(os.open(os.path.join(os.path.dirname(self.task), "pipe"), mode))
        if action == EXIT:
            os._exit(0)
        if action == HANG:
            signal.pause()
        if action == ENGINE:
            engine = subprocess.Popen(["sleep", "1000"], close_fds=False)  # inherits descriptors, as from a C program
            with open(os.path.join(self.task, "engine"), "w") as file:
                file.write(str(engine.pid))
        return Played(self.seen(), 0.5)

    def close(self):
        with open(os.path.join(self.task, "closed"), "a") as file:
            file.write("x")
'''
WIN, TIME_OUT, RAISE, KILL, MEET, ENGINE, HANG, EXIT = range(1, 9)
FILE = "process_script.py"


@pytest.fixture(autouse=True)
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / FILE).write_text(SCRIPT)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


def folders(root: Path, *names: str) -> list[str]:
    for name in names:
        (root / name).mkdir()
    return [str(root / name) for name in names]


@contextmanager
def environments(
    tasks: list[str],
    num_environments: int,
    *,
    stack: int = 1,
    words: int = 16,
    busy: int = 8,
    replaced: Callable[[], None] = lambda: None,
    **how: bool,
) -> Iterator[SoloEnvironments]:
    spec = EnvSpec(tuple(tasks), (2, 3, 3), stack, discrete(9), 1, words)
    settings = SuiteSettings(suite="scripted", tasks=tuple(tasks))
    slots = Slots(num_environments, first_slot=2, seed=9, num_threads=busy, replaced=replaced)
    made = SoloEnvironments(settings, spec, slots, "process_script:make", **how)
    try:
        yield made
    finally:
        made.close()


def processes(made: SoloEnvironments) -> list[subprocess.Popen[bytes]]:
    return [seat.process for seat in made._players + made._standbys if isinstance(seat, ProcessSeat)]


def act(*actions: int) -> NDArray[np.int32]:
    return np.array(actions, np.int32)


def seed_of(slot: int, start: int, game: int) -> int:
    """Seed of game number ``game`` (from 0) of the process that was started for the ``start``-th time."""
    return int(np.random.default_rng((9, slot, start)).integers(2**31, size=game + 1)[-1])


def wait_until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + patient(30)
    while not happened():
        assert time.monotonic() < deadline, "it has not happened"
        time.sleep(0.02)


def is_gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def wait_until_gone(pids: list[int]) -> None:
    wait_until(lambda: all(is_gone(pid) for pid in pids))


def test_each_slot_plays_its_own_games_of_its_task(tmp_path: Path) -> None:
    tasks = folders(tmp_path, "a", "bb")
    with environments(tasks, 3) as made:
        assert made.task_ids.tolist() == [0, 1, 0]
        observation = made.reset()
        for e in range(3):
            seed = seed_of(2 + e, 1, 0)
            assert observation.stack[e, :, 1, 2].tolist() == [seed % 251, 0, len(tasks[e % 2]) % 251]
            assert observation.stack[e, 0, 0, 0] == 7  # height and width keep their axes
            assert observation.instructions is not None
            assert observation.instructions[e].tolist() == hash_instruction(f"game {seed}")
        assert observation.game_reset.all()


def test_the_step_after_the_end_of_a_game_starts_another(tmp_path: Path) -> None:
    with environments(folders(tmp_path, "a"), 2) as made:
        made.reset()
        made.step(act(0, 0))
        ended = made.step(act(WIN, TIME_OUT))
        assert ended.rewards.tolist() == [2.5, -1.0]
        assert ended.terminated.tolist() == [True, False]
        assert ended.truncated.tolist() == [False, True]
        assert ended.valid.all()
        assert [(game.environment, game.episode_return, game.agent_steps) for game in ended.finished] == [(0, 3.0, 2), (1, -0.5, 2)]
        # At the end of a game nothing new can be seen, so the last observation is kept.
        assert ended.observation.stack[:, 1, 1, 1].tolist() == [1, 2]
        started = made.step(act(RAISE, KILL))  # the action is ignored
        assert not started.valid.any()
        assert started.observation.game_reset.all()
        assert started.rewards.tolist() == [0.0, 0.0]
        assert not (started.terminated | started.truncated).any()
        assert started.finished == ()
        assert started.observation.stack[:, 0, 1, 1].tolist() == [seed_of(2 + e, 1, 1) % 251 for e in range(2)]
        assert made.step(act(WIN, 0)).finished[0].episode_return == 2.5


def test_arrays_stay_valid_for_one_more_step(tmp_path: Path) -> None:
    for stack in (1, 3):
        root = tmp_path / str(stack)
        root.mkdir()
        with environments(folders(root, "a"), 2, stack=stack) as made:
            observation = made.reset()
            for _ in range(4):
                kept = observation.stack.copy()
                following = made.step(act(0, 0)).observation
                assert_array_equal(observation.stack, kept)
                assert not np.shares_memory(observation.stack, following.stack)
                observation = following


def test_a_new_game_starts_with_an_empty_frame_stack(tmp_path: Path) -> None:
    with environments(folders(tmp_path, "a"), 1, stack=3, words=0) as made:
        stacks = [made.reset().stack[0].copy()]
        stacks += [made.step(act(action)).observation.stack[0].copy() for action in (0, 0, TIME_OUT, 0, 0)]
        assert stacks[0].shape == (9, 2, 3)
        steps = [stack[1::3, 1, 1].tolist() for stack in stacks]
        assert steps == [[0, 0, 0], [0, 0, 1], [0, 1, 2], [1, 2, 3], [0, 0, 0], [0, 0, 1]]
        task = [stack[2::3, 1, 1].astype(bool).tolist() for stack in stacks]
        assert task[:4] == [[False, False, True], [False, True, True], [True, True, True], [True, True, True]]
        assert task[4] == [False, False, True]


@pytest.mark.parametrize(
    ("processes", "action", "reason"),
    [
        (True, RAISE, f"its process failed: RuntimeError: the floor opened ({FILE}, line 50)"),
        (True, KILL, "its process failed: ended by SIGKILL"),
        (True, EXIT, "its process failed: ended with code 0"),
        (False, RAISE, f"it failed: RuntimeError: the floor opened ({FILE}, line 50)"),
    ],
)
def test_an_environment_that_fails_during_a_game_starts_another(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, processes: bool, action: int, reason: str
) -> None:
    [task] = folders(tmp_path, "a")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "process_script", raising=False)
    replaced: list[int] = []
    with environments([task], 3, processes=processes, replaced=lambda: replaced.append(1)) as made:
        made.reset()
        made.step(act(0, 0, 0))
        assert not replaced
        failed = made.step(act(0, action, WIN))
        assert replaced == [1]
        assert failed.valid.tolist() == [True, False, True]
        assert failed.rewards.tolist() == [0.5, 0.0, 2.5]
        assert failed.observation.game_reset.tolist() == [False, True, False]
        assert failed.terminated.tolist() == [False, False, True]
        assert [game.environment for game in failed.finished] == [2]  # a failed game has no score
        assert failed.observation.stack[:, 1, 1, 1].tolist() == [2, 0, 1]
        assert failed.observation.stack[1, 0, 1, 1] == seed_of(3, 2, 0) % 251
        assert f"{task}, environment 3: {reason}; restarted with a new game" in caplog.text
        made.step(act(0, 0, 0))
        [over] = made.step(act(0, WIN, 0)).finished
        assert (over.episode_return, over.agent_steps) == (3.0, 2)
        # A finished game resets the count of failures.
        made.step(act(0, 0, 0))
        assert not made.step(act(0, action, 0)).valid[1]
        # The third failure in a row raises.
        assert not made.step(act(0, action, 0)).valid[1]
        with pytest.raises(BrokenEnvironmentError, match=f"^{task}, environment 3: {re.escape(reason)}$") as raised:
            made.step(act(0, action, 0))
        assert isinstance(raised.value.__cause__, RuntimeError) != processes  # for a debugger


def test_an_environment_that_does_not_answer_is_ended_and_starts_another(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    [task] = folders(tmp_path, "a")
    with environments([task], 2) as made:
        made.reset()
        [_, hanging] = processes(made)
        seat = made._players[1]
        assert isinstance(seat, ProcessSeat)
        seat._control.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 100_000))
        assert made.step(act(0, HANG)).valid.tolist() == [True, False]
        assert f"{task}, environment 3: its process failed: no answer for 600 s; restarted" in caplog.text
        assert hanging.returncode == -signal.SIGKILL
        assert made.step(act(0, 0)).valid.all()


def test_a_game_that_cannot_be_started_is_an_error(tmp_path: Path) -> None:
    [task] = folders(tmp_path, "a")
    with environments([task], 2) as made:
        made.reset()
        made.step(act(0, WIN))
        (tmp_path / "a" / "no-more-games").touch()
        with pytest.raises(BrokenEnvironmentError, match="environment 3: its process failed: RuntimeError: no more games"):
            made.step(act(0, 0))
        with pytest.raises(ValueError, match="actions must"):
            made.step(act(0, 9))


@pytest.mark.parametrize(("num_failures", "standby"), [(1, False), (2, False), (2, True)])
def test_a_game_that_sometimes_cannot_be_started_is_started_again(tmp_path: Path, num_failures: int, standby: bool) -> None:
    [task] = folders(tmp_path, "a")
    with environments([task], 1, standby=standby) as made:
        (tmp_path / "a" / "failures-left").write_text("x" * num_failures)
        made.reset()
        made.step(act(WIN))
        (tmp_path / "a" / "failures-left").write_text("x" * num_failures)
        assert made.step(act(0)).valid.tolist() == [False]
        assert made.step(act(0)).valid.tolist() == [True]


def test_an_environment_that_cannot_be_created_gives_one_line(tmp_path: Path) -> None:
    tasks = folders(tmp_path, "a", "unmakeable")
    with (
        environments(tasks, 2) as made,
        pytest.raises(
            BrokenEnvironmentError,
            match=f"^{tasks[1]}, environment 3: its process failed: ValueError: two lines \\(process_script.py, line 18\\)$",
        ),
    ):
        made.reset()


def test_all_processes_step_concurrently(tmp_path: Path) -> None:
    """MEET waits until both environments are in the same step; a step ends only if they run concurrently."""
    tasks = folders(tmp_path, "a", "b")
    (tmp_path / "a" / "reads").touch()
    os.mkfifo(tmp_path / "pipe")
    with environments(tasks, 2) as made:
        made.reset()
        for _ in range(3):
            assert made.step(act(MEET, MEET)).valid.all()


def test_limiting_busy_processes_does_not_change_the_games(tmp_path: Path) -> None:
    tasks = folders(tmp_path, "a", "b")
    seen = []
    for busy in (1, 2, 5):
        with environments(tasks, 5, busy=busy) as made:
            rows = [made.reset().stack.copy()]
            rows += [made.step(act(0, WIN, 0, TIME_OUT, 0)).observation.stack.copy() for _ in range(3)]
            seen.append(rows)
    assert_array_equal(seen[0], seen[1])
    assert_array_equal(seen[0], seen[2])


def all_exist(files: list[Path]) -> bool:
    return all(file.exists() for file in files)


def test_standby_processes_alternate_and_start_games_ahead(tmp_path: Path) -> None:
    """The process that was started second plays first; each process has its own stream of seeds."""
    [task] = folders(tmp_path, "a")
    with environments([task], 2, standby=True) as made:
        row = made.reset().stack.copy()
        for game in range(5):
            seeds = [seed_of(2 + e, 2 - game % 2, game // 2) for e in range(2)]
            assert row[:, 0, 1, 1].tolist() == [seed % 251 for seed in seeds]
            ahead = [tmp_path / "a" / f"seed-{seed_of(2 + e, 1 + game % 2, (game + 1) // 2)}" for e in range(2)]
            wait_until(partial(all_exist, ahead))  # no step is taken meanwhile
            assert made.step(act(0, 0)).observation.stack[:, 1, 1, 1].tolist() == [1, 1]
            assert made.step(act(WIN, TIME_OUT)).valid.all()
            started = made.step(act(0, 0))
            assert not started.valid.any()
            row = started.observation.stack.copy()
        pids = [process.pid for process in processes(made)]
        assert len(set(pids)) == 4
    wait_until_gone(pids)


def test_a_failed_standby_start_is_an_error_when_its_game_is_due(tmp_path: Path) -> None:
    [task] = folders(tmp_path, "a")
    with environments([task], 1, standby=True) as made:
        made.reset()
        wait_until((tmp_path / "a" / f"seed-{seed_of(2, 1, 0)}").exists)
        (tmp_path / "a" / "no-more-games").touch()
        made.step(act(WIN))
        assert not made.step(act(0)).valid[0]  # this game was started in time; the next one cannot be started
        made.step(act(WIN))
        with pytest.raises(BrokenEnvironmentError, match="environment 2: its process failed: RuntimeError: no more games"):
            made.step(act(0))


def test_a_failed_process_is_replaced_while_the_standby_plays(tmp_path: Path) -> None:
    [task] = folders(tmp_path, "a")
    with environments([task], 1, standby=True) as made:
        made.reset()
        failed = made.step(act(KILL))
        assert not failed.valid[0]
        assert failed.observation.stack[0, 0, 1, 1] == seed_of(2, 3, 0) % 251
        assert [made.step(act(action)).valid[0] for action in (0, WIN, 0, WIN, 0)] == [True, True, False, True, False]


def test_closing_ends_every_process_and_removes_its_files(tmp_path: Path) -> None:
    before = set(os.listdir("/dev/shm"))
    with environments(folders(tmp_path, "a"), 3) as made:
        made.reset()
        pids = [process.pid for process in processes(made)]
        assert made._folder is not None
        folder = made._folder.name
        assert os.path.isdir(folder)
    wait_until_gone(pids)
    assert (tmp_path / "a" / "closed").read_text() == "xxx"
    assert not os.path.exists(folder)
    assert set(os.listdir("/dev/shm")) <= before
    made.close()  # closing twice is allowed


def test_killing_a_process_also_ends_its_engine(tmp_path: Path) -> None:
    with environments(folders(tmp_path, "a"), 1) as made:
        made.reset()
        made.step(act(ENGINE))
        engine = int((tmp_path / "a" / "engine").read_text())
        assert psutil.pid_exists(engine)
        made.step(act(KILL))
        wait_until_gone([engine])


@pytest.mark.parametrize("hangs", [False, True])
def test_processes_end_with_their_parent(tmp_path: Path, hangs: bool) -> None:
    folders(tmp_path, "a")
    code = f"""
        import time
        from herd.components.suites import batch
        from pathlib import Path
        from tests.envs.test_process_environments import environments, processes
        batch.CLOSE_SECONDS = 0.1 if {hangs} else 10.0
        with environments([{str(tmp_path / "a")!r}], 3) as made:
            made.reset()
            print(*(process.pid for process in processes(made)), flush=True)
            if {hangs}:
                made.step([{HANG}] * 3)
            time.sleep(1000)
    """
    # The empty folder of a killed process remains.
    environ = os.environ | {"TMPDIR": str(tmp_path)}
    parent = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True, env=environ)
    with parent:
        assert parent.stdout is not None
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(pids) == 3
        parent.send_signal(signal.SIGKILL)
    wait_until_gone(pids)
    if not hangs:
        assert (tmp_path / "a" / "closed").read_text() == "xxx"  # each closed its environment


def test_a_process_loads_no_torch_and_ignores_sigint(tmp_path: Path) -> None:
    with environments(folders(tmp_path, "a"), 1) as made:
        made.reset()
        [process] = processes(made)
        maps = Path(f"/proc/{process.pid}/maps").read_text()
        assert "libtorch" not in maps
        process.send_signal(signal.SIGINT)
        assert made.step(act(0)).valid.all()
