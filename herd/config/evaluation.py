"""Evaluation while a run learns: its frozen weights play whole games every so often, in a process of their own."""

from __future__ import annotations

from typing import Literal

from herd.config.section import Port, PositiveFloat, PositiveInt, Section


class EvaluationSettings(Section):
    """The evaluator: it freezes the newest weights every so often, and plays whole games of every task with them."""

    interval_seconds: PositiveFloat | None = None
    """Between beginnings of two evaluations; one that takes longer is followed by the next at once. Null: a run has no evaluator."""
    episodes: PositiveInt = 10
    """Games of every task in each evaluation."""
    protocol: Literal["impala-atari", "impala-dmlab", "machado", "saber"] | None = None
    """How environments are set (docs/evaluation.md); the number of games stays ``episodes``. Null: as in training."""
    final: bool = False
    """When a run has ended by itself, ``herd train`` evaluates its last checkpoint before it ends."""
    paramserver: str = "tcp://127.0.0.1:7200"
    """Address of the parameter server whose weights are followed."""
    bandit: str = "tcp://127.0.0.1:7300"
    """Address of the bandit service, whose best-valued temperatures DiCE's games are played under."""
    metrics_host: str = "127.0.0.1"
    """Interface of the metrics and health endpoint."""
    metrics_port: Port = 0
    """0 takes a free port."""
