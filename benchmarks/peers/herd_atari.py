"""Herd's suite ``atari``, whose environments write down every whole game: ``env.suite recorded_atari``.

Herd has its own preprocessing of Atari, in C++, so no environment inside it could write games down. This suite therefore wraps it, between
environment and actor; the games are the same. Rewards are raw there, and a lost life does not end a game.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from benchmarks.peers.tasks import EpisodeLog
from herd.components.suites import atari

if TYPE_CHECKING:
    from herd.components.suites.api import Slots, Transition
    from herd.contract.spaces import EnvSpec


class RecordedAtariSettings(atari.AtariSettings):
    """The settings of Atari."""

    suite: Literal["recorded_atari"] = "recorded_atari"  # type: ignore[assignment]
    """Atari 2600 games that are written down."""


class RecordedAtari:
    """Herd's environments of Atari, with a log of the games that end."""

    def __init__(self, settings: RecordedAtariSettings, spec: EnvSpec, slots: Slots) -> None:
        self._environments = atari.PART.load()(settings, spec, slots)
        self._action_repeat = settings.action_repeat
        self._log = EpisodeLog()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._environments, name)

    def step(self, actions: Any) -> Transition:
        """Step, and write down what ended; frames are agent steps times the action repeat."""
        transition: Transition = self._environments.step(actions)
        for game in transition.finished:
            self._log.add(game.agent_steps * self._action_repeat, game.episode_return)
        return transition

    def close(self) -> None:
        """Close the file and the environments."""
        self._log.close()
        self._environments.close()


PART = replace(atari.PART, kind="recorded_atari", settings=RecordedAtariSettings, code=f"{__name__}:RecordedAtari")
