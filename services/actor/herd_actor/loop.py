"""The hot loop: a policy acts in groups of environments."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from herd.acting.policy import Policy
    from herd.acting.row_state import RowState
    from herd.envs.api import BatchedEnvironment, Observation, Transition
    from herd_actor.meters import Meters
    from herd_actor.unroll import UnrollBuilder


@dataclass(slots=True)
class Group:
    """Environments that are stepped together, what they carry from row to row, and where their unrolls are written."""

    environments: BatchedEnvironment
    state: RowState
    builder: UnrollBuilder
    policy: Policy[Any]
    """Who acts in them; groups may share one."""
    in_message: slice
    """Their share of the unrolls that travel together."""
    observation: Observation = field(init=False)
    """The row to act on next."""

    def reset(self) -> None:
        """Start games everywhere."""
        self.observation = self.environments.reset()


def play_rows(
    groups: Sequence[Group], num_rows: int, *, before_row: Callable[[int], bool], meters: Meters
) -> Iterator[tuple[Group, Transition]]:
    """Every group acts on ``num_rows`` rows, in turn; each of its steps is handed over when it was taken.

    A group is asked about its next row before the others are stepped, and stepped once all of them are asked: so an answer comes while
    other environments are busy. With one group that is ask, step, ask, step. ``before_row(row)`` says whether to go on.
    """
    asked: deque[tuple[Group, Any]] = deque()
    for row in range(num_rows):
        if not before_row(row):
            return
        for group in groups:
            with meters.timed(meters.inference_seconds):
                asked.append((group, group.policy.submit(group.state.rows(group.observation))))
            if len(asked) == len(groups):
                yield _step(*asked.popleft(), meters)
    while asked:
        yield _step(*asked.popleft(), meters)


def _step(group: Group, ticket: Any, meters: Meters) -> tuple[Group, Transition]:
    with meters.timed(meters.inference_seconds):
        step = group.policy.collect(ticket)
    with meters.timed(meters.env_step_seconds):
        transition = group.environments.step(step.actions)
    group.state.advance(step, transition)
    group.builder.add(step, transition)
    group.observation = transition.observation
    return group, transition
