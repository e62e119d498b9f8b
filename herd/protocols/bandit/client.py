"""An actor's side of the bandit exchange: it reports returns and requests temperatures, with a bounded wait at the start of games."""

from __future__ import annotations

import secrets
import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Literal

import numpy as np

from herd.protocols.bandit.messages import BANDIT, MAX_GAMES, ExchangeTemperatures, FinishedEpisode, StartingEpisode, Temperatures
from herd.protocols.unrolls.messages import MAX_EPISODES
from herd.rpc.codec import encode
from herd.rpc.envelope import MAX_HEADER_BYTES
from herd.rpc.request import WAIT_SECONDS, RetryingClient, RetryingRequest
from herd.transport import Limits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from random import Random

    from numpy.typing import NDArray

    from herd.transport import Frame
    from herd.transport.context import Context

FIRST_INVERSE_TEMPERATURE = 1.0
"""1/tau of an environment whose first game begins without an answer: tau = 1, the paper's baseline."""


class BanditClient(RetryingClient):
    """One temperature per environment, changed only between games.

    Call ``finish`` for each game that ended, ``poll`` once a step, and ``begin`` when the next games start. Reports and requests are
    sent together, up to ``MAX_GAMES`` in a message, and one message is under way at a time. Only ``begin`` waits, for at most
    ``timeout_seconds``; after a timeout it does not wait again until the service answers. The E environments are numbered 0..E-1 here,
    and from ``first_slot`` on in the run.

    Loses data: a request or an answer, when a connection breaks. The request is repeated under the same number, with doubling, jittered
    delays. If more than ``MAX_EPISODES`` reports wait for the service, the oldest are dropped and counted.
    """

    def __init__(
        self,
        context: Context,
        endpoint: str,
        *,
        run_id: str,
        contract: str,
        task_ids: Sequence[int],
        timeout_seconds: float,
        first_slot: int = 0,
        agent: int = 0,
        purpose: Literal["training", "evaluation"] = "training",
        clock: Callable[[], float] = time.monotonic,
        random: Random | None = None,
    ) -> None:
        """Start connecting.

        Args:
            context: the process's.
            endpoint: the bandit's.
            run_id: name of the run.
            contract: its digest.
            task_ids: [E], the task of each environment.
            timeout_seconds: longest wait of ``begin``.
            first_slot: the run's number of environment 0.
            agent: number of the agent in the run.
            purpose: ``evaluation`` draws from the best-valued region and reports nothing.
            clock: monotonic seconds.
            random: source of jitter.

        """
        self.inverse_temperatures: NDArray[np.float32] = np.full(len(task_ids), FIRST_INVERSE_TEMPERATURE, np.float32)
        """[E]: 1/tau of the current game of each environment; only ``begin`` changes it."""
        self.num_reused = 0
        """Games that began with the last temperature of their environment, because no answer had arrived."""
        self.num_dropped = 0
        """Reports dropped because too many were waiting."""
        self.waited_seconds = 0.0
        """Total time spent waiting in ``begin``."""
        self.is_silent = False
        """Whether a game began without an answer, and the service has not answered since."""
        self._task_ids = [int(task_id) for task_id in task_ids]
        self._first_slot = first_slot
        self._purpose = purpose
        self._timeout_seconds = timeout_seconds
        self._clock = clock
        client = f"{secrets.randbits(63):016x}"
        self._asking = partial(ExchangeTemperatures, run=run_id, agent=agent, contract=contract, client=client, purpose=purpose)
        # The queue holds the request under way and its repetitions, or the answers to them.
        self.socket = context.client(endpoint, f"bandit/{client}", Limits(max_frame_bytes=MAX_HEADER_BYTES, high_water_mark=4))
        self._request = RetryingRequest(self.socket, BANDIT, lambda _: self._under_way, renumbers=False, clock=clock, random=random)
        self._reused = [True] * len(task_ids)
        self._reports: deque[FinishedEpisode] = deque()
        self._unasked: dict[int, int] = {}  # environment -> game that needs a temperature and is not in a request yet
        self._awaited: dict[int, int] = {}  # environment -> game whose temperature is or will be requested
        self._answered: dict[int, float] = {}  # environment -> 1/tau of its next game
        self._under_way: list[Frame] = []
        self._num_under_way = 0

    @property
    def num_waiting(self) -> int:
        """Number of reports and requested temperatures that are not in a request yet."""
        return len(self._reports) + len(self._unasked)

    @property
    def num_unconfirmed(self) -> int:
        """Number of reports that the service may not have counted: those that wait, and those of the request under way."""
        return len(self._reports) + self._num_under_way

    @property
    def is_idle(self) -> bool:
        """Whether everything sent so far has been answered."""
        return not self._request.is_pending and not self.num_waiting

    def ask(self, environment: int, episode_id: int) -> None:
        """Request the temperature of a game that begins soon; the next ``poll`` or ``begin`` sends the request."""
        self._unasked[environment] = self._awaited[environment] = episode_id
        self._answered.pop(environment, None)

    def finish(self, environment: int, *, episode_id: int, episode_return: float, agent_steps: int) -> FinishedEpisode | None:
        """Report a game played with the current temperature, and request that of the next one, ``episode_id`` + 1.

        Returns:
            The report that was dropped to make room; the service has never received it.
        """
        dropped = None
        if self._purpose == "training":
            if len(self._reports) == MAX_EPISODES:
                dropped = self._reports.popleft()
                self.num_dropped += 1
            self._reports.append(
                FinishedEpisode(
                    task_id=self._task_ids[environment],
                    environment_slot=self._first_slot + environment,
                    episode_id=int(episode_id),
                    inverse_temperature=float(self.inverse_temperatures[environment]),
                    episode_return=float(episode_return),
                    agent_steps=int(agent_steps),
                    reused=self._reused[environment],
                )
            )
        self.ask(environment, int(episode_id) + 1)
        return dropped

    def poll(self) -> None:
        """Read answers and send what is due. Never blocks."""
        for message, _ in self._request.answers():
            if isinstance(message, Temperatures) and self._request.is_answer(message):
                self._request.answered()
                self._num_under_way = 0
                self.is_silent = False
                self._take(message)
        if not self._request.is_pending and self.num_waiting:
            self._request.begin()
            self._under_way = encode(self._next_request())
        self._request.advance()

    def begin(self, environments: Iterable[int]) -> None:
        """Apply the temperatures of games that start now, after a bounded wait for answers that are still missing."""
        environments = [int(environment) for environment in environments]
        self.poll()
        if any(environment in self._awaited for environment in environments):
            self._wait(environments)
        for environment in environments:
            answer = self._answered.pop(environment, None)
            self._reused[environment] = answer is None
            if answer is not None:
                self.inverse_temperatures[environment] = answer
            else:
                # The answer is no longer needed.
                self._awaited.pop(environment, None)
                self._unasked.pop(environment, None)
                self.num_reused += 1

    def drain(self, timeout_seconds: float) -> bool:
        """Withdraw waiting temperature requests, and wait at most this long until all reports are counted; return whether they are."""
        self._unasked.clear()
        deadline = self._clock() + timeout_seconds
        while not self.is_idle and (left := deadline - self._clock()) > 0:
            self.socket.wait(min(left, WAIT_SECONDS))
            self.poll()
        return self.is_idle

    def _wait(self, environments: Sequence[int]) -> None:
        if self.is_silent:
            return
        began = self._clock()
        deadline = began + self._timeout_seconds
        while any(environment in self._awaited for environment in environments):
            left = deadline - self._clock()
            if left <= 0 or self.refused is not None:
                self.is_silent = True
                break
            self.socket.wait(min(left, WAIT_SECONDS))
            self.poll()
        self.waited_seconds += self._clock() - began

    def _next_request(self) -> ExchangeTemperatures:
        finished = tuple(self._reports.popleft() for _ in range(min(len(self._reports), MAX_GAMES)))
        starting = tuple(
            StartingEpisode(
                task_id=self._task_ids[environment], environment_slot=self._first_slot + environment, episode_id=self._unasked[environment]
            )
            for environment in list(self._unasked)[:MAX_GAMES]
        )
        for episode in starting:
            del self._unasked[episode.environment_slot - self._first_slot]
        self._num_under_way = len(finished)
        return self._asking(id=self._request.request_id, finished=finished, starting=starting)

    def _take(self, message: Temperatures) -> None:
        for handed in message.handed:
            environment = handed.environment_slot - self._first_slot
            if self._awaited.get(environment) == handed.episode_id:
                self._answered[environment] = handed.inverse_temperature
        # A temperature that was requested and is not in the answer will not come: do not wait for it.
        for environment in [environment for environment in self._awaited if environment not in self._unasked]:
            del self._awaited[environment]
