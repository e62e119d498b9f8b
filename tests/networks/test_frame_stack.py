"""``restack`` gives the learner the same stacks, bit for bit, that the actor acted on."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from herd.networks.frame_stack import RollingStack, restack
from tests.oracles.networks_frame_stack import actor_stacks, wire_history

torch.set_num_threads(1)


def _plays(seed: int, batch: int, num_rows: int, channels: int, reset_rate: float) -> tuple[np.ndarray, np.ndarray]:
    """Long sequences [B, R, 3, 5, C] of several games. No pixel is zero, so a missing plane cannot go unnoticed."""
    random = np.random.default_rng(seed)
    frames = random.integers(1, 256, (batch, num_rows, 3, 5, channels), dtype=np.uint8)
    game_reset = random.random((batch, num_rows)) < reset_rate
    game_reset[:, 0] = True
    return frames, game_reset


def _restack(*arrays: np.ndarray) -> torch.Tensor:
    """Restack batch-major arrays, viewed time-major as in a batch."""
    return restack(*(torch.from_numpy(array).transpose(0, 1) for array in arrays))


@settings(max_examples=150, deadline=None)
@example(seed=0, batch=1, steps=1, stack=4, channels=1, reset_rate=1.0)
@example(seed=1, batch=2, steps=3, stack=1, channels=3, reset_rate=0.5)
@example(seed=2, batch=3, steps=5, stack=4, channels=1, reset_rate=0.3)
@given(
    seed=st.integers(0, 2**32 - 1),
    batch=st.integers(1, 3),
    steps=st.integers(1, 6),
    stack=st.integers(1, 5),
    channels=st.sampled_from([1, 3]),
    reset_rate=st.sampled_from([0.0, 0.2, 0.6]),
)
def test_restacked_unrolls_equal_the_actors_stacks(seed: int, batch: int, steps: int, stack: int, channels: int, reset_rate: float) -> None:
    frames, game_reset = _plays(seed, batch, 3 * steps + 1, channels, reset_rate)
    seen = np.stack([actor_stacks(f, r, stack) for f, r in zip(frames, game_reset, strict=True)])
    for first in range(0, 3 * steps, steps):
        rows = slice(first, first + steps + 1)
        history = np.stack([wire_history(f, r, first, stack) for f, r in zip(frames, game_reset, strict=True)])
        stacked = _restack(history, frames[:, rows], game_reset[:, rows])
        np.testing.assert_array_equal(stacked.numpy(), seen[:, rows].swapaxes(0, 1))
        assert stacked.flatten(0, 1).is_contiguous(memory_format=torch.channels_last)
        with mock.patch("torch.compiler.is_compiling", return_value=True):
            compiled = _restack(history, frames[:, rows], game_reset[:, rows])
        assert torch.equal(compiled, stacked)
        assert compiled.stride() == stacked.stride()  # the memory order that the first convolution reads


@pytest.mark.parametrize("reset_row", range(4))
def test_a_reset_clears_the_history_even_if_it_was_sent(reset_row: int) -> None:
    frames, _ = _plays(3, 1, 7, 1, 0.0)
    game_reset = np.zeros((1, 4), dtype=bool)
    game_reset[0, reset_row] = True
    stacked = _restack(frames[:, :3], frames[:, 3:], game_reset)
    for row in range(4):
        first = reset_row if row >= reset_row else -3
        for age in range(4):
            expected = frames[0, 3 + row - age, :, :, 0] if row - age >= first else np.zeros((3, 5))
            np.testing.assert_array_equal(stacked[row, 0, 3 - age].numpy(), expected)


@pytest.mark.parametrize(
    ("history", "frames", "reset", "message"),
    [
        ((3, 2, 4, 4, 1), (5, 2, 4, 5, 1), (5, 2), "does not fit frames"),
        ((3, 1, 4, 4, 1), (5, 2, 4, 4, 1), (5, 2), "does not fit frames"),
        ((3, 2, 4, 4, 1), (5, 2, 4, 4, 1), (2, 5), "game_reset"),
    ],
)
def test_frames_that_do_not_fit_are_refused(
    history: tuple[int, ...], frames: tuple[int, ...], reset: tuple[int, ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        restack(torch.zeros(history, dtype=torch.uint8), torch.zeros(frames, dtype=torch.uint8), torch.zeros(reset, dtype=torch.bool))
    with pytest.raises(ValueError, match="uint8"):
        restack(torch.zeros(3, 1, 4, 4, 1), torch.zeros(5, 1, 4, 4, 1), torch.zeros(5, 1, dtype=torch.bool))


def test_the_rolling_stack_equals_the_actors_stacks() -> None:
    frames, resets = _plays(5, 3, 12, 1, 0.3)
    seen = np.stack([actor_stacks(f, r, 4) for f, r in zip(frames, resets, strict=True)])
    rolling = RollingStack(3, 3, 5)
    for row in range(12):
        stack = rolling.push(torch.from_numpy(frames[:, row, :, :, 0]), torch.from_numpy(resets[:, row]))
        assert stack.is_contiguous(memory_format=torch.channels_last)
        np.testing.assert_array_equal(stack.numpy(), seen[:, row])
