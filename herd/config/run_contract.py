"""The contract of a run: what its processes must agree on before they exchange unrolls and weights.

It consists of spaces, network and unroll layout. Settings of the learner alone (learning rate, batch size, loss costs) are not part of it,
so they may change in a rolling upgrade.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from herd.contract.unroll import UnrollLayout

if TYPE_CHECKING:
    from herd.config.settings import RunSettings
    from herd.contract.spaces import EnvSpec


def run_layout(settings: RunSettings, spec: EnvSpec) -> UnrollLayout:
    """Return the layout of this run's unrolls."""
    return UnrollLayout(
        unroll_length=settings.algorithm.burn_in + settings.algorithm.unroll_length,
        burn_in=settings.algorithm.burn_in,
        frame_stack=spec.frame_stack,
        frame_shape=spec.frame_shape,
        num_actions=spec.num_actions,
        core_size=0 if settings.network.core == "none" else settings.network.core_size,
        vector_size=spec.vector_size,
        instruction_length=spec.instruction_length,
        num_tasks=len(spec.task_names),
        num_words=spec.num_words,
    )


def contract_digest(settings: RunSettings, spec: EnvSpec) -> str:
    """Hex SHA-256 of the contract part of ``settings``; equal in all processes of a run."""
    contract = {
        "spec": asdict(spec),
        "network": settings.network.model_dump(mode="json"),
        "head": settings.loss.head,
        "unroll_length": settings.algorithm.unroll_length,
        "reward_shaping": settings.algorithm.reward_shaping,
    }
    if settings.value_scaling.kind != "none":
        contract["num_values"] = settings.value_scaling.num_values(len(spec.task_names))
    if settings.algorithm.burn_in:
        contract["burn_in"] = settings.algorithm.burn_in
    return hashlib.sha256(json.dumps(contract, sort_keys=True).encode()).hexdigest()
