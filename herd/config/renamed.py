"""Settings of older experiment files and their present names."""

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
    "algorithm.loss": "is now loss.kind, and actor_critic is now impala",
    "network.head": "was removed: loss.kind determines the head",
    "bandit.agents": "is now agents, and applies to the whole run",
}


def renamed(dotted: str) -> str | None:
    """Say what became of a setting of older versions, as a continuation of its name; None if no version had it."""
    return _NOW.get(dotted)
