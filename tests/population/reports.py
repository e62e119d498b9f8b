"""Reports of members, as a controller receives them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from herd_population.controller import Controller

from herd.config.services import PopulationSettings
from herd.protocols.population.messages import Applied, Declined, MemberReport, OwnSetting

if TYPE_CHECKING:
    from collections.abc import Iterable

RULES = PopulationSettings(strategy="pbt", fitness="episode_return", fitness_episodes=100, burn_in_env_frames=1000)
SETTINGS = {"optimizer.learning_rate": 1e-3, "loss.entropy_cost": 1e-2}


def controller_of(num_members: int = 2, events: Iterable[Any] = (), **changes: Any) -> Controller:
    """The controller of a population that allows every value of `SETTINGS`, after ``events``."""
    allows = {"is_allowed": lambda values: values.keys() == SETTINGS.keys()}
    controller = Controller(RULES, **{"num_members": num_members, "seed": 5, **allows, **changes})
    for event in events:
        controller.note(event)
    return controller


def report_of(agent: int, **changes: Any) -> MemberReport:
    """A report of a member after its burn-in; ``settings``, ``applied`` and ``declined`` have short forms."""
    settings = changes.pop("settings", SETTINGS)
    applied, declined = changes.pop("applied", None), changes.pop("declined", None)
    fields: dict[str, Any] = {
        "id": 1,
        "run": "run",
        "agent": agent,
        "contract": "c",
        "env_frames": 5000,
        "learner_updates": 50,
        "num_episodes": 100,
        "fitness": 0.5,
        "checkpoint": (40, 4000),
        "settings": tuple(OwnSetting(key=key, value=value) for key, value in settings.items()),
        "applied": None if applied is None else Applied(number=applied, env_frames=5000, learner_updates=50),
        "declined": None if declined is None else Declined(number=declined, reason="no disk"),
    }
    return MemberReport(**fields | changes)


def play(controller: Controller, report: MemberReport) -> list[Any]:
    """Handle a report as a server with a working journal does."""
    events = controller.heard(report)
    for event in events:
        controller.note(event)
    controller.keep(report)
    return list(events)
