"""Settings of older experiment files, and what they are called now."""

from __future__ import annotations

_TO_LOSS = {
    name: name
    for name in (
        "correction",
        "clip_rho_threshold",
        "clip_c_threshold",
        "clip_pg_rho_threshold",
        "lambda_",
        "q_estimate",
        "log_epsilon",
        "baseline_cost",
        "entropy_cost",
        "q_cost",
        "policy_cost",
        "retrace_bootstrap",
    )
} | {"dice_ablation": "ablation", "loss_reduction": "reduction"}

_NOW = {
    **{f"algorithm.{old}": f"is now loss.{new}" for old, new in _TO_LOSS.items()},
    "algorithm.loss": "is now loss.kind, and actor_critic is impala",
    "network.head": "is gone: it follows from loss.kind",
    "bandit.agents": "is now agents, for the whole run",
}


def renamed(dotted: str) -> str | None:
    """What became of a setting that older versions had, to put behind its name; None where none had it."""
    return _NOW.get(dotted)
