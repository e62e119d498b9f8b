"""Parameter servers of a tree inside the test process. Each has its own context and sockets, and works only when the test drives it."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

from herd_paramserver.server import ParameterServer, assemble
from herd_paramserver.store import Version

from herd.components.suites import environment_spec
from herd.config.run import RunSettings
from herd.config.run_contract import contract_digest
from herd.protocols.weights.client import WeightsPublisher
from herd.protocols.weights.messages import WEIGHTS, GetWeights, LeaseIndex
from herd.rpc.codec import encode
from herd.rpc.envelope import Message
from herd.service.identity import Endpoint, Identity
from herd.telemetry import Telemetry
from herd.transport import Limits
from herd.transport.context import Context, Poller
from tests.patience import patient

RUN = "pong"
SECONDS = patient(120.0)
"""Deadline for things that take a fraction of a second on an idle machine."""
ASK_AGAIN_SECONDS = 2.0
"""Shorter than any deadline. Messages sent before all connections of a tree are made are lost, as usual, so clients ask again."""
CONTRACT = contract_digest(RunSettings(), environment_spec(RunSettings().env))


class Node:
    """One parameter server. When killed, it vanishes as a process does: messages that it had queued are not sent."""

    def __init__(self, *, upstream: str | None = None, port: int = 0, contract: str = CONTRACT, agents: int = 1) -> None:
        self.upstream = upstream
        identity = Identity(listen=Endpoint(port=port), addresses={} if upstream is None else {"paramserver": (upstream,)})
        self.settings = RunSettings(name=RUN, run_dir=Path("unused"), agents=agents)
        self.telemetry = Telemetry("paramserver", RUN)
        self.context = Context()
        self._sockets = ExitStack()
        self.server: ParameterServer = assemble(
            self.settings, identity, contract=contract, context=self.context, telemetry=self.telemetry, sockets=self._sockets
        )
        self.endpoint = self.server.endpoint
        self.is_alive = True
        self.seen: list[Version] = []

    @property
    def port(self) -> int:
        return int(self.endpoint.rpartition(":")[2])

    @property
    def version(self) -> Version | None:
        visible = self.server._stores[0].visible
        return None if visible is None else visible.version

    @property
    def versions(self) -> list[Version | None]:
        """The visible version of each agent."""
        return [None if store.visible is None else store.visible.version for store in self.server._stores]

    @property
    def readiness(self) -> str:
        """The answer of /readyz."""
        return self.telemetry._readyz().body.decode()

    def metric(self, name: str) -> float:
        lines = self.telemetry.exposition().decode().splitlines()
        return next(float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"{name} "))

    def turn(self) -> None:
        self.server.turn()
        if self.settings.agents == 1 and self.version is not None and self.version not in self.seen[-1:]:
            assert not self.seen or self.version > self.seen[-1], "versions went back"
            self.seen.append(self.version)

    def kill(self) -> None:
        self.is_alive = False
        self._sockets.close()
        self.context.destroy(linger=0)

    def close(self) -> None:
        if self.is_alive:
            self.kill()


class Asker:
    """A client controlled by hand, which names what it has in every request."""

    def __init__(self, tree: Tree, node: Node) -> None:
        self._tree = tree
        self._request_id = 10
        self.dealer = tree.context.client(node.endpoint, f"test/{secrets.token_hex(4)}", Limits(max_frame_bytes=1 << 26))

    def send(self, message: Message, *payloads: bytes) -> None:
        self._tree.until(lambda: self.dealer.send([*encode(message), *payloads]), "a connection")

    def receive(self) -> tuple[Message, list[memoryview]]:
        found: list[list[memoryview]] = []

        def received() -> bool:
            if (frames := self.dealer.receive()) is not None:
                found.append(frames)
            return bool(found)

        self._tree.until(received, "an answer")
        return WEIGHTS.decode(found[0][0]), found[0][1:]

    def ask(self, message: Message) -> Message:
        self.send(message)
        return self.receive()[0]

    def lease(self, holder: str, index: int | None = None) -> Message:
        """Ask for an index, as clients do with a new request id each time, until it is answered."""
        ask_at = 0.0
        answers: list[Message] = []

        def answered() -> bool:
            nonlocal ask_at
            while (frames := self.dealer.receive()) is not None:
                answers.append(WEIGHTS.decode(frames[0]))
            if not answers and time.monotonic() >= ask_at:
                request = LeaseIndex(id=self._request_id + 1, run=RUN, client=holder, place=None if index is None else (0, index))
                if self.dealer.send(encode(request)):
                    self._request_id += 1
                    ask_at = time.monotonic() + ASK_AGAIN_SECONDS
            return bool(answers)

        self._tree.until(answered, "an answer about the index")
        return answers[0]

    def get(self, have: tuple[int, int] | None = None, agent: int = 0) -> tuple[Message, bytes]:
        self.send(GetWeights(id=1, run=RUN, agent=agent, contract=CONTRACT, have=have))
        message, frames = self.receive()
        return message, b"".join(frames)


class Tree:
    """All nodes and clients of a test. A node removed from ``nodes`` stands still, like a stopped process."""

    def __init__(self) -> None:
        self.context: Context = Context()
        self.nodes: list[Node] = []
        self._clients = ExitStack()

    def node(self, parent: Node | str | None = None, *, port: int = 0, contract: str = CONTRACT, agents: int = 1) -> Node:
        upstream = parent.endpoint if isinstance(parent, Node) else parent
        self.nodes.append(Node(upstream=upstream, port=port, contract=contract, agents=agents))
        self._clients.callback(self.nodes[-1].close)
        return self.nodes[-1]

    def servers(self, num_replicas: int, *, agents: int = 1) -> list[Node]:
        """A root and its replicas."""
        root = self.node(agents=agents)
        return [root, *(self.node(root, agents=agents) for _ in range(num_replicas))]

    def kill(self, node: Node) -> None:
        self.nodes.remove(node)
        node.kill()

    def asker(self, node: Node) -> Asker:
        made = Asker(self, node)
        self._clients.callback(made.dealer.close)
        return made

    def publisher(self, node: Node, agent: int = 0) -> WeightsPublisher:
        made = WeightsPublisher(self.context, node.endpoint, run_id=RUN, agent=agent, contract=CONTRACT)
        self._clients.callback(made.close)
        return made

    def publish(self, publisher: WeightsPublisher, lineage: int, updates: int, payload: bytes, *, index: int = 0, count: int = 1) -> None:
        publisher.publish(lineage, updates, index, count, payload)
        self.until(lambda: publisher.confirmed, f"({lineage}, {updates}) at the root", publisher.poll)

    def until(self, condition: Callable[[], bool], what: str, *pumps: Callable[[], object]) -> None:
        """Drive every node until the condition holds."""
        deadline = time.monotonic() + SECONDS
        poller = Poller(*(socket for node in self.nodes for socket in node.server.sockets))
        while not condition():
            assert time.monotonic() < deadline, f"not within {SECONDS:g} s: {what}"
            for pump in pumps:
                pump()
            poller.poll(0.005)
            for node in self.nodes:
                node.turn()

    def close(self) -> None:
        self._clients.close()
        self.context.destroy(linger=0)


def made_tree() -> Iterator[Tree]:
    """Yields a tree and closes it; used by fixtures."""
    tree = Tree()
    yield tree
    tree.close()
