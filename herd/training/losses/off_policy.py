"""Metrics of off-policy losses: how far the data is from the policy that is trained."""

from __future__ import annotations

from typing import TYPE_CHECKING

from herd.training.losses.output import Metric

if TYPE_CHECKING:
    from torch import Tensor

    from herd.algorithms.trust_region import Gate
    from herd.training.forward import Forward
    from herd.training.trainer import Losses

REJECTED_REPLAYED = "rejected_share_replayed"
"""Metric: share of the trained rows of replayed unrolls that the trust region rejects."""


def of_online_rows(losses: Losses) -> Losses:
    """Remove the metrics of replayed unrolls, for batches without any."""
    return {name: measured for name, measured in losses.items() if not name.endswith("_replayed")}


def off_policy_metrics(forward: Forward, rhos: Tensor, gate: Gate) -> dict[str, Metric]:
    """Return ``mean_rho`` of all trained rows and, with replay or a trust region, separately of online and of replayed rows.

    ``rhos`` ``[T, B]`` are clipped ratios, 0 at rows that are not trained.
    """
    metrics = {"mean_rho": Metric(rhos.sum() / forward.num_trained)}
    origins = {"online": forward.trained & ~forward.is_replayed}
    if forward.has_replay:
        origins["replayed"] = forward.trained & forward.is_replayed
    for origin, rows in origins.items():
        num_rows = rows.sum()
        if forward.has_replay:
            metrics[f"mean_rho_{origin}"] = Metric(rhos.masked_fill(~rows, 0.0).sum(), num_rows)
        if gate.divergence is not None:
            metrics[f"rejected_share_{origin}"] = Metric((rows & ~gate.accepted).sum(), num_rows)
            metrics[f"kl_{origin}"] = Metric(gate.divergence.masked_fill(~rows, 0.0).sum(), num_rows)
    return metrics
