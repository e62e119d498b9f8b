"""What follows from readings, against numbers worked out by hand; and how it is shown."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from herd.bench.fan.fan_in import FanInOptions
from herd.bench.fan.fan_in_report import FanInReadings, Reading, make_fan_in_report
from herd.bench.fan.fan_out import FanOutOptions
from herd.bench.fan.fan_out_report import FanOutReadings, Phase, make_fan_out_report
from herd.bench.fan.server_tree import ServerReading
from herd.bench.fan.tables import print_fan_in, print_fan_out
from herd.config.settings import RunSettings

HARDWARE: dict[str, object] = {"processor": "Mine", "usable_cores": 2, "python": "3.11"}
OPTIONS = FanInOptions(actors=3, seconds=10.0, unrolls_per_second=500.0, breaks=1)
FRAMES = 80
"""Of an unroll."""


def reading(at: float, *, cpu: float, io: float, consumed: int, by_actor: dict[str, int], actors_cpu: float, megabytes: float) -> Reading:
    frames = consumed * FRAMES
    status: dict[str, Any] = {
        "at": at,
        "cpu_seconds": cpu,
        "thread_cpu_seconds": {"io_thread": io, "zeromq": 0.0, "consumer": 0.0},
        "resident_bytes": 100 << 20,
        "peak_resident_bytes": 130 << 20,
        "unrolls_consumed": consumed,
        "unrolls_waiting": 0,
        "unrolls_allocated": 64,
        "out_of_order": 0,
        "frames": {"generated": frames, "consumed": frames, "dropped": {}, "in_flight": 0, "balanced": True},
        "by_actor": by_actor,
    }
    metrics = {
        ("herd_wire_received_bytes_total", (("stream", "unrolls"),)): megabytes * 1e6,
        ("herd_wire_refused_messages_total", (("reason", "duplicate"),)): 2.0,
        ("herd_wire_refused_messages_total", (("reason", "session"),)): 1.0,
    }
    return Reading(status, metrics, actors_cpu)


def fan_in_readings() -> FanInReadings:
    nothing = reading(0.0, cpu=1.0, io=0.0, consumed=0, by_actor={}, actors_cpu=0.0, megabytes=0.0)
    start = reading(10.0, cpu=2.0, io=0.5, consumed=1000, by_actor={"0": 400, "1": 300, "2": 300}, actors_cpu=1.0, megabytes=170.0)
    end = reading(20.0, cpu=4.0, io=1.5, consumed=6000, by_actor={"0": 2500, "1": 1900, "2": 1600}, actors_cpu=4.0, megabytes=1020.0)
    last = reading(21.0, cpu=4.1, io=1.6, consumed=6010, by_actor={"0": 2503, "1": 1904, "2": 1603}, actors_cpu=4.1, megabytes=1022.0)
    sent = {
        "by_actor": {0: 2503, 1: 1904, 2: 1603},
        "frames_sent": 6010 * FRAMES,
        "unrolls_unacknowledged": 0,
        "unrolls_resent": 2,
        "sessions": 4,
        "rejected": 0,
        "refused": None,
    }
    return FanInReadings(nothing, nothing, start, end, last, sent, hello_seconds=1.5, busy_cores=1.9)


def fan_in_report(readings: FanInReadings) -> dict[str, Any]:
    return make_fan_in_report(RunSettings(), OPTIONS, readings, HARDWARE, num_processes=2)


def test_fan_in_rates_and_costs_are_those_of_the_measured_seconds() -> None:
    report = fan_in_report(fan_in_readings())
    assert report["unrolls_per_second"] == pytest.approx(500.0)
    assert report["frames_per_second"] == pytest.approx(40_000.0)
    # 1,022 MB for 6,010 unrolls.
    assert report["bytes_per_second"] == pytest.approx(1022e6 / 6010 * 500)
    assert report["receiver"]["cpu_microseconds_per_unroll"] == pytest.approx(400.0)
    assert report["receiver"]["thread_cpu_microseconds_per_unroll"]["io_thread"] == pytest.approx(200.0)
    assert report["receiver"]["busiest_thread_unrolls_per_core_second"] == pytest.approx(5000.0)
    assert report["receiver"]["busiest_thread_frames_per_core_second"] == pytest.approx(400_000.0)
    assert report["simulated_actors"]["cpu_microseconds_per_unroll"] == pytest.approx(600.0)
    # 1.9 busy cores, 0.2 of them the receiver's and 0.3 the actors'.
    assert report["busy_cores_of_other_programs"] == pytest.approx(1.4)
    assert report["unrolls_by_actor"]["measured"] == {"min": 1300, "median": 1600, "max": 2100}
    # Two batches of 32, twice, of 170,066 bytes.
    assert report["memory"]["queue_bound_bytes"] == 128 * 170_066


def test_fan_in_is_exact_only_if_every_unroll_sent_was_consumed_once() -> None:
    readings = fan_in_readings()
    loss = fan_in_report(readings)["loss"]
    assert loss["is_exact"]
    assert (loss["connections_broken"], loss["duplicates_refused"], loss["other_messages_refused"]) == (1, 2, 1)
    # One lost by one actor, one more by another: the sums agree, the actors do not.
    swapped = {**readings.sent, "by_actor": {0: 2504, 1: 1903, 2: 1603}}
    unequal = fan_in_report(replace(readings, sent=swapped))["loss"]
    assert not unequal["is_exact"]
    assert unequal["actors_with_another_count"] == 2
    assert not fan_in_report(replace(readings, sent={**readings.sent, "frames_sent": 6011 * FRAMES}))["loss"]["is_exact"]
    for change in ({"out_of_order": 1}, {"unrolls_consumed": 6009}, {"frames": {**readings.last.status["frames"], "balanced": False}}):
        last = replace(readings.last, status={**readings.last.status, **change})
        assert not fan_in_report(replace(readings, last=last))["loss"]["is_exact"], change


def server(cpu: float, weights: int, not_modified: int) -> ServerReading:
    return ServerReading(cpu, weights, not_modified, weights + not_modified, 1e6 * weights, 60 << 20, 70 << 20)


def fan_out_readings() -> FanOutReadings:
    # A root with one replica, which answers the clients and spends 0.1 of a core on its own questions.
    idle = (
        Phase(0.0, (server(1.0, 0, 0), server(1.0, 0, 0)), 0.0),
        Phase(2.0, (server(1.1, 0, 200), server(1.2, 0, 0)), 0.0),
    )
    quiet = (
        Phase(10.0, (server(2.0, 1, 900), server(2.0, 4, 0)), 1.0),
        Phase(20.0, (server(2.5, 1, 1900), server(5.0, 4, 20_000)), 4.0),
    )
    # 2,000 questions find nothing at 100 us, four bring weights.
    published = Phase(30.0, (server(3.0, 2, 2900), server(6.22, 8, 22_000)), 5.0)
    client = {"held_at": {"1": [5.0] * 4, "2": [20.5, 21.0, 21.5, 24.0]}, "went_back": 0, "in_part": 0, "malformed": 0, "refused": None}
    return FanOutReadings(
        idle=idle,
        quiet=quiet,
        publishing=(quiet[1], published),
        names=(("root", 0), ("replica 1", 1)),
        clients=({**client, "bytes_in": 8, "answers": 22_008},),
        published_at={1: 3.0, 2: 20.0},
        visible_at={1: 3.1, 2: 20.25},
        busy_cores=(0.7, 0.8),
    )


def fan_out_report(readings: FanOutReadings) -> dict[str, Any]:
    options = FanOutOptions(actors=4, replicas=1, versions=1)
    return make_fan_out_report(RunSettings(), options, readings, HARDWARE, version_bytes=1_000_000, levels=[1, 1], num_processes=1)


def test_fan_out_takes_off_what_servers_cost_without_clients() -> None:
    report = fan_out_report(fan_out_readings())
    # (3.0 s - 10 x 0.1) over 20,000.
    assert report["cpu_microseconds_per_not_modified"] == pytest.approx(100.0)
    # (1.22 s - 10 x 0.1 - 2,000 x 100 us) over 4.
    assert report["cpu_microseconds_per_weights"] == pytest.approx(5000.0)
    assert report["quiet"]["requests_per_second"] == pytest.approx(2000.0)
    assert report["quiet"]["servers_cores"] == pytest.approx(0.35)
    assert report["quiet"]["busy_cores_of_other_programs"] == pytest.approx(0.05)
    assert report["publishing"]["weights_per_second"] == pytest.approx(0.4)
    assert (report["answers_given"], report["answers_wanted"]) == (8, 8)


def test_fan_out_delays_count_from_the_publication() -> None:
    version = fan_out_report(fan_out_readings())["versions"][0]
    assert version == {
        "updates": 2,
        "clients": 4,
        "is_complete": True,
        "root_seconds": pytest.approx(0.25),
        "median_seconds": pytest.approx(1.25),
        "p99_seconds": pytest.approx(4.0),
        "worst_seconds": pytest.approx(4.0),
    }


def test_the_tables_fit_and_say_what_is_not_right() -> None:
    readings = fan_in_readings()
    inexact = replace(readings, sent={**readings.sent, "frames_sent": 0})
    out = io.StringIO()
    console = Console(file=out, width=80)
    print_fan_in(fan_in_report(inexact), console)
    print_fan_out(fan_out_report(fan_out_readings()), console)
    text = out.getvalue()
    assert "NOT EXACT" in text
    assert "other programs used 1.4 cores meanwhile" in text
    assert "fill a core of its own at 5,000 unrolls/s, 400,000 frames/s" in text
    assert "0 went back, 0 were in part" in text
    assert "…" not in text
