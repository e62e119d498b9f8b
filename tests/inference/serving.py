"""The inference service in a thread with given weights, and policies that use it."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

import torch
from herd_inference.engine import Engine
from herd_inference.exchange import ActingHandler
from herd_inference.server import InferenceServer, Meters
from herd_inference.sessions import Batches, Sessions

from herd.acting.remote_policy import RemotePolicy
from herd.agent import Agent
from herd.components.suites import environment_spec
from herd.config.run import RunSettings
from herd.config.run_contract import run_layout
from herd.protocols.inference.client import Answer, InferenceClient
from herd.protocols.inference.rows import ActingLayout
from herd.rpc.serving import ServedRun
from herd.telemetry import Telemetry
from herd.transport import AddressInUse, Limits, Server
from herd.transport.context import Context
from tests.patience import patient

WAIT_SECONDS = patient(60.0)
CONTRACT = "c" * 64


class GivenWeights:
    """Stands in for the parameter server: the weights of every agent are available from the start."""

    rest_seconds = 1.0
    sockets: Sequence[Any] = ()

    def __init__(self, engine: Engine, agents: Sequence[Agent]) -> None:
        self.versions: list[tuple[int, int] | None] = []
        for number, agent in enumerate(agents):
            self.versions.append((1, 10 + number))
            engine.load(number, agent.state_dict(), (1, 10 + number))
        self._news = list(range(len(agents)))

    def poll(self) -> list[int]:
        news, self._news = self._news, []
        return news


class Served:
    """A running service: handler, engine and loop. ``restart`` forgets everything except the address, as a kill does."""

    def __init__(
        self,
        settings: RunSettings,
        agents: Sequence[Agent],
        *,
        context: Context,
        capacity: int = 64,
        batch_size: int = 8,
        deadline_seconds: float = 0.001,
        device: str = "cpu",
    ) -> None:
        self.settings = settings
        self._device = torch.device(device)
        self._agents = agents
        self._context = context
        self._sizes = (capacity, batch_size, deadline_seconds)
        self.layout = ActingLayout(run_layout(settings, environment_spec(settings.env)))
        self.endpoint = "tcp://127.0.0.1:*"
        self.sessions: Sessions
        self.telemetry: Telemetry
        self._thread: threading.Thread | None = None
        self.start()

    def start(self) -> None:
        capacity, batch_size, deadline_seconds = self._sizes
        self._stop = False
        batches = Batches(len(self._agents), batch_size=batch_size, deadline_seconds=deadline_seconds)
        self.sessions = Sessions(capacity, batches.discard)
        engine = Engine(
            self._agents[0],
            self.layout,
            num_agents=len(self._agents),
            num_places=capacity,
            max_batch=max(batch_size, capacity),
            device=self._device,
            precision=torch.float32,
            seed=11,
        )
        handler = ActingHandler(
            max_request=capacity,
            layout=self.layout,
            sessions=self.sessions,
            batches=batches,
        )
        self.telemetry = Telemetry("inference", self.settings.name)
        listening = threading.Event()

        def run() -> None:
            torch.set_num_threads(1)
            frame_bytes = 1 << 22
            with self._bound(frame_bytes) as router:
                self.endpoint = router.endpoint
                listening.set()
                server = InferenceServer(
                    router,
                    handler,
                    served=ServedRun("actor.inference_service", self.settings.name, CONTRACT, range(len(self._agents))),
                    batches=batches,
                    engine=engine,
                    weights=GivenWeights(engine, self._agents),  # type: ignore[arg-type]
                    meters=Meters(self.telemetry),
                    telemetry=self.telemetry,
                )
                server.run(self)  # type: ignore[arg-type]

        self._thread = threading.Thread(target=run, name="inference")
        self._thread.start()
        assert listening.wait(WAIT_SECONDS)

    def _bound(self, frame_bytes: int) -> Server:
        """Bind the service's port; retries, because ZeroMQ frees the port of a closed socket later, in its own thread."""
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            try:
                return self._context.server(self.endpoint, Limits(max_frame_bytes=frame_bytes))
            except AddressInUse:
                assert time.monotonic() < deadline, f"{self.endpoint} stays in use"
                time.sleep(0.01)

    def __bool__(self) -> bool:
        """Whether the service should stop."""
        return self._stop

    def end(self) -> None:
        self._stop = True
        assert self._thread is not None
        self._thread.join(WAIT_SECONDS)
        assert not self._thread.is_alive()

    def restart(self) -> None:
        self.end()
        self.start()

    def client(self, num_environments: int, *, group: int = 0, agent: int = 0, incarnation: int = 77) -> InferenceClient:
        return InferenceClient(
            self._context,
            self.endpoint,
            layout=self.layout.unroll,
            run_id=self.settings.name,
            agent=agent,
            contract=CONTRACT,
            actor_index=0,
            incarnation=incarnation,
            group=group,
            num_environments=num_environments,
        )


def remote_policy(client: InferenceClient, answers: list[Answer] | None = None) -> RemotePolicy:
    """A policy that waits as long as a test may."""

    def waiting(silent_seconds: float) -> None:
        assert silent_seconds < WAIT_SECONDS

    return RemotePolicy(client, stop=False, while_waiting=waiting, on_answer=(answers if answers is not None else []).append)
