"""What the bandit has to do, where a run has one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from herd.bench.planning.sheet import shown

if TYPE_CHECKING:
    from herd.bench.planning.demand import Demand
    from herd.bench.planning.figures import Figures
    from herd.bench.planning.options import PlanOptions
    from herd.bench.planning.sheet import Sheet

REQUEST_BYTES = 250
"""A finished game and a starting one, with what names them: 120 + 45 bytes and a header."""


@dataclass(frozen=True, slots=True)
class BanditPlan:
    """The one bandit."""

    requests: float
    """Per second."""
    cores: float
    bytes_each_way: float


def plan_bandit(options: PlanOptions, figures: Figures, demand: Demand, sheet: Sheet) -> BanditPlan:
    """A request at each game's end."""
    sheet.section("bandit")
    requests = sheet.line(
        "requests/s",
        f"{shown(demand.steps)} steps / {shown(options.game_steps)} of a game (--game_steps)",
        demand.steps / options.game_steps,
    )
    spent = figures.bandit.microseconds_per_request
    cores = sheet.line("cores", f"{shown(requests)} x {shown(spent)} us / 1e6", requests * spent / 1e6)
    if requests > figures.bandit.answers_per_second:
        sheet.note(
            f"one bandit answered {shown(figures.bandit.answers_per_second)} requests/s at most, and there is only one: games of "
            f"{shown(options.game_steps)} steps end too often for it, and actors reuse temperatures"
        )
    sheet.note(f"bandit: {figures.bandit.source}")
    return BanditPlan(requests, cores, requests * REQUEST_BYTES)
