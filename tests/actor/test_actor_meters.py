"""What an actor exports is in the unit that the catalogue names."""

from __future__ import annotations

from dataclasses import dataclass

from herd_actor.meters import Meters

from herd.telemetry import Telemetry, metric_names


@dataclass
class Client:
    """An unroll client's counts: of messages, not of unrolls."""

    num_unacked: int = 2
    num_rejected: int = 3
    blocked_seconds: float = 0.0
    credit_unrolls: int = 0
    num_unrolls_resent: int = 0
    bytes_in: int = 0
    bytes_out: int = 0


def test_messages_are_exported_as_unrolls() -> None:
    telemetry = Telemetry("actor", "run")
    Meters(telemetry).watch(Client(), num_environments=16)  # type: ignore[arg-type]
    lines = telemetry.exposition().decode().splitlines()
    assert f"{metric_names.ACTOR_UNACKNOWLEDGED.name} 32.0" in lines
    assert f"{metric_names.ACTOR_UNROLLS_REJECTED.name} 48.0" in lines
