"""Measured figures: those of the package, or the user's own measurements."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  pydantic reads the annotations
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from pydantic import TypeAdapter
from pydantic.dataclasses import dataclass

from herd.files import read_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from herd.config.settings import RunSettings

PACKAGE_FIGURES = Path(__file__).with_name("figures.json")

STAGES = ("environment", "inference", "learner", "transport", "system")


class FiguresError(ValueError):
    """A figure is missing or cannot be read; one line that says what to do."""


@dataclass(frozen=True, slots=True)
class StageFigures:
    """The cost of an agent step of one kind of run, in core-microseconds (``herd bench``)."""

    suite: str
    torso: str
    width_multiplier: int
    core: str
    microseconds: Mapping[str, float]
    """Cost by stage; ``system`` is that of the whole system, with all stages running at once."""
    trained_per_fresh_unroll: float
    """Unrolls in a batch per fresh unroll, times updates per batch: the learner's figure includes this work."""
    parameters: int | None
    """Parameters of the network; None if not counted."""
    source: str

    def fits(self, settings: RunSettings) -> bool:
        """Whether it was measured with this suite and network."""
        network = settings.network
        wanted = (settings.env.suite, network.torso, network.width_multiplier, network.core)
        return (self.suite, self.torso, self.width_multiplier, self.core) == wanted


@dataclass(frozen=True, slots=True)
class LearnerFigures:
    """The training rate of one GPU, as published by others."""

    frames_per_second: float
    source: str


@dataclass(frozen=True, slots=True)
class IngestFigures:
    """The cost of the learner's I/O thread (``benchmarks/fan_in.py``)."""

    microseconds_per_message: float
    microseconds_per_unroll: float
    source: str


@dataclass(frozen=True, slots=True)
class WeightsFigures:
    """The cost of a parameter server (``benchmarks/fan_out.py``)."""

    microseconds_per_answer: float
    """Cost of an answer with weights, without the cost of their size."""
    microseconds_per_megabyte: float
    microseconds_per_not_modified: float
    source: str


@dataclass(frozen=True, slots=True)
class BanditFigures:
    """The cost of the bandit."""

    microseconds_per_request: float
    answers_per_second: float
    source: str


@dataclass(frozen=True, slots=True)
class ReplayFigures:
    """Cost and memory of a replica of the replay service (``benchmarks/replay.py``)."""

    microseconds_per_inserted_unroll: float
    microseconds_per_drawn_unroll: float
    bytes_per_agent_step: float
    source: str


@dataclass(frozen=True, slots=True)
class InferenceFigures:
    """Frames with central inference over those with local inference (``benchmarks/inference.py``)."""

    lowest_ratio: float
    """Lowest ratio of the pairs of runs."""
    source: str


@dataclass(frozen=True, slots=True)
class MemoryFigures:
    """Resident memory of a process, without the part that depends on settings."""

    actor_bytes: int
    learner_bytes: int
    paramserver_bytes: int
    bandit_bytes: int
    source: str


@dataclass(frozen=True, slots=True)
class CompressionFigures:
    """Compression of frames on the wire, with ``actor.compression``."""

    ratios: Mapping[str, float]
    """Ratio of the bytes before and after, by kind of compression."""
    source: str


@dataclass(frozen=True, slots=True)
class Figures:
    """Everything that is measured or published."""

    stages: tuple[StageFigures, ...]
    learners: Mapping[str, LearnerFigures]
    """Published figures by torso."""
    shard_efficiency: float
    shard_efficiency_source: str
    ingest: IngestFigures
    weights: WeightsFigures
    bandit: BanditFigures
    replay: ReplayFigures
    inference: Mapping[str, InferenceFigures]
    """Figures by network, with the names of ``benchmarks.inference``."""
    memory: MemoryFigures
    compression: CompressionFigures

    def stage_for(self, settings: RunSettings) -> StageFigures:
        """Return the first figures that fit these settings.

        Raises:
            FiguresError: this network or suite has not been measured.

        """
        for stage in self.stages:
            if stage.fits(settings):
                return stage
        network = settings.network
        kind = f"{settings.env.suite} with network.torso {network.torso}, width_multiplier {network.width_multiplier}, core {network.core}"
        raise FiguresError(f"no figures for {kind}: measure them (herd bench FILE --json > figures.json) and add --figures figures.json")


def package_figures() -> Figures:
    """Return the figures of the package; see ``figures.json`` next to this module for hardware, dates and sources."""
    return TypeAdapter(Figures).validate_json(PACKAGE_FIGURES.read_bytes())


def with_own_figures(figures: Figures, paths: Sequence[Path]) -> Figures:
    """Replace figures of the package by the output of ``herd bench --json`` and of benchmarks. The last file of a kind counts.

    Raises:
        FiguresError: a file cannot be read, or is not such an output.

    """
    for path in paths:
        figures = _with_own(figures, _read(path), path)
    return figures


def _with_own(figures: Figures, report: Mapping[str, Any], path: Path) -> Figures:
    try:
        if "stages" in report:
            return replace(figures, stages=(_own_stages(report, path), *figures.stages))
        if "receiver" in report:
            return replace(figures, ingest=_own_ingest(report, path))
        if "cpu_microseconds_per_weights" in report:
            return replace(figures, weights=_own_weights(report, path))
        if "networks" in report:
            return replace(figures, inference={**figures.inference, **_own_inference(report, path)})
        if "figures" in report:
            return replace(figures, replay=_own_replay(report, path))
    except (KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError) as error:
        raise FiguresError(f"{path}: incomplete: {type(error).__name__} {error}") from error
    raise FiguresError(f"{path}: not the output of herd bench --json or of benchmarks.fan_in, fan_out, inference or replay")


def _own_stages(report: Mapping[str, Any], path: Path) -> StageFigures:
    settings = report["settings"]
    network, learner = settings["network"], settings["learner"]
    batch, reuse = int(learner["batch_size"]), int(learner.get("sample_reuse", 1))
    fresh = batch - round(batch * float(settings["replay"].get("fraction", 0.0)))
    return StageFigures(
        suite=str(settings["env"]["suite"]),
        torso=str(network["torso"]),
        width_multiplier=int(network["width_multiplier"]),
        core=str(network["core"]),
        microseconds={name: _positive(report["stages"][name]["core_microseconds_per_agent_step"]) for name in STAGES},
        trained_per_fresh_unroll=batch / fresh * reuse,
        parameters=None,
        source=_own_source(report, path),
    )


def _own_ingest(report: Mapping[str, Any], path: Path) -> IngestFigures:
    spent = _positive(report["receiver"]["thread_cpu_microseconds_per_unroll"]["io_thread"])
    unrolls = int(report["unrolls_per_message"])
    # One measurement cannot separate the costs of messages and unrolls, so it applies to messages of the measured size.
    return IngestFigures(0.0, spent, f"{_own_source(report, path)}, {unrolls} unrolls a message")


def _own_weights(report: Mapping[str, Any], path: Path) -> WeightsFigures:
    megabytes = _positive(report["version_bytes"]) / 1e6
    return WeightsFigures(
        microseconds_per_answer=0.0,
        microseconds_per_megabyte=_positive(report["cpu_microseconds_per_weights"]) / megabytes,
        microseconds_per_not_modified=_positive(report["cpu_microseconds_per_not_modified"]),
        source=_own_source(report, path),
    )


def _own_inference(report: Mapping[str, Any], path: Path) -> dict[str, InferenceFigures]:
    source = " ".join([_own_source(report, path), *map(str, report["settings"])])
    found = {}
    for network, pairs in report["networks"].items():
        ratios = [_positive(pair["remote"]["frames_per_second"]) / _positive(pair["local"]["frames_per_second"]) for pair in pairs]
        found[str(network)] = InferenceFigures(min(ratios), source)
    return found


def _own_replay(report: Mapping[str, Any], path: Path) -> ReplayFigures:
    figures = report["figures"]
    return ReplayFigures(
        microseconds_per_inserted_unroll=1e6 / _positive(figures["inserted_unrolls_per_core_second"]),
        microseconds_per_drawn_unroll=1e6 / _positive(figures["drawn_unrolls_per_core_second"]),
        bytes_per_agent_step=_positive(figures["bytes_per_agent_step"]),
        source=_own_source(report, path),
    )


def _own_source(report: Mapping[str, Any], path: Path) -> str:
    hardware = report["hardware"]
    return f"{path}: {hardware['usable_cores']} cores of {hardware['processor']}, {report['date']}"


def _positive(value: object) -> float:
    number = float(cast("float", value))
    if not 0.0 < number < float("inf"):
        raise ValueError(f"{value!r} is not a cost")
    return number


def _read(path: Path) -> Mapping[str, Any]:
    try:
        report = read_json(path)
    except OSError as error:
        raise FiguresError(f"{path}: cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise FiguresError(f"{path}: not JSON: {error}") from error
    if not isinstance(report, dict):
        raise FiguresError(f"{path}: not a JSON object")
    return report
