"""Measurements, and their medians, spread and the ceiling of the machine.

The unit of cost is the core-microsecond: processor time of all threads of a stage per agent step. The costs of stages add up, so a
machine with n usable cores makes at most n * 1e6 / sum(costs) agent steps per second.
"""

from __future__ import annotations

import json
import statistics
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


@dataclass(frozen=True, slots=True)
class Measurement:
    """One repeat of one stage."""

    agent_steps: int
    wall_seconds: float
    cpu_seconds: float
    """User and system time of all threads of all processes of the stage."""
    device: str = "cpu"
    """Where the stage computes: ``cpu``, or the name of a GPU, whose time ``cpu_seconds`` does not contain."""

    @property
    def agent_steps_per_second(self) -> float:
        """Rate by wall time."""
        return self.agent_steps / self.wall_seconds

    @property
    def core_microseconds(self) -> float:
        """Processor time per agent step."""
        return 1e6 * self.cpu_seconds / self.agent_steps

    @property
    def wall_microseconds(self) -> float:
        """Wall time per agent step."""
        return 1e6 * self.wall_seconds / self.agent_steps

    def to_json(self) -> str:
        """Return one line, as stage processes print it."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Measurement:
        """Read the output of `to_json`.

        Raises:
            ValueError: the text is not a measurement, or an empty one.

        """
        try:
            measured = cls(**json.loads(text))
            if measured.agent_steps > 0 and measured.wall_seconds > 0:
                return measured
        except (TypeError, json.JSONDecodeError) as error:
            raise ValueError(f"not a measurement: {text[:200]!r}") from error
        raise ValueError(f"empty measurement: {text[:200]!r}")


def measure(step: Callable[[], int], *, seconds: float, warmup_seconds: float = 1.0, device: str = "cpu") -> Measurement:
    """Call ``step``, which returns its number of agent steps, repeatedly: first for the warm-up, then measured for ``seconds``.

    The time of the whole process and its descendants counts (environments may be processes), so nothing else may run in it.
    """
    start = time.perf_counter()
    step()  # at least once: first calls allocate and compile
    while time.perf_counter() - start < warmup_seconds:
        step()
    agent_steps = 0
    start, cpu_start = time.perf_counter(), _processor_seconds()
    while (elapsed := time.perf_counter() - start) < seconds or agent_steps == 0:
        agent_steps += step()
    return Measurement(agent_steps, elapsed, _processor_seconds() - cpu_start, device)


def _processor_seconds() -> float:
    """Return the user and system time of this process and its living descendants, to 10 ms each."""
    total = time.process_time()
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            total += sum(process.cpu_times()[:2])
    return total


@dataclass(frozen=True, slots=True)
class Summary:
    """The repeats of one stage. Every figure is a median, every spread (min, max)."""

    repeats: int
    agent_steps_per_second: float
    agent_steps_per_second_spread: tuple[float, float]
    frames_per_second: float
    """Env frames, including action repeats."""
    core_microseconds_per_agent_step: float
    core_microseconds_per_agent_step_spread: tuple[float, float]
    wall_microseconds_per_agent_step: float
    device: str


def summarise(measurements: Sequence[Measurement], *, action_repeat: int) -> Summary:
    """Return medians and spreads of at least one repeat."""
    rates = [measurement.agent_steps_per_second for measurement in measurements]
    costs = [measurement.core_microseconds for measurement in measurements]
    rate = statistics.median(rates)
    return Summary(
        repeats=len(measurements),
        agent_steps_per_second=rate,
        agent_steps_per_second_spread=(min(rates), max(rates)),
        frames_per_second=rate * action_repeat,
        core_microseconds_per_agent_step=statistics.median(costs),
        core_microseconds_per_agent_step_spread=(min(costs), max(costs)),
        wall_microseconds_per_agent_step=statistics.median(measurement.wall_microseconds for measurement in measurements),
        device=measurements[0].device,
    )


def ceiling_agent_steps_per_second(parts: Mapping[str, Summary], *, usable_cores: float) -> float:
    """Return the agent steps per second if these parts used all cores and nothing else ran.

    A part on a GPU is also bounded by its own rate, because more cores do not make it faster.
    """
    cost = sum(part.core_microseconds_per_agent_step for part in parts.values())
    accelerated = [part.agent_steps_per_second for part in parts.values() if part.device != "cpu"]
    return min([usable_cores * 1e6 / cost, *accelerated])
