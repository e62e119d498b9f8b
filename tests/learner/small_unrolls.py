"""Unrolls of a few bytes in the wire format: T = 2 agent steps, S = 2 frames in a stack, 2 actions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from herd.contract.spaces import discrete
from herd.contract.unroll import UnrollLayout
from herd.protocols.unrolls.arrays import pack_arrays
from herd.protocols.unrolls.messages import EpisodeReport, Unrolls
from herd.rpc.codec import encode
from herd.transport import Frame

LAYOUT = UnrollLayout(unroll_length=2, frame_stack=2, frame_shape=(2, 2, 1), actions=discrete(2), num_parameters=2, num_tasks=2)
ACTION_REPEAT = 4
FRAMES_PER_UNROLL = LAYOUT.unroll_length * ACTION_REPEAT

Arrays = dict[str, NDArray[Any]]


def small_arrays(num_unrolls: int, *, version: tuple[int, int] = (1, 0), marks: list[int] | None = None) -> Arrays:
    """Valid arrays; ``marks`` are written to ``episode_id``, so that a test can follow each unroll."""
    arrays = LAYOUT.allocate(num_unrolls)
    arrays["row_valid"][...] = True
    arrays["policy_version"][...] = version
    arrays["frames"][...] = np.arange(num_unrolls)[:, None, None, None, None]
    if marks is not None:
        arrays["episode_id"][...] = marks
    return arrays


def unrolls_message(
    sequence: int,
    *,
    generated: int,
    num_unrolls: int = 1,
    arrays: Arrays | None = None,
    num_frames: int | None = None,
    episodes: tuple[EpisodeReport, ...] = (),
) -> list[Frame]:
    """Frames of one ``unrolls`` message."""
    header = Unrolls(
        sequence=sequence,
        generated_frames=generated,
        num_frames=num_unrolls * FRAMES_PER_UNROLL if num_frames is None else num_frames,
        num_unrolls=num_unrolls,
        episodes=episodes,
    )
    return [*encode(header), *pack_arrays(arrays if arrays is not None else small_arrays(num_unrolls))]
