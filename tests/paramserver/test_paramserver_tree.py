"""Roots and replicas with real sockets over loopback; tests/system/test_faults.py kills and stops real processes."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Iterator
from functools import partial

import pytest

from herd.protocols.weights.client import PAUSE_SECONDS
from herd.protocols.weights.messages import IndexLeased, LeaseIndex, NotModified, ReleaseIndex, Weights
from herd.rpc.codec import payload_digest
from herd.rpc.envelope import Refused
from tests.paramserver.nodes import RUN, Asker, Node, Tree, made_tree

REQUESTS = 'herd_paramserver_requests_total{kind="%s"}'
LEASED = 'herd_paramserver_agent_leased_indices{agent="0"}'


@pytest.fixture
def tree() -> Iterator[Tree]:
    yield from made_tree()


def refuses_replicas(node: Node) -> bool:
    """Whether the parent of ``node`` has answered that it is a replica."""
    return "is itself a replica" in node.readiness


def all_serve(nodes: list[Node], version: tuple[int, int]) -> bool:
    return all(node.version == version for node in nodes)


def test_weights_reach_every_replica_unchanged(tree: Tree) -> None:
    nodes = tree.servers(2)
    publisher = tree.publisher(nodes[0])
    for updates in (1, 2, 7):
        payload = secrets.token_bytes(200_000)
        tree.publish(publisher, 1, updates, payload)
        tree.until(partial(all_serve, nodes, (1, updates)), "the version at every node")
        for node in nodes:
            message, got = tree.asker(node).get((1, updates - 1))
            assert message == Weights(id=1, lineage=1, updates=updates, digests=(payload_digest(payload),))
            assert got == payload
    for node in nodes:
        assert node.seen == [(1, 1), (1, 2), (1, 7)]
        assert node.metric("herd_weights_updates") == 7
        assert node.readiness.startswith("ok")
    # All clients get the memory that came from the parent.
    held = nodes[2].server._stores[0].visible
    again = nodes[2].server._stores[0].newer_than(None)
    assert held is again


def test_requests_to_the_parent_do_not_grow_with_the_clients(tree: Tree) -> None:
    root, replica = tree.servers(1)
    tree.publish(tree.publisher(root), 1, 1, b"weights")
    tree.until(lambda: replica.version == (1, 1), "the version")
    began, asked = time.monotonic(), root.metric(REQUESTS % "get_weights")
    clients = [tree.asker(replica) for _ in range(20)]
    for _ in range(20):
        for client in clients:
            assert client.get((1, 1))[0] == NotModified(id=1, held=(1, 1))
    assert replica.metric(REQUESTS % "get_weights") == 400
    assert root.metric(REQUESTS % "get_weights") - asked <= (time.monotonic() - began) / PAUSE_SECONDS + 1


def test_replicas_keep_their_weights_while_the_parent_is_replaced(tree: Tree) -> None:
    root, first, second = tree.servers(2)
    publisher = tree.publisher(root)
    tree.publish(publisher, 1, 500, b"old")
    tree.until(lambda: all_serve([root, first, second], (1, 500)), "the version everywhere")
    tree.kill(root)
    tree.until(lambda: re.search(r"answered [1-9]\d*\.\d s ago", first.readiness) is not None, "the age of the last answer")
    assert first.readiness.startswith("ok: serves version (1, 500), received ")
    assert first.metric("herd_paramserver_upstream_silence_seconds") > 0.9
    assert first.metric("herd_weights_age_seconds") > 0.9
    assert tree.asker(first).get()[1] == b"old"

    root = tree.node(port=root.port)
    tree.until(lambda: first.readiness.endswith("and has no weights\n"), "the empty root's answer")
    for node in (first, second):
        assert tree.asker(node).get()[1] == b"old"
    # The learner republishes its current version, and then a newer one.
    tree.publish(publisher, 1, 501, b"new")
    tree.until(lambda: all_serve([root, first, second], (1, 501)), "the next version", publisher.poll)
    assert first.seen == second.seen == [(1, 500), (1, 501)]


def leased(asker: Asker, holder: str, index: int | None = None) -> int:
    answer = asker.lease(holder, index)
    assert isinstance(answer, IndexLeased)
    assert answer.lease_seconds == 30.0  # the root's setting
    return answer.place[1]


def test_indices_are_leased_by_the_root_through_every_replica(tree: Tree) -> None:
    root, first, second = tree.servers(2)
    below, between, above = (tree.asker(node) for node in (second, first, root))
    assert leased(below, "a") == 0
    assert leased(between, "b") == 1
    assert leased(above, "c") == 2
    assert leased(below, "a", 0) == 0  # renewed through the other node
    assert root.metric(LEASED) == 3
    below.send(ReleaseIndex(run=RUN, client="a"))
    tree.until(lambda: root.metric(LEASED) == 2, "the released index")
    assert leased(between, "d") == 0
    assert root.metric(REQUESTS % "lease_index") >= 5
    assert root.metric(REQUESTS % "release_index") == 1


def test_each_agents_weights_are_followed_independently(tree: Tree) -> None:
    """R30 and R40 of docs/messaging.md."""
    nodes = tree.servers(2, agents=2)
    second = nodes[-1]
    publishers = [tree.publisher(nodes[0], agent) for agent in range(2)]
    tree.publish(publishers[1], 1, 7, b"second")
    tree.until(lambda: second.versions == [None, (1, 7)], "the weights of agent 1")
    tree.until(lambda: second.readiness.startswith("ok"), "readiness: nobody above has weights of agent 0")
    assert "agent 0: no weights yet" in second.readiness
    tree.publish(publishers[0], 3, 2, b"first")
    tree.publish(publishers[1], 2, 0, b"second, resumed")
    tree.until(lambda: all(node.versions == [(3, 2), (2, 0)] for node in nodes), "both agents' versions at every node")
    for agent, payload in enumerate((b"first", b"second, resumed")):
        assert tree.asker(second).get(agent=agent)[1] == payload
    assert second.metric('herd_paramserver_agent_lineage{agent="0"}') == 3
    assert second.metric('herd_paramserver_agent_updates{agent="1"}') == 0
    refused, _ = tree.asker(second).get(agent=2)
    assert isinstance(refused, Refused)


def test_a_parent_of_another_contract_is_reported_in_readiness(tree: Tree) -> None:
    other = tree.node(contract="d" * 64)
    replica = tree.node(other)
    tree.until(lambda: "refuses this replica" in replica.readiness, "the refusal")
    assert replica.readiness.startswith("not ready: no weights yet; the parent ")
    assert "start all processes with the same env, network, " in replica.readiness


def test_a_replica_of_a_replica_says_that_it_needs_the_root(tree: Tree) -> None:
    """Also the way in which a ring, or a replica that is its own parent, is noticed."""
    _, replica = tree.servers(1)
    below = tree.node(replica)
    probe = tree.node()
    tree.kill(probe)
    itself = tree.node(f"tcp://localhost:{probe.port}", port=probe.port)
    for node, parent in ((below, replica.upstream), (itself, itself.upstream)):
        tree.until(partial(refuses_replicas, node), "the refusal")
        assert node.readiness.rstrip().endswith(f"of {parent}: give --paramserver the address of the root")
    client = tree.asker(itself)
    client.send(LeaseIndex(id=7, run=RUN, client="holder", place=None))
    assert isinstance(client.receive()[0], Refused)
    assert itself.metric('herd_wire_refused_messages_total{reason="other"}') >= 2
