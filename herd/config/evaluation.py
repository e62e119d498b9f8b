"""Evaluation during a run: a separate process plays whole games with frozen weights at intervals."""

from __future__ import annotations

from typing import Literal

from herd.components.settings import PositiveFloat, PositiveInt, Section


class EvaluationSettings(Section):
    """The evaluator: at intervals, it freezes the newest weights and plays whole games of every task with them."""

    interval_seconds: PositiveFloat | None = None
    """Seconds between the starts of two evaluations. If one takes longer, the next one starts at once. Null: the run has no evaluator."""
    episodes: PositiveInt = 10
    """Number of games of each task in an evaluation."""
    protocol: Literal["impala-atari", "impala-dmlab", "machado", "saber"] | None = None
    """Protocol that sets the environments (docs/evaluation.md). The number of games stays ``episodes``. Null: as in training."""
    final: bool = False
    """``herd train`` evaluates the last checkpoint before it exits, if the run reached its stop condition."""
