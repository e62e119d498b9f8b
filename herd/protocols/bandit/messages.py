"""Messages between actors or evaluators and the bandit; docs/messaging.md has the rules that go with them."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import AllowInfNan, FailFast, Field

from herd.rpc.codec import Conversation
from herd.rpc.envelope import TO_AGENT, Count, Fields, Message, Role

MAX_GAMES = 256
"""Games that one bandit exchange may end or begin: 35 ms of the bandit's time, so that no request delays the others for long."""
AnyFloat = Annotated[float, AllowInfNan(True)]
"""May be NaN or infinite: one bad game must not make a message unreadable that reports other games too."""


class FinishedEpisode(Fields):
    """One finished game, as reported to the bandit."""

    task_id: Count
    environment_slot: Count
    episode_id: Count
    inverse_temperature: AnyFloat
    """1/tau of the whole game."""
    episode_return: AnyFloat
    """Raw undiscounted sum of rewards."""
    agent_steps: Count
    reused: bool
    """The game was played under the last temperature of its slot, because no answer came in time."""


class StartingEpisode(Fields):
    """One game that needs a temperature."""

    task_id: Count
    environment_slot: Count
    episode_id: Count


class HandedTemperature(Fields):
    """The temperature of one game."""

    environment_slot: Count
    episode_id: Count
    inverse_temperature: Annotated[float, Field(ge=0.0)]


class ExchangeTemperatures(Message):
    """Actor or evaluator to bandit: the games that ended and the games that need temperatures."""

    senders: ClassVar[frozenset[Role]] = frozenset({"actor", "viewer"})
    names: ClassVar[frozenset[str]] = TO_AGENT | {"id", "client"}
    """``id`` is 1, 2, ... of this client; a request sent again keeps its number."""
    type: Literal["exchange_temperatures"] = "exchange_temperatures"
    purpose: Literal["training", "evaluation"]
    """Evaluation gets the best temperature and is not counted."""
    finished: Annotated[tuple[FinishedEpisode, ...], Field(max_length=MAX_GAMES), FailFast()]
    starting: Annotated[tuple[StartingEpisode, ...], Field(max_length=MAX_GAMES), FailFast()]

    def may_come_from(self, role: Role) -> bool:
        """Return whether a client of ``role`` may send this message: a viewer only requests temperatures that are not counted."""
        return super().may_come_from(role) and (role != "viewer" or self.purpose == "evaluation")


class Temperatures(Message):
    """Bandit to actor or evaluator: temperatures for the games that need them."""

    type: Literal["temperatures"] = "temperatures"
    handed: Annotated[tuple[HandedTemperature, ...], Field(max_length=MAX_GAMES), FailFast()]


BANDIT = Conversation("bandit", ExchangeTemperatures, Temperatures)
