"""Synthetic unrolls for measurements. They have the shapes, types and bounds of real ones, so they pass every check.

U unrolls, T agent steps, A actions; the fields are those of docs/messaging.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from herd.contract.spaces import ActionSpace
    from herd.contract.unroll import UnrollLayout

# In Atari, rewards are rare and games last some hundreds of steps.
REWARD_PROBABILITY = 0.02
TERMINATION_PROBABILITY = 0.005
SPRITES = 12


def synthetic_unrolls(layout: UnrollLayout, num_unrolls: int, *, seed: int) -> dict[str, NDArray[np.generic]]:
    """Return arrays [U, ...] by field, different for every unroll: a static background with moving sprites, rare rewards and lost lives."""
    random = np.random.default_rng(seed)
    arrays = layout.allocate(num_unrolls)
    for name in ("history_frames", "frames"):
        if name in arrays:
            _draw(arrays[name], random)
    if "observations" in arrays:
        arrays["observations"][...] = random.standard_normal(arrays["observations"].shape)
    steps = arrays["rewards"].shape
    for name in ("actions", "last_action"):
        arrays[name][...] = _actions(layout.actions, arrays[name].shape[: arrays[name].ndim - len(layout.actions.shape)], random)
    if "action_masks" in arrays:
        arrays["action_masks"][...] = True
    arrays["rewards"][...] = random.random(steps) < REWARD_PROBABILITY
    arrays["terminated"][...] = random.random(steps) < TERMINATION_PROBABILITY
    arrays["core_reset"][:, 1:] = arrays["terminated"]
    arrays["row_valid"][...] = True
    arrays["behaviour_parameters"][...] = random.standard_normal(arrays["behaviour_parameters"].shape)
    arrays["inverse_temperature"][...] = 1.0
    arrays["environment_slot"][...] = np.arange(num_unrolls)
    return arrays


def _actions(space: ActionSpace, shape: tuple[int, ...], random: np.random.Generator) -> NDArray[np.generic]:
    """Return actions [*shape, ...] of ``space``: integers uniformly, continuous numbers of a standard normal."""
    drawn = [random.integers(0, count, shape) if count else random.standard_normal(shape) for count in space.num_choices]
    return np.stack(drawn, axis=-1).astype(space.dtype) if space.shape else drawn[0]


def _draw(frames: NDArray[np.generic], random: np.random.Generator) -> None:
    """Fill frames [U, rows, H, W, C] with pictures that compress like Atari: mostly flat, with a few small blocks."""
    num_unrolls, rows, height, width, _ = frames.shape
    frames[...] = 87
    for unroll in range(num_unrolls):
        for _ in range(SPRITES):
            y, x = random.integers(0, height), random.integers(0, width)
            for row in range(rows):
                left = (x + row) % width
                frames[unroll, row, y : y + 6, left : left + 4] = random.integers(0, 256)
