"""An actor without processes: games played in one thread under a local policy, for benchmarks that train in the same thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

from herd_actor.unroll import UnrollBuilder

from herd.acting.row_state import RowState
from herd.acting.temperatures import Temperatures

if TYPE_CHECKING:
    from collections.abc import Iterator

    from herd.acting.policy import LocalPolicy
    from herd.components.suites.api import BatchedEnvironment, Transition
    from herd.config.run import RunSettings
    from herd.contract.spaces import EnvSpec
    from herd.contract.unroll import Array, UnrollLayout


class SelfPlay:
    """Games of one group of environments, one unroll after the other."""

    def __init__(
        self,
        settings: RunSettings,
        spec: EnvSpec,
        layout: UnrollLayout,
        *,
        environments: BatchedEnvironment,
        policy: LocalPolicy,
    ) -> None:
        """Start a game in each of ``actor.environments`` environments."""
        self._layout = layout
        self._environments = environments
        self._policy = policy
        self._num_environments = settings.actor.environments
        self._state = RowState(spec, settings.network, Temperatures(), num_environments=self._num_environments)
        self._builder = UnrollBuilder(layout, self._state, task_ids=environments.task_ids, first_slot=0)
        self._observation = environments.reset()

    def play(self) -> Iterator[Transition]:
        """Play one unroll; yields each step, whose arrays the next one may overwrite."""
        self._builder.begin(self._layout.allocate(self._num_environments), self._observation)
        for _ in range(self._layout.new_steps):
            step = self._policy.collect(self._policy.submit(self._state.rows(self._observation)))
            transition = self._environments.step(step.actions)
            self._state.advance(step, transition)
            self._builder.add(step, transition)
            self._observation = transition.observation
            yield transition

    def finish(self) -> dict[str, Array]:
        """Return the arrays [E, ...] of the unroll that was played."""
        return self._builder.finish()
