from __future__ import annotations

import socket

import pytest

from herd.config.addresses import checked, host_of, interface, is_ipv6, is_name, tcp_address


@pytest.mark.parametrize(
    ("host", "address", "ipv6", "name"),
    [
        ("10.0.0.7", "tcp://10.0.0.7:7100", False, False),
        ("::1", "tcp://[::1]:7100", True, False),
        ("[2001:db8::7]", "tcp://[2001:db8::7]:7100", True, False),
        ("fe80::1%eth0", "tcp://[fe80::1%eth0]:7100", True, False),
        ("learner-0.herd-learner", "tcp://learner-0.herd-learner:7100", False, True),
    ],
)
def test_hosts_are_converted_to_addresses_and_back(host: str, address: str, ipv6: bool, name: bool) -> None:
    assert tcp_address(host, 7100) == address
    assert host_of(address) == host.strip("[]")
    assert (is_ipv6(host), is_name(host)) == (ipv6, name)
    assert checked(address) == address


@pytest.mark.parametrize(
    "address",
    [
        "",
        "10.0.0.7:7100",
        "http://10.0.0.7:7100",
        "tcp://10.0.0.7",
        "tcp://:7100",
        "tcp://::1:7100",
        "tcp://[::1]",
        "tcp://[::1:7100",
        "tcp://learner:0",
        "tcp://learner:99999",
        "tcp://learner:port",
        "tcp://learner:7100/",
    ],
)
def test_invalid_addresses_are_refused(address: str) -> None:
    with pytest.raises(ValueError, match=r"should be tcp://HOST:PORT, with an IPv6 address in brackets"):
        checked(address)


@pytest.mark.parametrize("host", ["*", "", "::"])
def test_wildcard_hosts_use_both_ip_versions_if_available(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: True)
    assert interface(host) == (socket.AF_INET6, "::")
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)
    assert interface(host) == (socket.AF_INET, "0.0.0.0")


def test_a_single_interface_uses_its_own_ip_version() -> None:
    assert interface("0.0.0.0") == (socket.AF_INET, "0.0.0.0")
    assert interface("[::1]") == (socket.AF_INET6, "::1")
