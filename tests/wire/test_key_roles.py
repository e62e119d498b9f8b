"""A server knows which key is behind each message, and the role follows from its name (tests/wire/test_rpc_serving.py)."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path

from herd.cli.keys import make_keys
from herd.config.encryption_keys import CLIENT_PUBLIC_VARIABLE, SERVER_SECRET_VARIABLE, load_server_keys
from herd.config.run import SecuritySettings
from herd.rpc.serving import role_of
from herd.transport import Limits, Peer
from herd.transport.context import Context, Poller

DEADLINE_SECONDS = 60.0


def test_a_server_knows_the_key_behind_each_message(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    make_keys(keys)
    for name in ("learner", "actor-1"):
        make_keys(keys, client=name)
    with ExitStack() as stack:
        context = stack.enter_context(Context(SecuritySettings(curve_keys=keys), {}))
        router = stack.enter_context(context.server("tcp://127.0.0.1:*", Limits(max_frame_bytes=1 << 20)))
        dealers = {}
        for name in ("learner", "actor-1", "default"):
            own = stack.enter_context(Context(SecuritySettings(curve_keys=keys, curve_client=name), {}))
            dealers[name] = stack.enter_context(own.client(router.endpoint, name, Limits(max_frame_bytes=1 << 20)))
        poller = Poller(router, *dealers.values())
        deadline = time.monotonic() + DEADLINE_SECONDS

        def hear() -> Peer:
            while (received := router.receive()) is None:
                assert time.monotonic() < deadline, "nothing came"
                poller.poll(0.02)
                for dealer in dealers.values():
                    dealer.receive()
            return received[0]

        for turn in range(2):
            for name, dealer in dealers.items():
                while not dealer.send([b"hello"]):
                    assert router.receive() is None
                    dealer.receive()
                    assert time.monotonic() < deadline, "no connection"
                    poller.poll(0.02)
                peer = hear()
                assert (peer.name, peer.holder) == (name.encode(), f"client-{name}"), turn


def test_keys_in_environment_variables_may_have_names() -> None:
    texts = {"actor-1": "aa" * 32, "learner": "bb" * 32}
    listed = ",".join([*(f"{name}={text}" for name, text in texts.items()), "cc" * 32])
    security = SecuritySettings(curve_keys_from_environment=True)
    keys = load_server_keys(security, {SERVER_SECRET_VARIABLE: "dd" * 32, CLIENT_PUBLIC_VARIABLE: listed})
    assert keys is not None
    assert {key.hex()[:2]: role_of(name) for key, name in keys.clients.items()} == {"aa": "actor", "bb": "learner", "cc": None}
