"""Evaluation while a run learns: its frozen weights play whole games every so often, in a process of their own."""

from __future__ import annotations

from typing import Literal

from herd.config.addresses import Address
from herd.config.section import Port, PositiveFloat, PositiveInt, Section


class EvaluationSettings(Section):
    """The evaluator: it freezes the newest weights every so often, and plays whole games of every task with them."""

    interval_seconds: PositiveFloat | None = None
    """Seconds between the starts of two evaluations. One that takes longer is followed by the next at once. Null: the run has no
    evaluator."""
    episodes: PositiveInt = 10
    """Number of games of each task in an evaluation."""
    protocol: Literal["impala-atari", "impala-dmlab", "machado", "saber"] | None = None
    """Protocol that sets the environments (docs/evaluation.md). The number of games stays ``episodes``. Null: as in training."""
    final: bool = False
    """When a run has reached its stop condition, ``herd train`` evaluates the last checkpoint before it exits."""
    paramserver: Address = "tcp://127.0.0.1:7200"
    """Address of the parameter server that the evaluator follows."""
    bandit: Address = "tcp://127.0.0.1:7300"
    """Address of the bandit service. DiCE's games are played under its best-valued temperatures."""
    metrics_host: str = "127.0.0.1"
    """Network interface of the metrics and health endpoint."""
    metrics_port: Port = 0
    """Port of the metrics and health endpoint; 0 takes a free port."""
