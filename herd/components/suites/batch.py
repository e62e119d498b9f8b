"""A batch of environments that are played one by one, all in this process or each in its own.

Processes are for environments that cannot be stepped in a thread: DeepMind Lab holds the interpreter's lock all the time, ViZDoom runs a
process per game, and a user's own environment may be slow. A step is one byte to every process and one byte back. Observations, rewards and
ends are in shared memory without a name, which is freed with the last process. Only numbers are read from it.

If games take long to start, each environment has a second process that starts the next game during the current one (``standby``).

An environment that fails in the middle of a game, or does not answer in time, is replaced by a new one; the others play on. Its step
becomes one that only starts the next game (``valid`` False). So the rows before it bootstrap from the last observation as in a truncated
game, and the failed game is not reported. An environment that fails at the start of a game is replaced likewise. One that fails
``MAX_FAILURES`` times without finishing a game is a `BrokenEnvironmentError`.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import struct
import subprocess
from contextlib import suppress
from mmap import mmap
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from herd.components.suites import PROCESS_STEP_SECONDS
from herd.components.suites.api import (
    BrokenEnvironmentError,
    FrameStacks,
    Games,
    Observation,
    Transition,
    UnknownTaskError,
    checked_actions,
)
from herd.components.suites.reading import FRAME, MASK, VECTOR, WORDS
from herd.components.suites.solo import PREPARE, RESET, Player, described, make_solo, rows_type
from herd.components.user_code import FAILURES, PYTHON
from herd.contract.unroll import LARGEST_RETURN

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from herd.components.suites import SuiteSettings
    from herd.components.suites.api import Slots
    from herd.contract.spaces import EnvSpec

CLOSE_SECONDS = 10.0
MAX_FAILURES = 3
"""Failures of one environment in a row that are no accident: more replacements would only repeat them."""
_ONE_THREAD = ("LP_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
"""Mesa's software renderer, OpenMP and numpy would start a thread per CPU in every process."""
_log = logging.getLogger(__name__)


class SoloEnvironments:
    """A ``BatchedEnvironment`` in which each environment is a `SoloEnvironment`.

    ``maker``: ``module:name`` of what creates one from the settings and the name of a task. ``processes``: each environment has a process
    of its own, and at most ``num_threads`` of them step at a time. ``standby``: two processes play the games of an environment in turn, and
    each starts its next game while the other plays. ``step_seconds``: longest wait for a process.
    """

    def __init__(
        self,
        settings: SuiteSettings,
        spec: EnvSpec,
        slots: Slots,
        maker: str,
        *,
        processes: bool = True,
        standby: bool = False,
        step_seconds: float = PROCESS_STEP_SECONDS,
    ) -> None:
        self.spec = spec
        self.num_environments = num_environments = slots.num_environments
        self.task_ids = slots.task_ids(spec)
        self._settings, self._maker, self._slots = settings, maker, slots
        self._step_seconds = step_seconds
        self._num_busy = min(slots.num_threads, num_environments)
        self._sizes: dict[str, Any] = {
            "num_environments": num_environments,
            "frame_shape": spec.frame_shape,
            "vector_size": spec.vector_size,
            "num_words": spec.instruction_length,
            "action": spec.actions.dtype,
            "action_shape": spec.actions.shape,
            "mask_size": spec.actions.mask_size,
        }
        layout = rows_type(**self._sizes)
        self._rows = np.zeros(1, layout)
        self._memory = -1
        # Files that killed engines leave behind are removed with it.
        self._folder = TemporaryDirectory(prefix="herd-environments-", ignore_cleanup_errors=True) if processes else None
        if processes:
            self._memory = os.memfd_create("herd-environments")
            os.ftruncate(self._memory, layout.itemsize)
            self._rows = np.frombuffer(mmap(self._memory, 0), layout, count=1)
        self._buffer = 0
        # With one frame in a stack, the memory is the stack.
        self._stacks = FrameStacks(spec, num_environments) if spec.frame_stack > 1 else None
        self._games = Games(self.task_ids)
        self._num_starts = np.zeros(num_environments, np.int64)
        self._num_failures = np.zeros(num_environments, np.int64)
        self._players: list[Seat] = []
        self._standbys: list[Seat] = []
        try:
            for environment in range(num_environments):
                self._players.append(self._start(environment))
                if standby:
                    self._standbys.append(self._start(environment))
        except BaseException:
            self.close()
            raise

    def reset(self) -> Observation:
        """Start a new game in every environment. BrokenEnvironmentError if that fails."""
        everywhere = np.ones(self.num_environments, np.bool_)
        for environment in self._run(everywhere):
            self._restart(environment)
        self._games.begin()
        return self._observe(everywhere)

    def step(self, actions: NDArray[Any]) -> Transition:
        """Step all games and wait for all of them; games that are over are restarted instead. BrokenEnvironmentError: see above."""
        rows = self._rows[0]
        rows["actions"] = checked_actions(actions, num_environments=self.num_environments, space=self.spec.actions)
        starting = self._games.over
        if failed := self._run(starting):
            starting = starting.copy()
            for environment in failed:
                self._restart(environment)
            starting[failed] = True
        valid = ~starting
        rewards = np.where(valid, rows["rewards"], 0.0)
        self._refuse_non_finite(rewards, "a reward")
        if (large := np.abs(rewards) > LARGEST_RETURN).any():
            first = int(large.argmax())
            raise self._too_large(self.task_ids[first], f"returned the reward {rewards[first]:g}")
        terminated = rows["terminated"] & valid
        truncated = rows["truncated"] & valid & ~terminated
        finished = self._games.count(starting, rewards, terminated | truncated)
        for game in finished:
            if abs(game.episode_return) > LARGEST_RETURN:
                raise self._too_large(game.task_id, f"ended a game with the return {game.episode_return:g}")
        self._num_failures[self._games.over] = 0
        return Transition(self._observe(starting), rewards.astype(np.float32), terminated, truncated, valid, finished)

    def solo(self, environment: int) -> Any:
        """Return the `SoloEnvironment` that is played at present, in this process."""
        return self._players[environment].player.environment

    def close(self) -> None:
        """Close every environment, and wait for the end of its process."""
        seats = self._players + self._standbys
        for seat in seats:
            seat.close()
        for seat in seats:
            seat.end()
        self._players, self._standbys = [], []
        if self._folder is not None:
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
            self._players[environment], self._standbys[environment] = self._standbys[environment], self._players[environment]
        failed = []
        for environment in range(self._num_busy):
            self._players[environment].ask(commands[environment])
            self._slots.beat()
        for environment in range(self.num_environments):
            if not self._players[environment].answers():
                failed.append(environment)
            self._slots.beat()
            if environment + self._num_busy < self.num_environments:
                self._players[environment + self._num_busy].ask(commands[environment + self._num_busy])
        for environment in new_games:
            self._standbys[environment].ask(PREPARE)
        return failed

    def _start(self, environment: int) -> Seat:
        self._num_starts[environment] += 1
        self._rows["complaints"][0, environment] = b""
        task = self.spec.task_names[self.task_ids[environment]]
        # Distinct over all slots of a run. A restarted process does not repeat the games of its predecessor.
        entropy = (self._slots.seed, self._slots.first_slot + environment, int(self._num_starts[environment]))
        kind = type(self._settings)
        making = (self._maker, f"{kind.__module__}:{kind.__qualname__}", self._settings.model_dump_json(), task)
        if self._folder is None:
            player = Player(make_solo(*making), self._rows, environment, entropy)
            return Seat(player, raise_errors=self._slots.raise_errors)
        order = {"environment": making, "entropy": entropy, "index": environment, "sizes": self._sizes, "memory": self._memory}
        order["close_seconds"] = CLOSE_SECONDS
        return ProcessSeat(order, self._folder.name, self._step_seconds)

    def _restart(self, environment: int) -> None:
        """Replace a failed environment by a new one with a new game; BrokenEnvironmentError if it has failed too often."""
        while True:
            failure = self._failure(environment)
            self._num_failures[environment] += 1
            if self._num_failures[environment] >= MAX_FAILURES:
                raise failure
            _log.warning("%s; restarted with a new game", failure)
            self._slots.replaced()
            try:
                player = self._players[environment] = self._start(environment)
            except UnknownTaskError as error:
                raise BrokenEnvironmentError(str(error)) from error
            player.ask(self._buffer | RESET)
            is_ready = player.answers()
            self._slots.beat()
            if is_ready:
                return

    def _failure(self, environment: int) -> BrokenEnvironmentError:
        """Return why an environment failed, after ending it."""
        player = self._players[environment]
        ended = player.end()
        complaint: bytes = self._rows["complaints"][0, environment]
        task = self.spec.task_names[self.task_ids[environment]]
        reason = (complaint.decode(errors="ignore") or ended).removeprefix(f"{task}: ")
        failure = BrokenEnvironmentError(f"{task}, environment {self._slots.first_slot + environment}: {player.failed}: {reason}")
        failure.__cause__ = player.error
        return failure

    def _observe(self, game_reset: NDArray[np.bool_]) -> Observation:
        frames, vectors, words, masks = (self._rows[name][0, self._buffer] for name in (FRAME, VECTOR, WORDS, MASK))
        self._refuse_non_finite(vectors, "an observation")
        stacks = frames if self._stacks is None else self._stacks.add(frames, game_reset)
        return Observation(stacks, game_reset, *(each if each.size else None for each in (words, vectors, masks)))

    def _refuse_non_finite(self, numbers: NDArray[Any], what: str) -> None:
        if not np.isfinite(numbers).all():
            [first, *_] = np.flatnonzero(~np.isfinite(numbers).reshape(self.num_environments, -1).all(axis=1))
            raise BrokenEnvironmentError(f"{self.spec.task_names[self.task_ids[first]]} returned {what} that is not a finite number")

    def _too_large(self, task_id: int, what: str) -> BrokenEnvironmentError:
        advice = f"at most {LARGEST_RETURN:g} can be used, scale the rewards"
        return BrokenEnvironmentError(f"{self.spec.task_names[task_id]} {what}: {advice}")


class Seat:
    """Where one environment is played: in this process."""

    failed = "it failed"
    error: BaseException | None = None
    """What the environment raised."""

    def __init__(self, player: Player, *, raise_errors: bool) -> None:
        self.player = player
        self._raise_errors = raise_errors

    def ask(self, command: int) -> None:
        """Give a command of `Player`, without waiting for the result."""
        try:
            self.player.carry_out(command)
        except FAILURES as error:
            if self._raise_errors:
                raise
            self.error = error

    def answers(self) -> bool:
        """Wait until all commands are carried out; False if the environment failed, or its process ended or does not answer."""
        return self.error is None

    def close(self) -> None:
        """Ask the environment to end."""
        self.player.close()

    def end(self) -> str:
        """End the environment for certain, and return why it ended."""
        if self.error is None:
            return ""
        with suppress(Exception):  # after an error, nothing is expected of it
            self.player.close()
        return described(self.error)


class ProcessSeat(Seat):
    """Where one environment is played: in a process of its own."""

    failed = "its process failed"

    def __init__(self, order: dict[str, Any], folder: str, step_seconds: float) -> None:
        self._control, theirs = socket.socketpair()
        # A socket option instead of `settimeout`, which would poll the socket twice.
        seconds, rest = divmod(step_seconds, 1)
        self._control.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", int(seconds), int(rest * 1e6)))
        self._step_seconds = step_seconds
        self._num_asked = 0
        self._problem = ""
        with theirs:
            self.process = subprocess.Popen(
                [*PYTHON, "-m", "herd.components.suites.worker", json.dumps(order | {"control": theirs.fileno()})],
                stdin=subprocess.DEVNULL,
                pass_fds=(order["memory"], theirs.fileno()),
                # The game may be a child process of this one; together they form a group that can be killed.
                process_group=0,
                env=dict.fromkeys(_ONE_THREAD, "1") | os.environ | {"TMPDIR": folder},
            )

    def ask(self, command: int) -> None:
        """Send the command."""
        self._num_asked += 1
        with suppress(ConnectionError):  # the process ended; the wait for its answer notices this
            self._control.send(bytes([command]))

    def answers(self) -> bool:
        """See `Seat`; the wait is bounded."""
        try:
            while self._num_asked:
                if not self._control.recv(1):
                    return False
                self._num_asked -= 1
        except ConnectionError:
            return False
        except BlockingIOError:
            self._problem = f"no answer for {self._step_seconds:g} s"
            self._kill()
            return False
        return True

    def close(self) -> None:
        """Close the socket, whereupon the process ends."""
        self._control.close()

    def end(self) -> str:
        """Wait for the process, then kill what is left of its group."""
        self._control.close()
        if self.process.returncode is None:  # otherwise its id, and that of its group, may have been reused
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(CLOSE_SECONDS)
            self._kill()
        code = self.process.wait()
        return self._problem or (f"ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}")

    def _kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
