"""An agent as a member of a population: its state, the part kept in checkpoints, and its reports to the controller."""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict

from herd.components.suites.scores import human_normalised
from herd.protocols.population.journal import Copy, Settings
from herd.protocols.population.messages import Applied, Declined, MemberReport, OwnSetting
from herd.telemetry.logs import warn_limited

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from herd.components.suites.scores import ReferenceScores
    from herd.protocols.population.messages import Order


OF_GAMES = ("human_normalised", "episode_return")
"""A fitness that is computed here; any other is a number of metrics.jsonl."""


class Membership(BaseModel):
    """The member's state in a checkpoint. An order is carried out when the checkpoint with the new state is on disk."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    settings: Settings
    """Its own settings, in effect."""
    applied: Applied | None = None
    """The newest order that it has carried out."""
    ancestry: tuple[Copy, ...] = ()
    """The copies that led to its weights, oldest first: those of its donor, then its own."""

    def after(self, order: Order, donor: Membership | None, *, agent: int, learner_updates: int, env_frames: int) -> Membership:
        """Return the state after ``order``, at these counts; ``donor`` is the state in the copied checkpoint."""
        ancestry = self.ancestry
        if order.copied is not None and donor is not None:
            copied = order.copied
            copy = Copy(
                number=order.number,
                receiver=agent,
                donor=copied.donor,
                donor_applied=copied.applied,
                donor_updates=copied.learner_updates,
                donor_env_frames=copied.env_frames,
                learner_updates=learner_updates,
                env_frames=env_frames,
            )
            ancestry = (*donor.ancestry, copy)
        return Membership(
            settings={setting.key: setting.value for setting in order.settings},
            applied=Applied(number=order.number, env_frames=env_frames, learner_updates=learner_updates),
            ancestry=ancestry,
        )


class FitnessWindow:
    """The newest games of all tasks, at most ``num_games``, since the member has its present weights.

    Games that were under way when it got them, at most one per environment, also count.
    """

    def __init__(self, task_names: Sequence[str], references: Mapping[str, ReferenceScores], *, num_games: int) -> None:
        """``references``: known reference scores, by task."""
        self._names = task_names
        self._references = references
        self._games: deque[tuple[int, float]] = deque(maxlen=num_games)

    @property
    def games(self) -> list[tuple[int, float]]:
        """(task_id, raw return) of each, oldest first."""
        return list(self._games)

    @property
    def is_full(self) -> bool:
        """Whether there are enough games."""
        return len(self._games) == self._games.maxlen

    def add(self, task_id: int, episode_return: float) -> None:
        """Add a finished game."""
        self._games.append((task_id, episode_return))

    def begin(self, games: Iterable[tuple[int, float]] = ()) -> None:
        """Replace the games."""
        self._games.clear()
        self._games.extend((int(task_id), float(episode_return)) for task_id, episode_return in games)

    def episode_return(self) -> float | None:
        """Mean raw return; None before the window is full."""
        return math.fsum(episode_return for _, episode_return in self._games) / len(self._games) if self.is_full else None

    def human_normalised(self) -> float | None:
        """Mean over tasks of the human-normalised mean return, each at most 1; None before the window is full, with a game of each."""
        if not self.is_full:
            return None
        returns: dict[int, list[float]] = {task_id: [] for task_id in range(len(self._names))}
        for task_id, episode_return in self._games:
            returns[task_id].append(episode_return)
        if not all(returns.values()):
            return None
        scores = [
            min(1.0, float(human_normalised(math.fsum(games) / len(games), self._references[self._names[task_id]])))
            for task_id, games in returns.items()
        ]
        return math.fsum(scores) / len(scores)


class Member:
    """The running member: its state, its newest games and checkpoint, and the order that it could not carry out."""

    def __init__(self, membership: Membership, window: FitnessWindow, *, fitness: str) -> None:
        """Create a member; ``fitness`` is the setting ``population.fitness``."""
        self.membership = membership
        self.window = window
        self.checkpoint: tuple[int, int] | None = None
        """(learner_updates, env_frames) of the newest checkpoint on disk."""
        self._fitness = fitness
        self.has_unlogged_order = False
        """Whether an order has been carried out since the last point of the learning curve."""
        self._declined: Declined | None = None
        self._point_fitness: float | None = None

    def restore(self, state: Mapping[str, Any], *, learner_updates: int, env_frames: int) -> None:
        """Restore the state from a checkpoint.

        Raises:
            KeyError, ValueError: the checkpoint has no member, or one of another sweep.
        """
        membership = Membership.model_validate(state["membership"])
        if membership.settings.keys() != self.membership.settings.keys():
            raise ValueError(f"is a member of another sweep ({', '.join(membership.settings)})")
        self.membership = membership
        self.window.begin(state["games"])
        self.checkpoint = (learner_updates, env_frames)

    def as_json(self, membership: Membership | None = None) -> dict[str, Any]:
        """Return the state for a checkpoint, current or with another membership; with new weights its games are reset."""
        after = membership or self.membership
        games = self.window.games if after.ancestry == self.membership.ancestry else []
        return {"membership": after.model_dump(mode="json"), "games": games}

    def become(self, membership: Membership) -> None:
        """Note that an order has been carried out."""
        if membership.ancestry != self.membership.ancestry:
            self.window.begin()
            self._point_fitness = None
        self.membership = membership
        self.has_unlogged_order = True
        self._declined = None

    def decline(self, order: Order, reason: str) -> None:
        """Note that an order cannot be carried out; no part of it was done."""
        self._declined = Declined(number=order.number, reason=reason[:1024])

    @property
    def declined_reason(self) -> str | None:
        """Why the newest order could not be carried out; None if it could."""
        return None if self._declined is None else self._declined.reason

    def is_new(self, order: Order | None) -> bool:
        """Return whether there is a new order to carry out."""
        if order is None or (self._declined is not None and self._declined.number == order.number):
            return False
        return self.membership.applied is None or order.number > self.membership.applied.number

    def logged(self, point: Mapping[str, Any]) -> None:
        """Note a point of the learning curve; the fitness may be one of its values."""
        self.has_unlogged_order = False
        if self._fitness not in (*OF_GAMES, *point) and point["learner_updates"]:
            warn_limited("fitness", "metrics.jsonl has no number of this name: nothing is decided", **{"population.fitness": self._fitness})
        value = point.get(self._fitness)
        self._point_fitness = float(value) if isinstance(value, float | int) and math.isfinite(value) else None

    @property
    def fitness(self) -> float | None:
        """Return the fitness; None while too few games have been played under its weights."""
        if self._fitness == "human_normalised":
            return self.window.human_normalised()
        if self._fitness == "episode_return":
            return self.window.episode_return()
        return self._point_fitness if self.window.is_full else None

    def point(self) -> dict[str, Any]:
        """Return the member's values for the learning curve."""
        applied, ancestry = self.membership.applied, self.membership.ancestry
        return {
            "number": 0 if applied is None else applied.number,
            "copied": ancestry[-1].number if ancestry else 0,
            "fitness": self.fitness,
            "settings": self.membership.settings,
        }

    def report(self) -> dict[str, Any]:
        """Return the member's part of report.json."""
        return {"fitness": self.fitness, **self.membership.model_dump(mode="json")}

    def member_report(
        self, *, run_id: str, agent: int, contract: str, env_frames: int, learner_updates: int, num_episodes: int
    ) -> MemberReport:
        """Return the report to the controller."""
        return MemberReport(
            run=run_id,
            agent=agent,
            contract=contract,
            env_frames=env_frames,
            learner_updates=learner_updates,
            num_episodes=num_episodes,
            fitness=self.fitness,
            checkpoint=self.checkpoint,
            settings=tuple(OwnSetting(key=key, value=value) for key, value in self.membership.settings.items()),
            applied=self.membership.applied,
            declined=self._declined,
        )
