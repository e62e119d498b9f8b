"""An actor exports each metric in the unit that the catalogue names."""

from __future__ import annotations

from dataclasses import dataclass

from herd_actor.meters import Meters

from herd.protocols.unrolls import metrics as unroll_metrics
from herd.telemetry import Telemetry, metrics


@dataclass
class Client:
    """The counts of an unroll client, in messages rather than unrolls."""

    num_unacked: int = 2
    num_rejected: int = 3
    blocked_seconds: float = 0.0
    num_unrolls_resent: int = 0
    bytes_in: int = 0
    bytes_out: int = 0


def test_counters_add_up_over_successive_clients() -> None:
    telemetry = Telemetry("actor", "run")
    meters = Meters(telemetry)
    first, second = Client(bytes_in=100), Client(bytes_in=0, num_rejected=0, num_unacked=1)
    for client in (first, second):
        meters.watch(client, num_environments=16)  # type: ignore[arg-type]
    second.bytes_in = 7
    lines = telemetry.exposition().decode().splitlines()
    assert f'{metrics.BYTES_IN.name}{{stream="unrolls"}} 107.0' in lines
    assert f"{unroll_metrics.ACTOR_UNROLLS_REJECTED.name} 48.0" in lines
    assert f"{unroll_metrics.ACTOR_UNACKNOWLEDGED.name} 16.0" in lines
