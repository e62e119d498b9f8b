"""Games of one environment as plain lists of rows, with the unrolls that an actor makes of them, and unrolls cut from one game."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from herd.contract.spaces import discrete
from herd.contract.unroll import UnrollLayout

LAYOUT = UnrollLayout(
    unroll_length=5, frame_stack=4, frame_shape=(6, 5, 1), actions=discrete(3), num_parameters=3, vector_size=2, instruction_length=2
)
RECURRENT = UnrollLayout(
    unroll_length=7, burn_in=2, frame_stack=3, frame_shape=(4, 4, 1), actions=discrete(3), num_parameters=3, state_size=6
)


@dataclass
class Row:
    """A row that an environment shows, and the step from it; the step that only starts the next game is invalid."""

    episode_id: int
    index: int
    fields: dict[str, Any] = field(default_factory=dict)
    step: dict[str, Any] = field(default_factory=dict)


def play(layout: UnrollLayout, lengths: list[int], seed: int) -> list[Row]:
    """Games of these lengths in steps, one after the other, and the first row of the next; every number differs from its neighbours."""
    random = np.random.default_rng(seed)
    rows = []
    for episode_id, length in enumerate([*lengths, 0]):
        core_reset = True
        for index in range(length + 1):
            is_last = index == length
            terminated = not is_last and (index == length - 1 or random.random() < 0.1)  # a lost life does not end a game
            fields = {
                "frames": random.integers(1, 256, layout.frame_shape, np.uint8),
                "observations": random.random(layout.vector_size, np.float32),
                "game_reset": index == 0,
                "core_reset": core_reset,
                "instructions": random.integers(0, 50, layout.instruction_length, np.int16),
            }
            step = {
                "actions": int(random.integers(layout.actions.num_actions)),
                "rewards": 0.0 if is_last else float(np.float32(random.normal())),
                "terminated": terminated,
                "truncated": False,
                "row_valid": not is_last,
                "behaviour_parameters": random.random(layout.actions.num_actions, np.float32),
                "inverse_temperature": float(np.float32(random.random())),
            }
            rows.append(Row(episode_id, index, fields, step))
            core_reset = terminated
    return rows


def version_of(row: int) -> tuple[int, int]:
    """Version of the policy that acts on a row of the environment's stream."""
    return 2, row


def unrolls_of(layout: UnrollLayout, rows: list[Row], slot: int = 0, task_id: int = 0) -> list[dict[str, np.ndarray]]:
    """All complete unrolls, each as arrays [1, ...]; rows before the first one are zero and invalid."""
    unrolls = []
    length, burn_in = layout.new_steps, layout.burn_in
    for start in range(0, len(rows) - length, length):
        arrays = layout.allocate(1)
        for row in range(layout.unroll_length + 1):
            at = start - burn_in + row
            if at < 0:
                arrays["core_reset"][0, row] = True
                continue
            write_row(arrays, row, rows[at].fields)
            if row < layout.unroll_length:
                write_row(arrays, row, rows[at].step)
        arrays["policy_version"][0] = version_of(start), version_of(start + length)
        arrays["environment_slot"][0], arrays["task_id"][0] = slot, task_id
        arrays["episode_id"][0], arrays["index_in_episode"][0] = rows[start].episode_id, rows[start].index
        unrolls.append(arrays)
    return unrolls


def write_row(arrays: dict[str, np.ndarray], row: int, values: dict[str, Any]) -> None:
    for name, value in values.items():
        if name in arrays:
            arrays[name][0, row] = value


def game(rows: list[Row], episode_id: int) -> list[Row]:
    return [row for row in rows if row.episode_id == episode_id]


def oracle_slice(layout: UnrollLayout, rows: list[Row], episode_id: int, first_step: int, slot: int = 0) -> dict[str, np.ndarray]:
    """The unroll of a game that starts at ``first_step``, as arrays [1, ...], built row by row from the list."""
    played = game(rows, episode_id)
    stream = rows.index(played[0])
    arrays = layout.allocate(1)
    arrays["inverse_temperature"][...] = 1
    arrays["core_reset"][...] = True
    base = first_step - layout.burn_in
    for row in range(layout.unroll_length + 1):
        at = base + row
        if at == len(played):
            arrays["game_reset"][0, row] = True
        if not 0 <= at < len(played):
            continue
        write_row(arrays, row, played[at].fields)
        if row < layout.unroll_length and at < len(played) - 1:
            write_row(arrays, row, played[at].step)
    for plane in range(layout.frame_stack - 1):
        at = base - layout.frame_stack + 1 + plane
        if "history_frames" in arrays and at >= 0:
            arrays["history_frames"][0, plane] = played[at].fields["frames"]
    arrays["last_action"][0] = 0
    if base > 0 and not played[base].fields["core_reset"]:
        arrays["last_action"][0] = played[base - 1].step["actions"]
        arrays["last_reward"][0] = played[base - 1].step["rewards"]
    arrays["environment_slot"][0] = slot
    arrays["episode_id"][0], arrays["index_in_episode"][0] = episode_id, first_step
    # The policy at the first row of the actor's unroll that contains the first step, and at the last row of the one with the last step.
    length = layout.new_steps
    last_step = min(first_step + length, len(played) - 1) - 1
    arrays["policy_version"][0, 0] = version_of((stream + first_step) // length * length)
    arrays["policy_version"][0, 1] = version_of(((stream + last_step) // length + 1) * length)
    return arrays
