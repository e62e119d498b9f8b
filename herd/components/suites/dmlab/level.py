"""One level of DeepMind Lab, played in its own process, because the Lab never releases the interpreter's lock."""

from __future__ import annotations

from tempfile import gettempdir
from typing import TYPE_CHECKING

import deepmind_lab
import numpy as np

from herd.components.suites.dmlab.cache import LevelCache
from herd.components.suites.dmlab.levels import ACTIONS, level_path
from herd.components.suites.reading import FRAME, WORDS, hashed_words
from herd.components.suites.solo import Played

if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import NDArray

    from herd.components.suites.dmlab import DMLabSettings

_FRAME, _INSTRUCTION = "RGB_INTERLEAVED", "INSTR"
_HELD_OUT_MIXER_SEED = 0x600D5EED
"""Separates the seeds of an evaluation from those of training, which are mixed with 0."""


class LabLevel:
    """A `SoloEnvironment` of `deepmind_lab.Lab`."""

    def __init__(self, settings: DMLabSettings, task: str) -> None:
        self._action_repeat = settings.action_repeat
        self._level_seeds = settings.level_seeds
        # The Lab reads an action as contiguous memory without checking it; the rows of this table are contiguous.
        self._actions = np.array(ACTIONS[settings.action_set], np.intc)
        # All values must be strings.
        config = {"width": str(settings.frame_width), "height": str(settings.frame_height), "logLevel": "WARN"}
        if settings.hold_out:
            config |= {"allowHoldOutLevels": "true", "mixerSeed": str(_HELD_OUT_MIXER_SEED)}
        if settings.dataset_path is not None:
            config["datasetPath"] = settings.dataset_path
        self._lab = deepmind_lab.Lab(
            level_path(task),
            [_FRAME, _INSTRUCTION],
            config=config,
            renderer=settings.renderer,
            level_cache=None if settings.level_cache is None else LevelCache(settings.level_cache),
            temp_folder=gettempdir(),
        )

    def reset(self, seed: int) -> dict[str, NDArray[Any]]:
        """Start a new game."""
        self._lab.reset(seed=seed if self._level_seeds is None else seed % self._level_seeds)
        return self._seen()

    def step(self, action: int) -> Played:
        """Take one agent step. The Lab does not say why a game is over, and shows no last observation."""
        reward = self._lab.step(self._actions[action], num_steps=self._action_repeat)
        if not self._lab.is_running():
            return Played(None, reward, terminated=True)
        return Played(self._seen(), reward)

    def close(self) -> None:
        """Remove the Lab's temporary folder."""
        self._lab.close()

    def _seen(self) -> dict[str, NDArray[Any]]:
        observations = self._lab.observations()
        return {FRAME: observations[_FRAME], WORDS: hashed_words(observations[_INSTRUCTION])}
