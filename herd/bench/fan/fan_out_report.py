"""What follows from the readings of ``herd bench fan-out``. No processes here: numbers in, numbers out."""

from __future__ import annotations

import statistics
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from herd.bench.fan.fan_out import FanOutOptions
    from herd.bench.fan.server_tree import ServerReading
    from herd.config.settings import RunSettings


@dataclass(frozen=True, slots=True)
class Phase:
    """Everything at one moment."""

    at: float
    servers: tuple[ServerReading, ...]
    clients_cpu_seconds: float


@dataclass(frozen=True, slots=True)
class FanOutReadings:
    """Of one measurement."""

    idle: tuple[Phase, Phase]
    """No client has asked: what replicas ask of their parents goes on all the same."""
    quiet: tuple[Phase, Phase]
    """Beginning and end of the time in which everybody has the newest version."""
    publishing: tuple[Phase, Phase]
    """From then until everybody has the last version."""
    names: tuple[tuple[str, int], ...]
    """(name, level) of each server."""
    clients: tuple[dict[str, Any], ...]
    """What each client process says."""
    published_at: dict[int, float]
    visible_at: dict[int, float]
    busy_cores: tuple[float, float]
    """Of this machine, in the two phases, whoever used them."""


def make_fan_out_report(
    settings: RunSettings,
    options: FanOutOptions,
    readings: FanOutReadings,
    hardware: dict[str, object],
    *,
    version_bytes: int,
    levels: Sequence[int],
    num_processes: int,
) -> dict[str, object]:
    """Delays, rates, costs and memory, ready for JSON."""
    lowest = max(level for _, level in readings.names)
    serving = [place for place, (_, level) in enumerate(readings.names) if level == lowest]
    quiet = _rates(readings.quiet, serving, readings.busy_cores[0])
    publishing = _rates(readings.publishing, serving, readings.busy_cores[1])
    return {
        "actors": options.actors,
        "levels": list(levels),
        "version_bytes": version_bytes,
        "slices": settings.learner.shards,
        "versions": [_delays(readings, updates, options.actors) for updates in range(2, 2 + options.versions)],
        "quiet": quiet,
        "publishing": publishing,
        "cpu_microseconds_per_not_modified": _per_not_modified(readings, serving),
        "cpu_microseconds_per_weights": _per_weights(readings, serving),
        "servers": [_server(readings, place) for place in range(len(readings.names))],
        "clients": {
            "processes": num_processes,
            "went_back": sum(one["went_back"] for one in readings.clients),
            "in_part": sum(one["in_part"] for one in readings.clients),
            "malformed": sum(one["malformed"] for one in readings.clients),
            "refused": next((one["refused"] for one in readings.clients if one["refused"] is not None), None),
            "bytes_in": sum(one["bytes_in"] for one in readings.clients),
            "answers": sum(one["answers"] for one in readings.clients),
        },
        "answers_given": sum(readings.publishing[1].servers[place].weights for place in serving),
        "answers_wanted": sum(len(moments) for one in readings.clients for moments in one["held_at"].values()),
        "hardware": hardware,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "options": asdict(options),
        "settings": settings.model_dump(mode="json"),
    }


def _delays(readings: FanOutReadings, updates: int, actors: int) -> dict[str, Any]:
    """From publishing a version until clients have it, or a newer one."""
    published = readings.published_at[updates]
    seconds = sorted(moment - published for one in readings.clients for moment in one["held_at"].get(str(updates), []))
    visible = readings.visible_at.get(updates)
    return {
        "updates": updates,
        "clients": len(seconds),
        "is_complete": len(seconds) == actors,
        "root_seconds": visible - published if visible is not None else None,
        "median_seconds": statistics.median(seconds),
        "p99_seconds": seconds[min(int(0.99 * len(seconds)), len(seconds) - 1)],
        "worst_seconds": seconds[-1],
    }


def _rates(phase: tuple[Phase, Phase], serving: Sequence[int], busy_cores: float) -> dict[str, float]:
    """Of the servers that clients ask, all together."""
    start, end = phase
    seconds = end.at - start.at
    spent = sum(_spent(phase, place) for place in range(len(start.servers)))
    clients = end.clients_cpu_seconds - start.clients_cpu_seconds
    return {
        "seconds": seconds,
        "requests_per_second": _sum(phase, serving, "requests") / seconds,
        "weights_per_second": _sum(phase, serving, "weights") / seconds,
        "not_modified_per_second": _sum(phase, serving, "not_modified") / seconds,
        "bytes_per_second": _sum(phase, serving, "bytes_out") / seconds,
        "servers_cores": spent / seconds,
        "clients_cores": clients / seconds,
        "busy_cores": busy_cores,
        "busy_cores_of_other_programs": max(0.0, busy_cores - (spent + clients) / seconds),
    }


def _per_not_modified(readings: FanOutReadings, serving: Sequence[int]) -> float | None:
    answers = _sum(readings.quiet, serving, "not_modified")
    return 1e6 * _spent_on_clients(readings, readings.quiet, serving) / answers if answers else None


def _per_weights(readings: FanOutReadings, serving: Sequence[int]) -> float | None:
    """What is left of the servers' processor time while versions went out, when every 'not modified' is taken off at its price."""
    answers = _sum(readings.publishing, serving, "weights")
    if not answers:
        return None
    cheap = _sum(readings.publishing, serving, "not_modified") * (_per_not_modified(readings, serving) or 0.0)
    return max(0.0, 1e6 * _spent_on_clients(readings, readings.publishing, serving) - cheap) / answers


def _spent_on_clients(readings: FanOutReadings, phase: tuple[Phase, Phase], serving: Sequence[int]) -> float:
    """Processor time beyond what these servers spend when nobody asks them."""
    idle_seconds = readings.idle[1].at - readings.idle[0].at
    idle_cores = sum(_spent(readings.idle, place) for place in serving) / idle_seconds
    return max(0.0, sum(_spent(phase, place) for place in serving) - idle_cores * (phase[1].at - phase[0].at))


def _server(readings: FanOutReadings, place: int) -> dict[str, Any]:
    (name, level), last = readings.names[place], readings.publishing[1].servers[place]
    seconds = readings.publishing[1].at - readings.publishing[0].at
    return {
        "name": name,
        "level": level,
        "requests": last.requests,
        "weights": last.weights,
        "not_modified": last.not_modified,
        "bytes_out": last.bytes_out,
        "cores_publishing": _spent(readings.publishing, place) / seconds,
        "cores_idle": _spent(readings.idle, place) / (readings.idle[1].at - readings.idle[0].at),
        "before_bytes": readings.idle[0].servers[place].resident_bytes,
        "after_bytes": last.resident_bytes,
        "peak_bytes": last.peak_resident_bytes,
    }


def _sum(phase: tuple[Phase, Phase], places: Sequence[int], name: str) -> float:
    start, end = phase
    return float(sum(getattr(end.servers[place], name) - getattr(start.servers[place], name) for place in places))


def _spent(phase: tuple[Phase, Phase], place: int) -> float:
    start, end = phase
    return end.servers[place].cpu_seconds - start.servers[place].cpu_seconds
