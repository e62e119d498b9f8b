"""One scenario of ViZDoom. Its engine is a child process of the process that plays it."""

from __future__ import annotations

import os
import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import cv2
import numpy as np
import vizdoom
from vizdoom import DoomGame, ScreenFormat, ScreenResolution

from herd.components.suites.reading import FRAME
from herd.components.suites.solo import Played
from herd.components.suites.vizdoom import SCENARIOS, actions_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from herd.components.suites.vizdoom import ViZDoomSettings

_SCREENS = ((ScreenResolution.RES_160X120, 160, 120), (ScreenResolution.RES_320X240, 320, 240), (ScreenResolution.RES_640X480, 640, 480))
"""Resolutions. The first one that is large enough is rendered and then resized."""


class Game:
    """A `SoloEnvironment` of a `vizdoom.DoomGame`."""

    def __init__(self, settings: ViZDoomSettings, task: str) -> None:
        self._action_repeat = settings.action_repeat
        self._size = (settings.frame_width, settings.frame_height)
        own = SCENARIOS[task]
        self._actions = [[float(button in action) for button in own] for action in actions_of(settings.tasks)]
        cv2.setNumThreads(1)
        self._game = DoomGame()
        self._game.load_config(str(Path(vizdoom.scenarios_path) / f"{task}.cfg"))
        buttons = tuple(button.name for button in self._game.get_available_buttons())
        if buttons != own:
            raise RuntimeError(f"{task} has the buttons {', '.join(buttons)} in this vizdoom, expected {', '.join(own)}")
        screen = next((screen for screen, *size in _SCREENS if np.all(np.array(size) >= self._size)), _SCREENS[-1][0])
        self._game.set_screen_resolution(screen)
        self._game.set_screen_format(ScreenFormat.RGB24)
        self._game.set_window_visible(False)
        self._game.set_sound_enabled(False)
        # The engine writes its settings into the current folder.
        self._folder = TemporaryDirectory(prefix="herd-vizdoom-")
        os.chdir(self._folder.name)
        self._game.set_doom_config_path(str(Path(self._folder.name) / "vizdoom.ini"))
        self._game.init()
        # Both processes have opened their shared memory. Without its name, it is freed when they end for any reason.
        for name in set(re.findall(r"/\S+/ViZDoom(?:SM|MQ)\S+", Path("/proc/self/maps").read_text(encoding="utf-8"))):
            os.unlink(name)

    def reset(self, seed: int) -> dict[str, NDArray[np.uint8]]:
        """Start a new game."""
        self._game.set_seed(seed)
        self._game.new_episode()
        return self._seen()

    def step(self, action: int) -> Played:
        """Take one agent step. After the end of a game there is no screen."""
        reward = self._game.make_action(self._actions[action], self._action_repeat)
        if not self._game.is_episode_finished():
            return Played(self._seen(), reward)
        timed_out = self._game.is_episode_timeout_reached() and not self._game.is_player_dead()
        return Played(None, reward, terminated=not timed_out, truncated=timed_out)

    def close(self) -> None:
        """End the engine and remove the files that it wrote."""
        self._game.close()
        os.chdir("/")
        self._folder.cleanup()

    def _seen(self) -> dict[str, NDArray[np.uint8]]:
        state = self._game.get_state()
        if state is None:
            raise RuntimeError("the engine returned no screen in the middle of a game")
        screen: NDArray[np.uint8] = state.screen_buffer
        if (screen.shape[1], screen.shape[0]) != self._size:
            screen = np.asarray(cv2.resize(screen, self._size, interpolation=cv2.INTER_AREA), np.uint8)
        return {FRAME: screen}
