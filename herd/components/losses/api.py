"""What a loss is given and what it returns, and the metrics that off-policy losses share.

Legend: T trained agent steps, B unrolls, P parameters of an action distribution, A actions, F features, M entries of a mask.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from torch import Tensor  # noqa: TC002  a NamedTuple's

if TYPE_CHECKING:
    from herd.algorithms.actor_critic import LossTerms
    from herd.algorithms.dice import DiceTerms
    from herd.algorithms.distributions import Applied
    from herd.components.actions.api import ActionDistribution


@dataclass(frozen=True)
class Forward:
    """The rows after the burn-in. Row t holds an observation, the action taken there and the result of that step; row T bootstraps."""

    features: Tensor
    """float32 [T+1, B, F], the input of the heads; with gradient."""
    auxiliary: Tensor | None
    """Output of the auxiliary head, with gradient; for pixel control float32 [T+1, B, A, Y, X]. None without one."""
    frames: Tensor | None
    """uint8 [T+1, B, H, W, C], the newest plane of each row; None if observations are vectors only."""
    game_reset: Tensor
    """bool [T+1, B], whether the row's plane is the first of its game."""
    distribution: ActionDistribution
    """What makes policies of parameters."""
    parameters: Tensor
    """float32 [T+1, B, P] of the policy being trained; with the dueling head the advantages A(x, .). With gradient."""
    action_masks: Tensor | None
    """bool [T+1, B, M], what is allowed, for policies that a loss makes of parameters itself; None if these actions have no mask."""
    target: Applied
    """The policies being trained, of rows 0..T-1 at the temperatures that their actions were drawn with; with gradient."""
    behaviour: Applied
    """The policies that the actions were drawn from, of the same rows."""
    values: Tensor
    """float32 [T+1, B], un-normalised values of the acting task's head; with gradient."""
    value_scale: Tensor | None
    """float32 [B], divisor of the value loss's errors and of the policy gradient's advantages. None means 1."""
    inverse_temperature: Tensor
    """float32 [T, B], 1/tau that the actions were drawn with."""
    actions: Tensor
    """[T, B, *shape], int64 or float32."""
    rewards: Tensor
    """float32 [T, B], shaped."""
    terminated: Tensor
    """bool [T, B], whether the episode ended with this step; later rewards do not count for it."""
    truncated: Tensor
    """bool [T, B], whether a time limit ended the game; the next row is invalid and holds the final observation, whose value bootstraps."""
    trained: Tensor
    """bool [T, B], whether the row enters the loss. An invalid row only reset the game and cuts traces."""
    is_replayed: Tensor
    """bool [B]."""
    has_replay: bool
    """Whether batches of this run may hold replayed unrolls."""
    has_entropy_bonus: Tensor
    """bool [B]: online unrolls (LASER, section 5.1), or all if only replayed ones are trained on."""
    task_ids: Tensor
    """int64 [B]."""
    discount: float
    """gamma, per agent step."""
    next_core_state: Tensor
    """float32 [B, S], without gradient: the state before the first row of the next unroll, including its burn-in."""
    num_trained: Tensor
    """Trained rows of the whole batch over all shards, at least 1; this may be a part of the batch."""


class Metric(NamedTuple):
    """A number about a batch as a fraction: numerators and denominators of its parts are summed, and then divided."""

    numerator: Tensor
    """Scalar on the device."""
    denominator: Tensor | None = None
    """Scalar; None: the metric is the sum of the numerators."""
    cost: float | None = None
    """Factor of this term in the total; None: the metric is not a term of the loss."""


class LossOutput(NamedTuple):
    """The result for one part of a batch."""

    total: Tensor
    """Scalar with gradient, summed over the accepted rows. The trainer applies ``loss.reduction``."""
    metrics: dict[str, Metric]
    """Metrics by name, with the same names in every part. Those with a cost are drawn as terms of the loss: name them ``loss_...``."""
    targets: Tensor | None = None
    """float32 [T, B], targets of the values, un-normalised and without gradient; ``value_scaling.kind: popart`` computes its statistics
    from them. None: the loss has none."""
    accepted: Tensor | None = None
    """bool [T, B], the trained rows that entered the total. Other rows enter neither auxiliary losses nor statistics of the values.
    None: all trained rows entered the total."""


Loss = Callable[[Forward], LossOutput]


def loss_metrics(
    forward: Forward, terms: LossTerms | DiceTerms, losses: Mapping[str, tuple[Tensor, float]], *, entropy_cost: float
) -> dict[str, Metric]:
    """Return the metrics that all losses with a V-trace critic have in common.

    These are ``losses`` (by name: sum over the accepted rows, factor in the total), ``entropy``, and ``mean_rho`` of all trained rows and,
    with replay or a trust region, separately of online and of replayed rows.
    """
    rhos, gate = terms.rhos, terms.gate
    num_accepted = gate.accepted.sum()
    metrics = {name: Metric(total, num_accepted, cost=cost) for name, (total, cost) in losses.items()}
    metrics["entropy"] = Metric(terms.entropy, (gate.accepted & forward.has_entropy_bonus).sum(), cost=-entropy_cost)
    metrics["mean_rho"] = Metric(rhos.sum() / forward.num_trained)
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
