"""From a rate of frames to a cluster. No processes, no files: settings and figures in, a plan out.

Legend: F env frames per second, T agent steps per unroll, E environments per actor, B fresh unrolls per batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from herd.bench.planning.actors import ActorPlan, plan_actors
from herd.bench.planning.bandit import BanditPlan, plan_bandit
from herd.bench.planning.demand import Demand, work_out_demand
from herd.bench.planning.learners import LearnerPlan, plan_learners
from herd.bench.planning.pods import Pod, plan_pods
from herd.bench.planning.servers import ServerPlan, plan_servers
from herd.bench.planning.sheet import Sheet

if TYPE_CHECKING:
    from herd.bench.planning.figures import Figures
    from herd.bench.planning.options import PlanOptions
    from herd.config.settings import RunSettings


@dataclass(frozen=True, slots=True)
class Plan:
    """What is needed, and how it follows."""

    demand: Demand
    actors: ActorPlan
    learners: LearnerPlan
    servers: ServerPlan
    bandit: BanditPlan | None
    pods: tuple[Pod, ...]
    sheet: Sheet


def make_plan(settings: RunSettings, options: PlanOptions, figures: Figures) -> Plan:
    """Work everything out.

    Raises:
        FiguresError: a figure that this run needs is neither measured nor given.

    """
    sheet = Sheet()
    demand = work_out_demand(settings, options, figures, sheet)
    actors = plan_actors(settings, options, demand, sheet)
    learners = plan_learners(settings, options, figures, demand=demand, actors=actors, sheet=sheet)
    servers = plan_servers(options, figures, demand=demand, actors=actors, sheet=sheet)
    bandit = plan_bandit(options, figures, demand, sheet) if settings.has_bandit else None
    pods = plan_pods(settings, figures, demand=demand, actors=actors, learners=learners, servers=servers, bandit=bandit, sheet=sheet)
    return Plan(demand, actors, learners, servers, bandit, pods, sheet)
