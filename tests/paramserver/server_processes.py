"""Parameter servers in separate processes, and clients controlled by hand."""

from __future__ import annotations

import hashlib
import urllib.error
import urllib.request
from pathlib import Path

from herd.config.run import RunSettings
from herd.config.services import ParamserverSettings
from herd.protocols.weights.client import WeightsClient
from herd.protocols.weights.messages import WEIGHTS, GetWeights, PublishSlice
from herd.rpc.codec import encode
from herd.rpc.envelope import Message
from herd.service.identity import Endpoint, Identity
from tests.server_process import ANSWER_SECONDS, AskingClient, ServerProcess


class Server(ServerProcess):
    def __init__(self, run_dir: Path, *, port: int = 0, upstream: str | None = None) -> None:
        own = ParamserverSettings(index_lease_seconds=2.0)
        identity = Identity(listen=Endpoint(port=port), addresses={} if upstream is None else {"paramserver": (upstream,)})
        super().__init__("paramserver", RunSettings(name="pong", run_dir=run_dir, paramserver=own), identity)

    def readiness(self) -> str:
        """The answer of /readyz, whatever its status."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/readyz", timeout=ANSWER_SECONDS) as response:
                return str(response.read().decode())
        except urllib.error.HTTPError as error:
            with error:
                return error.read().decode()


class Client(AskingClient):
    conversation = WEIGHTS

    """A client that can also send the two messages about weights."""

    def get(self, have: tuple[int, int] | None = None, *, run_id: str = "pong") -> tuple[Message, list[memoryview]]:
        self.send(*encode(GetWeights(id=1, run=run_id, agent=0, contract=self.server.contract, have=have)))
        return self.receive()

    def publish(self, lineage: int, updates: int, payload: bytes, *, index: int = 0, count: int = 1) -> Message:
        digest = hashlib.sha256(payload).hexdigest()
        message = PublishSlice(
            run="pong", agent=0, contract=self.server.contract, lineage=lineage, updates=updates, index=index, count=count, digest=digest
        )
        return self.ask(message, payload)


def get_weights(client: WeightsClient, have: tuple[int, int] | None) -> tuple[int, int, bytes]:
    client.request(have)
    weights = client.poll(ANSWER_SECONDS)
    assert weights is not None
    return weights.lineage, weights.updates, b"".join(weights.slices)
