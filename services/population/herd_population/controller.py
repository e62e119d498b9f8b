"""Turns members' reports into events for the journal and orders for the members. No I/O and no clock.

The whole state follows from the journal and the members' reports since the process started. A controller restarted with the journal
therefore continues where the previous one ended: `note` applies each event that is on disk, and `heard` returns new ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from herd.protocols.population.journal import Began, Decided, Done, Failed, Returned
from herd.protocols.population.messages import Copied, Order, OwnSetting
from herd_population.rules import choose_partner, is_better, is_ready, perturbed

if TYPE_CHECKING:
    from collections.abc import Callable

    from herd.config.services import PopulationSettings
    from herd.protocols.population.journal import Settings
    from herd.protocols.population.messages import MemberReport

MAX_AHEAD = 1 << 32
"""Largest order number that a controller without its journal accepts from members: more than a run has, and far from overflow."""
Event = Began | Decided | Done | Failed | Returned


@dataclass(slots=True)
class Member:
    """What the controller knows about a member."""

    report: MemberReport | None = None
    """The newest report that was kept; None before the first to this process. A member that died keeps it and its place."""
    pending: Decided | None = None
    """Its pending order, until it is done or has failed."""
    num_episodes: int = 0
    """Games that it had played at the last decision about it."""
    done: int = 0
    """Number of the newest order that it has carried out."""


class Controller:
    """The controller of one population."""

    def __init__(
        self,
        settings: PopulationSettings,
        *,
        num_members: int,
        seed: int,
        is_allowed: Callable[[Settings], bool],
    ) -> None:
        """Start without events; ``is_allowed`` returns whether a member can have these settings."""
        self._settings = settings
        self._seed = seed
        self._is_allowed = is_allowed
        self.members = [Member() for _ in range(num_members)]
        self._last_number = 0

    def objection(self, report: MemberReport) -> str | None:
        """Return why a report is invalid, in one sentence, if its settings or its order number are impossible; None if it is valid."""
        if not self._is_allowed(_values(report)):
            return f"member {report.agent} reports settings that are not of this run's sweep: start every process with the same sweep"
        number = _applied(report)
        if number > self._last_number + MAX_AHEAD:
            return f"member {report.agent} says that it carried out order {number}, and the newest one is {self._last_number}"
        return None

    def heard(self, report: MemberReport) -> list[Event]:
        """Process a member's report; return the resulting events in order, for the journal first and then for `note`."""
        member = self.members[report.agent]
        applied = _applied(report)
        self._last_number = max(self._last_number, applied)  # also after the journal was lost: an order number is never reused
        if applied < member.done:
            return [Returned(member=report.agent, number=applied)]
        pending = member.pending
        if pending is None:
            # A run without episodes of its own since, from an older checkpoint, counts from where it is.
            member.num_episodes = min(member.num_episodes, report.num_episodes)
            return self._decide(report)
        if report.applied is not None and applied == pending.number:
            counts = report.applied
            done = Done(number=applied, member=report.agent, env_frames=counts.env_frames, learner_updates=counts.learner_updates)
            return [done]
        if report.declined is not None and report.declined.number == pending.number:
            return [Failed(number=pending.number, member=report.agent, reason=report.declined.reason)]
        return []

    def keep(self, report: MemberReport) -> None:
        """Keep a report whose events are all noted: other members are compared with, and copy, only what the journal contains already."""
        self.members[report.agent].report = report

    def note(self, event: Event) -> None:
        """Apply an event that is in the journal."""
        if isinstance(event, Began):
            return
        member = self.members[event.member]
        self._last_number = max(self._last_number, event.number)
        match event:
            case Decided():
                member.num_episodes = event.num_episodes
                member.pending = event if event.is_order else None
            case Done():
                member.pending, member.done = None, event.number
            case Failed():
                member.pending = None
            case Returned():
                member.done = event.number

    def order_of(self, agent: int) -> Order | None:
        """Return a member's order; None if there is none."""
        pending = self.members[agent].pending
        if pending is None:
            return None
        copied, copy = None, pending.copy_at(learner_updates=0, env_frames=0)
        if copy is not None:
            copied = Copied(
                donor=copy.donor, applied=copy.donor_applied, learner_updates=copy.donor_updates, env_frames=copy.donor_env_frames
            )
        settings = tuple(OwnSetting(key=key, value=value) for key, value in pending.settings.items())
        return Order(number=pending.number, copied=copied, settings=settings)

    def _decide(self, report: MemberReport) -> list[Event]:
        rules = self._settings
        if report.fitness is None or not is_ready(
            env_frames=report.env_frames,
            burn_in_env_frames=rules.burn_in_env_frames,
            episodes_since=report.num_episodes - self.members[report.agent].num_episodes,
            fitness_episodes=rules.fitness_episodes,
        ):
            return []
        number = self._last_number + 1
        random = Random(f"{self._seed}/{number}")  # depends only on the number, so that a repeated decision is the same
        partner = choose_partner(report.agent, len(self.members), random)
        other = self.members[partner].report
        partner_fitness = None if other is None else other.fitness
        before = _values(report)
        base, checkpoint = before, None
        if other is not None and partner_fitness is not None and is_better(partner_fitness, report.fitness, rules.threshold):
            # Without a checkpoint there is nothing to copy: it continues under its own settings.
            base, checkpoint = (_values(other), other.checkpoint) if other.checkpoint is not None else (before, None)
        after = perturbed(base, random, probability=rules.perturb_probability, factor=rules.perturb_factor, is_allowed=self._is_allowed)
        return [
            Decided(
                number=number,
                member=report.agent,
                env_frames=report.env_frames,
                num_episodes=report.num_episodes,
                fitness=report.fitness,
                partner=partner,
                partner_fitness=partner_fitness,
                donor=None if checkpoint is None else partner,
                donor_applied=None if checkpoint is None or other is None else _applied(other),
                donor_updates=None if checkpoint is None else checkpoint[0],
                donor_env_frames=None if checkpoint is None else checkpoint[1],
                before=before,
                settings=after,
            )
        ]


def _applied(report: MemberReport) -> int:
    return 0 if report.applied is None else report.applied.number


def _values(report: MemberReport) -> Settings:
    return {setting.key: setting.value for setting in report.settings}
