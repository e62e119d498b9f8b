"""Attacks one server below the level of messages."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from benchmarks.fuzz import strangers
from benchmarks.fuzz.hostile_messages import OTHER_RUN, header, population_bases
from herd.protocols.bandit.messages import ExchangeTemperatures
from herd.protocols.inference.messages import Act
from herd.protocols.replay.messages import SampleEpisode
from herd.protocols.unrolls.messages import CreditRequest
from herd.protocols.weights.messages import GetWeights
from herd.telemetry.scrape import total

if TYPE_CHECKING:
    from benchmarks.fuzz.processes import CatchRun

MEBIBYTE = 1 << 20


def question(name: str) -> bytes:
    """Return a short request that this server answers for any client."""
    of_another = {"run": OTHER_RUN, "contract": "c"}
    if name == "learner":
        return header(CreditRequest(wanted_unrolls=1))
    if name == "bandit":
        nothing = {"agent": 0, "client": "1", "purpose": "evaluation", "finished": (), "starting": ()}
        return header(ExchangeTemperatures(id=1, **of_another, **nothing))
    if name == "replay":
        return header(SampleEpisode(id=1, agent=0, **of_another))
    if name == "population":
        (report,) = population_bases("c")[0](Random(0))
        return report
    if name == "inference":
        return header(Act(id=1, agent=0, num_environments=1, has_state=False, wants_state=False, **of_another))
    return header(GetWeights(id=1, have=None, **of_another))


def besiege(run: CatchRun, name: str, seed: int, *, nonsense: int, half_open: int, seconds: float, deaf: int) -> dict[str, Any]:
    """Attack one server below the level of messages; return its counters, and whether the honest run continued."""
    server = run[name]
    assert server.port is not None
    random = Random(f"{seed} {name} raw")
    before, updates = server.metrics(), run.updates()
    resident = server.resident_bytes()
    accepted = strangers.talk_nonsense(server.port, random, nonsense)
    hung_up = strangers.announce_too_much(server.port, 5)
    let_through = {
        "frames of 1 MiB": strangers.never_end(server.port, frame_bytes=MEBIBYTE, most_bytes=8 << 30),
        "frames of 1 byte": strangers.never_end(server.port, frame_bytes=1, most_bytes=1 << 30),
    }
    blind = strangers.flood_blindly(server.port, random, 300_000)
    cut = total(server.metrics(), "herd_wire_connections_cut_total")
    deaf_hung_up = strangers.ask_without_reading(server.port, question(name), deaf)
    deaf_hung_up -= int(total(server.metrics(), "herd_wire_connections_cut_total") - cut)  # closed for what they sent
    connections: list[int] = []

    def meanwhile(living: int) -> None:
        connections.append(int(total(server.metrics(), "herd_wire_connections")))
        survivors.append(living)

    survivors: list[int] = []
    held = strangers.hold_half_open(server.port, half_open, seconds, meanwhile)
    after = server.metrics()

    def grown(metric: str, **labels: str) -> int:
        return int(total(after, metric, **labels) - total(before, metric, **labels))

    return {
        "nonsense_connections": accepted,
        "oversized_frames_hung_up_on": hung_up,
        "endless_messages_let_through_bytes": let_through,
        "blind_flood_let_through_messages": blind,
        "deaf_connections": deaf,
        "deaf_hung_up_on": deaf_hung_up,
        "half_open_connections": held,
        "half_open_left_at_the_end": survivors[-1] if survivors else 0,
        "most_connections_at_once": max(connections, default=0),
        "handshakes_failed": {
            reason: grown("herd_wire_authentication_failures_total", reason=reason) for reason in ("incomplete", "protocol", "mechanism")
        },
        "connections_cut": {cause: grown("herd_wire_connections_cut_total", cause=cause) for cause in ("crowd", "unread")},
        "malformed_out_of_garbage": grown("herd_wire_malformed_messages_total"),
        "learner_updates": int(run.updates() - updates),
        "resident_before_bytes": resident,
        "resident_peak_bytes": server.peak_resident_bytes(),
        "resident_after_bytes": server.resident_bytes(),
    }
