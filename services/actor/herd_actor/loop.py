"""The hot loop: policies act in groups of environments."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from herd.acting.policy import Policy
    from herd.acting.row_state import RowState
    from herd.components.suites.api import BatchedEnvironment, Observation, Transition
    from herd_actor.meters import Meters
    from herd_actor.unroll import UnrollBuilder


@dataclass(slots=True)
class Group:
    """Environments that are stepped together, their state between rows, and the memory for their unrolls."""

    environments: BatchedEnvironment
    state: RowState
    builder: UnrollBuilder
    policy: Policy[Any]
    """Policy that acts in them; groups may share one."""
    in_message: slice
    """Their part of the unrolls in a message."""
    observation: Observation = field(init=False)
    """The row to act on next."""

    def reset(self) -> None:
        """Start games in all environments."""
        self.observation = self.environments.reset()


def play_rows(
    groups: Sequence[Group], num_rows: int, *, before_row: Callable[[int], bool], meters: Meters
) -> Iterator[tuple[Group, Transition]]:
    """Play ``num_rows`` rows in every group in turn; yields each step of a group.

    The actions for a group's next row are requested before the other groups are stepped, so an answer arrives while other environments
    are busy. With one group the order is request, step, request, step. ``before_row(row)`` returns whether to continue.
    """
    asked: deque[tuple[Group, Any]] = deque()
    for row in range(num_rows):
        if not before_row(row):
            return
        for group in groups:
            with meters.timed(meters.inference_seconds):
                rows = group.state.rows(group.observation, wants_state=group.builder.stores_next_state)
                asked.append((group, group.policy.submit(rows)))
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
