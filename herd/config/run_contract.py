"""The unroll layout that follows from a run's settings and spaces; all services derive it in the same way."""

from __future__ import annotations

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
