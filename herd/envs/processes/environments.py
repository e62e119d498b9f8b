"""A batch of environments, each in a process of its own.

This is for environments that cannot be stepped in a thread: DeepMind Lab holds the interpreter's lock all the time, and ViZDoom runs a
process per game. A step is one byte to every process and one byte back. Observations, rewards and ends are in shared memory without a
name, which is freed with the last process. Only numbers are read from it.

If games take long to start, each environment has a second process that starts the next game during the current one (``standby``).

A process that fails in the middle of a game is restarted. Its step becomes one that only starts the next game (``valid`` False). So the
rows before it bootstrap from the last observation as in a truncated game, and the failed game is not reported. A process that fails at
the start of a game, or again before it has finished a game, is a `BrokenEnvironmentError`.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import struct
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from mmap import mmap
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np

from herd.envs.api import BrokenEnvironmentError, FinishedGame, Observation, Transition, checked_actions, dealt_task_ids
from herd.envs.processes.rows import SharedRows, Sizes
from herd.envs.processes.worker import PREPARE, RESET, Order
from herd.envs.suite import PROCESS_STEP_SECONDS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from herd.config.suites import SuiteSettings
    from herd.contract.spaces import EnvSpec

CLOSE_SECONDS = 10.0
_ONE_THREAD = ("LP_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
"""Mesa's software renderer, OpenMP and numpy would start a thread per CPU in every process."""
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Worker:
    process: subprocess.Popen[bytes]
    control: socket.socket
    num_asked: int = 0
    """Number of commands without an answer yet."""


class ProcessEnvironments:
    """A ``BatchedEnvironment`` of processes, of which at most ``num_threads`` step at a time.

    ``maker``: ``module:function`` that creates a `SoloEnvironment` from the JSON of ``settings`` and the name of a task. ``standby``: two
    processes play the games of an environment in turn, and each starts its next game while the other plays.
    """

    def __init__(
        self,
        settings: SuiteSettings,
        spec: EnvSpec,
        maker: str,
        *,
        num_environments: int,
        first_slot: int,
        seed: int,
        num_threads: int,
        standby: bool = False,
    ) -> None:
        self.spec = spec
        self.num_environments = num_environments
        self.task_ids = dealt_task_ids(num_environments=num_environments, first_slot=first_slot, num_tasks=len(spec.task_names))
        self._settings = settings.model_dump_json()
        self._maker = maker
        self._first_slot, self._seed = first_slot, seed
        self._num_busy = min(num_threads, num_environments)
        self._sizes = Sizes(num_environments, spec.frame_shape, spec.instruction_length)
        self._memory = os.memfd_create("herd-environments")
        os.ftruncate(self._memory, SharedRows.num_bytes(self._sizes))
        self._rows = SharedRows(mmap(self._memory, 0), self._sizes)
        self._buffer = 0
        height, width, channels = spec.frame_shape
        shape = (num_environments, spec.frame_stack, channels, height, width)
        # With one frame in a stack, the shared memory is the stack; otherwise there are two alternating buffers.
        self._stacks = [np.zeros(shape, np.uint8) for _ in range(2)] if spec.frame_stack > 1 else []
        self._over = np.zeros(num_environments, np.bool_)
        self._return = np.zeros(num_environments, np.float64)
        self._steps = np.zeros(num_environments, np.int64)
        self._num_starts = np.zeros(num_environments, np.int64)
        self._has_failed = np.zeros(num_environments, np.bool_)
        self._workers: list[_Worker] = []
        self._standbys: list[_Worker] = []
        # Files that killed engines leave behind are removed with it.
        self._folder = TemporaryDirectory(prefix="herd-environments-", ignore_cleanup_errors=True)
        try:
            for environment in range(num_environments):
                self._workers.append(self._start(environment))
                if standby:
                    self._standbys.append(self._start(environment))
        except BaseException:
            self.close()
            raise

    def reset(self) -> Observation:
        """Start a new game in every environment. BrokenEnvironmentError if that fails."""
        everywhere = np.ones(self.num_environments, np.bool_)
        for environment in self._run(everywhere):
            raise self._failure(environment)
        for counter in (self._over, self._return, self._steps):
            counter[:] = 0
        return self._observe(everywhere)

    def step(self, actions: NDArray[np.int32]) -> Transition:
        """Step all games and wait for all of them; games that are over are restarted instead. BrokenEnvironmentError: see above."""
        self._rows.actions[:] = checked_actions(actions, num_environments=self.num_environments, num_actions=self.spec.actions.num_actions)
        starting = self._over
        failed = self._run(starting)
        if failed:
            starting = starting.copy()
            for environment in failed:
                self._restart(environment, in_game=not starting[environment])
            starting[failed] = True
        valid = ~starting
        rewards = np.where(valid, self._rows.rewards, 0.0)
        terminated = self._rows.terminated & valid
        truncated = self._rows.truncated & valid & ~terminated
        self._return[starting] = 0.0
        self._steps[starting] = 0
        self._return += rewards
        self._steps += valid
        self._over = terminated | truncated
        self._has_failed &= ~self._over
        finished = tuple(
            FinishedGame(int(e), int(self.task_ids[e]), float(self._return[e]), int(self._steps[e])) for e in np.flatnonzero(self._over)
        )
        return Transition(self._observe(starting), rewards.astype(np.float32), terminated, truncated, valid, finished)

    def close(self) -> None:
        """End every process and wait for it."""
        workers = self._workers + self._standbys
        for worker in workers:
            worker.control.close()
        for worker in workers:
            _end(worker.process)
        self._workers, self._standbys = [], []
        self._folder.cleanup()
        if self._memory >= 0:
            os.close(self._memory)
            self._memory = -1

    def _run(self, resets: NDArray[np.bool_]) -> list[int]:
        """Run a command, a reset or a step, in every environment, into the other buffer; returns environments whose processes failed."""
        self._buffer = 1 - self._buffer
        commands = [self._buffer | (RESET if reset else 0) for reset in resets]
        new_games = [int(environment) for environment in np.flatnonzero(resets)] if self._standbys else []
        for environment in new_games:
            self._workers[environment], self._standbys[environment] = self._standbys[environment], self._workers[environment]
        failed = []
        for environment in range(self._num_busy):
            _ask(self._workers[environment], commands[environment])
        for environment in range(self.num_environments):
            if not self._answers(environment):
                failed.append(environment)
            if environment + self._num_busy < self.num_environments:
                _ask(self._workers[environment + self._num_busy], commands[environment + self._num_busy])
        for environment in new_games:
            _ask(self._standbys[environment], PREPARE)
        return failed

    def _answers(self, environment: int) -> bool:
        """Wait for an environment; False if its process ended or does not answer."""
        worker = self._workers[environment]
        try:
            while worker.num_asked:
                if not worker.control.recv(1):
                    return False
                worker.num_asked -= 1
        except ConnectionError:
            return False
        except BlockingIOError:
            self._rows.complain(environment, f"no answer for {PROCESS_STEP_SECONDS} s")
            return False
        return True

    def _start(self, environment: int) -> _Worker:
        self._rows.complaints[environment] = 0
        self._num_starts[environment] += 1
        ours, theirs = socket.socketpair()
        # A socket option instead of `settimeout`, which would poll the socket twice.
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", PROCESS_STEP_SECONDS, 0))
        order = Order(
            maker=self._maker,
            settings=self._settings,
            task=self.spec.task_names[self.task_ids[environment]],
            # Distinct over all slots of a run. A restarted process does not repeat the games of its predecessor.
            entropy=(self._seed, self._first_slot + environment, int(self._num_starts[environment])),
            environment=environment,
            memory=self._memory,
            control=theirs.fileno(),
            sizes=self._sizes,
        )
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-m", "herd.envs.processes.worker", order.to_json()],
                stdin=subprocess.DEVNULL,
                pass_fds=(self._memory, theirs.fileno()),
                # The game may be a child process of this one; together they form a group that can be killed.
                process_group=0,
                env=dict.fromkeys(_ONE_THREAD, "1") | os.environ | {"TMPDIR": self._folder.name},
            )
        return _Worker(process, ours)

    def _restart(self, environment: int, *, in_game: bool) -> None:
        """Replace a failed process by a new one with a new game."""
        failure = self._failure(environment)
        if not in_game or self._has_failed[environment]:
            raise failure
        _log.warning("%s; restarted with a new game", failure)
        self._has_failed[environment] = True
        self._workers[environment].control.close()
        self._workers[environment] = self._start(environment)
        _ask(self._workers[environment], self._buffer | RESET)
        if not self._answers(environment):
            raise self._failure(environment)

    def _failure(self, environment: int) -> BrokenEnvironmentError:
        """Return why an environment's process failed, after ending it."""
        code = _end(self._workers[environment].process)
        reason = self._rows.complaint(environment) or (f"ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}")
        task = self.spec.task_names[self.task_ids[environment]]
        return BrokenEnvironmentError(f"{task}, environment {self._first_slot + environment}: its process failed: {reason}")

    def _observe(self, game_reset: NDArray[np.bool_]) -> Observation:
        frames, words = self._rows.frames[self._buffer], self._rows.words[self._buffer]
        if self._stacks:
            older, newer = self._stacks
            newer[:, :-1] = older[:, 1:]
            newer[game_reset] = 0
            newer[:, -1] = frames
            self._stacks = [newer, older]
            frames = newer.reshape(self.num_environments, -1, *self.spec.frame_shape[:2])
        return Observation(frames, game_reset, words if words.size else None)


def _ask(worker: _Worker, command: int) -> None:
    worker.num_asked += 1
    with suppress(ConnectionError):  # the process ended; the wait for its answer notices this
        worker.control.send(bytes([command]))


def _end(process: subprocess.Popen[bytes]) -> int:
    """Return the exit code of a process whose socket is closed, after killing the rest of its group."""
    if process.returncode is None:  # otherwise its id, and that of its group, may have been reused
        with suppress(subprocess.TimeoutExpired):
            process.wait(CLOSE_SECONDS)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    return process.wait()
