"""What follows from the readings of ``herd bench fan-in``. No processes here: numbers in, numbers out."""

from __future__ import annotations

import statistics
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from herd.envs.make import environment_spec
from herd.telemetry.scrape import total
from herd.wire.run_layout import run_layout

if TYPE_CHECKING:
    from collections.abc import Sequence

    from herd.bench.fan.fan_in import FanInOptions
    from herd.config.settings import RunSettings
    from herd.telemetry.scrape import Samples


@dataclass(frozen=True, slots=True)
class Reading:
    """Everything at one moment, cumulative."""

    status: dict[str, Any]
    """What ``herd_learner.fan_in`` answered."""
    metrics: Samples
    """Its /metrics."""
    actors_cpu_seconds: float
    """Of all client processes."""


@dataclass(frozen=True, slots=True)
class FanInReadings:
    """Of one measurement, in the order of time."""

    before: Reading
    """Nobody is connected."""
    connected: Reading
    """Everybody has said hello, nobody has sent."""
    start: Reading
    end: Reading
    last: Reading
    """Everything that was sent is acknowledged, and the queue is empty."""
    sent: dict[str, Any]
    """What the actors say."""
    hello_seconds: float
    busy_cores: float
    """Of this machine, between ``start`` and ``end``, whoever used them."""


def make_fan_in_report(
    settings: RunSettings, options: FanInOptions, readings: FanInReadings, hardware: dict[str, object], *, num_processes: int
) -> dict[str, object]:
    """Rates, costs, losses, memory and fairness, ready for JSON."""
    spec = environment_spec(settings.env)
    layout = run_layout(settings, spec)
    frames_per_unroll = layout.new_steps * spec.action_repeat
    start, end = readings.start, readings.end
    seconds = end.status["at"] - start.status["at"]
    consumed = end.status["unrolls_consumed"] - start.status["unrolls_consumed"]
    actors_cores = (end.actors_cpu_seconds - start.actors_cpu_seconds) / seconds
    receiver = _costs(readings, consumed, seconds, frames_per_unroll)
    return {
        "actors": options.actors,
        "unrolls_per_message": options.unrolls_per_message,
        "paced": options.paced,
        "offered_unrolls_per_second": None if options.unrolls_per_second == float("inf") else options.unrolls_per_second,
        "seconds": seconds,
        "hello_seconds": readings.hello_seconds,
        "unrolls_per_second": consumed / seconds,
        "frames_per_second": consumed * frames_per_unroll / seconds,
        "bytes_per_second": _bytes_per_unroll(readings, "herd_wire_received_bytes_total") * consumed / seconds,
        "answer_bytes_per_second": _bytes_per_unroll(readings, "herd_wire_sent_bytes_total") * consumed / seconds,
        "bytes_per_unroll": layout.bytes_per_unroll,
        "receiver": receiver,
        "simulated_actors": {
            "processes": num_processes,
            "cpu_microseconds_per_unroll": _per_unroll(end.actors_cpu_seconds - start.actors_cpu_seconds, consumed),
            "cores": actors_cores,
        },
        "busy_cores": readings.busy_cores,
        "busy_cores_of_other_programs": max(0.0, readings.busy_cores - receiver["cores"] - actors_cores),
        "loss": _losses(options, readings, frames_per_unroll),
        "memory": _memory(settings, readings, layout.bytes_per_unroll),
        "unrolls_by_actor": {
            "measured": _spread(_by_actor(end, options.actors), _by_actor(start, options.actors)),
            "whole_run": _spread(_by_actor(readings.last, options.actors), [0] * options.actors),
        },
        "hardware": hardware,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "options": {**asdict(options), "unrolls_per_second": str(options.unrolls_per_second)},
        "settings": settings.model_dump(mode="json"),
    }


def _costs(readings: FanInReadings, consumed: int, seconds: float, frames_per_unroll: int) -> dict[str, Any]:
    """Processor time of the receiver, in core-microseconds per unroll, and how far its busiest thread would go with a core of its own."""
    start, end = readings.start.status, readings.end.status
    threads = {name: spent - start["thread_cpu_seconds"][name] for name, spent in end["thread_cpu_seconds"].items()}
    busiest = max(threads.values()) / consumed if consumed else 0.0
    return {
        "cpu_microseconds_per_unroll": _per_unroll(end["cpu_seconds"] - start["cpu_seconds"], consumed),
        "cores": (end["cpu_seconds"] - start["cpu_seconds"]) / seconds,
        "thread_cpu_microseconds_per_unroll": {name: _per_unroll(spent, consumed) for name, spent in threads.items()},
        "busiest_thread_unrolls_per_core_second": 1.0 / busiest if busiest else None,
        "busiest_thread_frames_per_core_second": frames_per_unroll / busiest if busiest else None,
    }


def _losses(options: FanInOptions, readings: FanInReadings, frames_per_unroll: int) -> dict[str, Any]:
    """The account of the whole run, warm-up included: every unroll that an actor sent was consumed once, and in order."""
    last, sent = readings.last, readings.sent
    unrolls_sent = sum(sent["by_actor"].values())
    frames = last.status["frames"]
    by_actor = _by_actor(last, options.actors)
    return {
        "unrolls_sent": unrolls_sent,
        "unrolls_consumed": last.status["unrolls_consumed"],
        "unrolls_unacknowledged": sent["unrolls_unacknowledged"],
        "unrolls_out_of_order": last.status["out_of_order"],
        "actors_with_another_count": sum(sent["by_actor"].get(actor, 0) != count for actor, count in enumerate(by_actor)),
        "frames": frames,
        "is_exact": (
            unrolls_sent == last.status["unrolls_consumed"]
            and last.status["out_of_order"] == 0
            and all(sent["by_actor"].get(actor, 0) == count for actor, count in enumerate(by_actor))
            and bool(frames["balanced"])
            and sent["frames_sent"] == frames["generated"] == frames["consumed"] == unrolls_sent * frames_per_unroll
        ),
        "connections_broken": sent["sessions"] - options.actors,
        "unrolls_resent": sent["unrolls_resent"],
        "duplicates_refused": total(last.metrics, "herd_wire_refused_messages_total", reason="duplicate"),
        "other_messages_refused": total(last.metrics, "herd_wire_refused_messages_total")
        - total(last.metrics, "herd_wire_refused_messages_total", reason="duplicate"),
        "messages_malformed": total(last.metrics, "herd_wire_malformed_messages_total"),
        "messages_rejected": sent["rejected"],
        "connections_cut": total(last.metrics, "herd_wire_connections_cut_total"),
    }


def _memory(settings: RunSettings, readings: FanInReadings, bytes_per_unroll: int) -> dict[str, Any]:
    return {
        "before_bytes": readings.before.status["resident_bytes"],
        "connected_bytes": readings.connected.status["resident_bytes"],
        "after_bytes": readings.last.status["resident_bytes"],
        "peak_bytes": readings.last.status["peak_resident_bytes"],
        "queue_bytes": readings.last.status["unrolls_allocated"] * bytes_per_unroll,
        # Twice what credit allows: docs/messaging.md, "Bounds".
        "queue_bound_bytes": 2 * settings.credit_capacity * bytes_per_unroll,
    }


def _bytes_per_unroll(readings: FanInReadings, name: str) -> float:
    """Over the whole run, headers, credit and hellos included: bytes are counted once a second, which is too coarse for less."""
    return float(total(readings.last.metrics, name, stream="unrolls") / max(1, readings.last.status["unrolls_consumed"]))


def _by_actor(reading: Reading, actors: int) -> list[int]:
    counts = reading.status.get("by_actor", {})
    return [counts.get(str(actor), 0) for actor in range(actors)]


def _spread(after: Sequence[int], before: Sequence[int]) -> dict[str, float]:
    counts = [late - early for late, early in zip(after, before, strict=True)]
    return {"min": min(counts), "median": statistics.median(counts), "max": max(counts)}


def _per_unroll(seconds: float, unrolls: int) -> float | None:
    return 1e6 * seconds / unrolls if unrolls else None
