"""Stacks frames as an actor does, in a queue of planes that is emptied when a game starts."""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import NDArray

Frames = NDArray[np.uint8]


def actor_stacks(frames: Frames, game_reset: NDArray[np.bool_], stack: int) -> Frames:
    """Observations [R, stack * C, H, W] that an actor saw, from one environment's frames [R, H, W, C]."""
    _, height, width, channels = frames.shape
    planes: deque[Frames] = deque(maxlen=stack)
    seen = []
    for frame, starts in zip(frames, game_reset, strict=True):
        if starts:
            planes.clear()
        planes.append(frame)
        empty = [np.zeros((height, width, channels), np.uint8)] * (stack - len(planes))
        seen.append(np.concatenate([*empty, *planes], axis=2).transpose(2, 0, 1))
    return np.stack(seen)


def wire_history(frames: Frames, game_reset: NDArray[np.bool_], first_row: int, stack: int) -> Frames:
    """Planes [S-1, H, W, C] of rows first_row - stack + 1 .. first_row - 1; zero before the start of the game of row first_row - 1."""
    history = np.zeros((stack - 1, *frames.shape[1:]), np.uint8)
    for back in range(1, stack):
        row = first_row - back
        if row < 0:
            break
        history[stack - 1 - back] = frames[row]
        if game_reset[row]:
            break
    return history
