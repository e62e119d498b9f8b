"""How a client reacts to failed handshakes; there are no sockets, and the test sets the clock."""

from __future__ import annotations

from random import Random

import pytest

from herd.transport.handshakes import (
    FIRST_DELAY_SECONDS,
    FIRST_VERSION_SECONDS,
    LONGEST_DELAY_SECONDS,
    LONGEST_VERSION_SECONDS,
    PATIENCE_SECONDS,
    ClientConnection,
    Handshake,
)
from tests.clock import Clock

ENDPOINT = "tcp://learner-0:7100"
FAILURES = (Handshake.REFUSED, Handshake.MECHANISM, Handshake.CRYPTOGRAPHIC, Handshake.PROTOCOL, Handshake.CLOSED)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def connection(clock: Clock) -> ClientConnection:
    return ClientConnection(ENDPOINT, key_name="client-a", clock=clock, jitter=Random(1))


def seconds_until_it_connects(connection: ClientConnection, clock: Clock) -> float:
    started = clock.now
    while not connection.must_connect():
        clock.now += 0.001
        assert clock.now < started + 2 * LONGEST_DELAY_SECONDS, "it never connects again"
    assert not connection.must_connect()  # only once
    return clock.now - started


@pytest.mark.parametrize("failure", FAILURES)
def test_a_failed_handshake_disconnects_and_doubles_the_delay(connection: ClientConnection, clock: Clock, failure: Handshake) -> None:
    assert not connection.must_connect()  # the socket makes the first attempt itself
    delay = FIRST_DELAY_SECONDS
    for _ in range(10):
        assert connection.on_handshake(failure)
        assert not connection.on_handshake(Handshake.DISCONNECTED)
        assert 0.5 * delay <= seconds_until_it_connects(connection, clock) <= 1.5 * delay + 0.002
        delay = min(2 * delay, LONGEST_DELAY_SECONDS)
    assert not connection.on_handshake(Handshake.SUCCEEDED)
    assert connection.connected
    assert connection.trouble is None
    connection.on_handshake(failure)
    assert seconds_until_it_connects(connection, clock) <= 1.5 * FIRST_DELAY_SECONDS + 0.002


def test_refused_clients_reconnect_at_different_times(clock: Clock) -> None:
    connections = [ClientConnection(ENDPOINT, key_name=None, clock=clock) for _ in range(20)]
    for connection in connections:
        connection.on_handshake(Handshake.REFUSED)
    clock.now += FIRST_DELAY_SECONDS
    assert 0 < sum(connection.must_connect() for connection in connections) < 20


@pytest.mark.parametrize(
    ("failure", "key_name", "words"),
    [
        (Handshake.REFUSED, "client-a", ["does not know this client's key (client-a)", "security.curve_client"]),
        (Handshake.MECHANISM, "client-a", ["this client has CURVE", "has not"]),
        (Handshake.MECHANISM, None, ["this client has no CURVE", "demands it", "security.curve_keys"]),
        (Handshake.CRYPTOGRAPHIC, "client-a", ["server.public"]),
        (Handshake.PROTOCOL, None, ["security.curve_keys", "address"]),
    ],
)
def test_a_failed_handshake_names_what_to_check(clock: Clock, failure: Handshake, key_name: str | None, words: list[str]) -> None:
    connection = ClientConnection(ENDPOINT, key_name=key_name, clock=clock)
    connection.on_handshake(failure)
    trouble = connection.trouble
    assert trouble is not None
    assert "\n" not in trouble
    for word in (ENDPOINT, *words):
        assert word in trouble


def test_handshakes_closed_once_or_twice_are_not_reported(connection: ClientConnection) -> None:
    connection.on_handshake(Handshake.CLOSED)
    connection.on_handshake(Handshake.CLOSED)
    assert connection.trouble is None
    connection.on_handshake(Handshake.CLOSED)
    assert "server.public" in (connection.trouble or "")


def test_an_unreachable_server_is_reported_after_some_time(connection: ClientConnection, clock: Clock) -> None:
    clock.now += PATIENCE_SECONDS - 0.1
    assert connection.trouble is None
    clock.now += 0.1
    assert "is it running" in (connection.trouble or "")
    connection.on_handshake(Handshake.SUCCEEDED)
    clock.now += 1000.0
    assert connection.trouble is None
    connection.on_handshake(Handshake.DISCONNECTED)
    assert not connection.connected
    assert connection.trouble is None
    clock.now += PATIENCE_SECONDS
    assert "is it running" in (connection.trouble or "")


def test_switching_the_ip_version_backs_off(clock: Clock) -> None:
    connection = ClientConnection(ENDPOINT, key_name=None, is_name=True, clock=clock)
    wait = FIRST_VERSION_SECONDS
    for _ in range(8):
        clock.now += wait - 0.001
        assert not connection.must_try_other_version()
        clock.now += 0.002
        assert connection.must_try_other_version()
        assert not connection.must_try_other_version()  # only once
        wait = min(2 * wait, LONGEST_VERSION_SECONDS)
    # If the server answers, the handshake may take its time, and so may the pause after a failed one.
    connection.on_handshake(Handshake.BEGUN)
    clock.now += 1000.0
    assert not connection.must_try_other_version()
    connection.on_handshake(Handshake.CLOSED)
    connection.on_handshake(Handshake.DISCONNECTED)
    clock.now += 1000.0
    assert not connection.must_try_other_version()
    assert connection.must_connect()
    clock.now += FIRST_VERSION_SECONDS + 0.001
    assert connection.must_try_other_version()


def test_a_broken_connection_retries_its_ip_version_first(clock: Clock) -> None:
    connection = ClientConnection(ENDPOINT, key_name=None, is_name=True, clock=clock)
    for handshake in (Handshake.BEGUN, Handshake.SUCCEEDED):
        connection.on_handshake(handshake)
    clock.now += 1000.0
    connection.on_handshake(Handshake.DISCONNECTED)
    assert not connection.must_try_other_version()
    clock.now += FIRST_VERSION_SECONDS
    assert connection.must_try_other_version()


def test_a_numeric_address_never_switches_the_ip_version(clock: Clock) -> None:
    connection = ClientConnection("tcp://[::1]:7100", key_name=None, clock=clock)
    clock.now += 1000.0
    assert not connection.must_try_other_version()
