"""Plays one Atari game, written frame by frame over plain ``ALEInterface``: slow, and independent of the C++ vector environment."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from ale_py import Action, ALEInterface, LoggerMode, roms
from numpy.typing import NDArray

from herd.components.suites.atari import AtariSettings


@dataclass
class SlowRow:
    stack: NDArray[np.uint8]
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    valid: bool = True
    game_over: bool = False
    episode_return: float = 0.0
    agent_steps: int = 0


class SlowAtari:
    """Plays ``settings`` with exactly ``num_noops`` no-ops at every start."""

    def __init__(self, settings: AtariSettings, seed: int, num_noops: int) -> None:
        ALEInterface.setLoggerMode(LoggerMode.Error)
        self.settings = settings
        self.num_noops = num_noops
        self.ale = ALEInterface()
        self.ale.setFloat("repeat_action_probability", settings.sticky_action_probability)
        self.ale.setInt("random_seed", seed)
        rom = roms.get_rom_path(settings.tasks[0])
        assert rom is not None
        self.ale.loadROM(rom)
        self.actions = self.ale.getLegalActionSet() if settings.action_set == "full" else self.ale.getMinimalActionSet()
        self.over = False

    def reset(self) -> SlowRow:
        self.ale.reset_game()
        if self.settings.fire_on_reset and Action.FIRE in self.actions:
            self.ale.act(Action.FIRE)
        for _ in range(self.num_noops):
            self.ale.act(Action.NOOP)
        self.planes = [np.zeros_like(self.resized(self.screen())) for _ in range(self.settings.frame_stack - 1)]
        self.planes.append(self.resized(self.screen()))
        self.episode_return, self.agent_steps, self.over = 0.0, 0, False
        return SlowRow(self.stack())

    def step(self, action: int) -> SlowRow:
        if self.over:
            row = self.reset()
            row.valid = False
            return row
        lives, reward, screens = self.ale.lives(), 0.0, []
        for _ in range(self.settings.action_repeat):
            reward += self.ale.act(self.actions[action])
            screens.append(self.screen())
            if self.ale.game_over():
                break
        screen = np.maximum(*screens[-2:]) if self.settings.max_pool and len(screens) > 1 else screens[-1]
        self.planes = [*self.planes[1:], self.resized(screen)]
        self.episode_return += reward
        self.agent_steps += 1
        game_over = self.ale.game_over()
        lost_life = self.settings.life_loss_ends_episode and 0 < self.ale.lives() < lives
        limit = self.ale.getEpisodeFrameNumber() >= self.settings.max_episode_frames
        self.over = game_over or limit
        terminated = game_over or lost_life
        return SlowRow(self.stack(), reward, terminated, limit and not terminated, True, game_over, self.episode_return, self.agent_steps)

    def screen(self) -> NDArray[np.uint8]:
        return self.ale.getScreenGrayscale() if self.settings.grayscale else self.ale.getScreenRGB()

    def resized(self, screen: NDArray[np.uint8]) -> NDArray[np.uint8]:
        size = (self.settings.frame_width, self.settings.frame_height)
        image = screen if screen.shape[1::-1] == size else cv2.resize(screen, size, interpolation=cv2.INTER_AREA)
        image = image.reshape(self.settings.frame_height, self.settings.frame_width, -1)
        return np.asarray(np.moveaxis(image, -1, 0), np.uint8)

    def stack(self) -> NDArray[np.uint8]:
        return np.concatenate(self.planes)
