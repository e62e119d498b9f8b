"""How a batch changes states and draws actions: temperatures, restored stacks, and sessions that are adjacent in memory or not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from herd_inference.engine import Engine
from herd_inference.sessions import Request, Session
from herd_inference.stacks import Stacks, Where, WordStacks, make_stacks

from herd.agent import build_agent
from herd.components.suites import environment_spec
from herd.config.run import RunSettings
from herd.config.run_contract import run_layout
from herd.protocols.inference.rows import ActingLayout, ActingRows
from herd.transport import Peer

CPU = torch.device("cpu")


def slow_stack(history: list[np.ndarray], resets: list[bool], size: int) -> np.ndarray:
    """[S * C, H, W] by definition: the newest planes since the game began, and zeros before."""
    first = max((row for row, reset in enumerate(resets) if reset), default=0)
    planes = history[first:][-size:]
    return np.concatenate([np.zeros_like(history[0])] * (size - len(planes)) + planes)


@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize(("size", "shape"), [(4, (5, 3, 1)), (3, (5, 3, 1)), (4, (4, 3, 2)), (1, (4, 3, 1))])
def test_stacks_are_correct_for_any_memory_layout(size: int, shape: tuple[int, int, int], *, in_place: bool) -> None:
    """Three sessions take turns, in batches of adjacent sessions, of one session and of separate ones; one is restored in the middle."""
    random = np.random.default_rng(2)
    height, width, channels = shape
    stacks: Stacks = make_stacks(9, size, shape, CPU)
    if isinstance(stacks, WordStacks):
        stacks.pushes_in_place = in_place
    spans = [(0, 2), (2, 5), (6, 8)]
    histories: dict[int, list[np.ndarray]] = {place: [] for span in spans for place in range(*span)}
    resets: dict[int, list[bool]] = {place: [] for place in histories}
    for row in range(12):
        for batch in ([0, 1], [2]) if row % 3 == 0 else ([0, 2], [1]) if row % 3 == 1 else ([0, 1, 2],):
            places = [place for session in batch for place in range(*spans[session])]
            newest = random.integers(0, 256, (len(places), channels, height, width), dtype=np.uint8)
            starts = np.array([row == 0 or random.random() < 0.2 for _ in places])
            for place, plane, start in zip(places, newest, starts, strict=True):
                histories[place].append(plane)
                resets[place].append(bool(start))
            expected = np.stack([slow_stack(histories[place], resets[place], size) for place in places])
            for session in batch:
                if row == 0 or (row == 6 and session == 1):  # the memory held another session's state
                    own = [places.index(place) for place in range(*spans[session])]
                    stacks.restore(slice(*spans[session]), torch.from_numpy(expected[own]))
            where = Where([spans[session] for session in batch], CPU)
            found = stacks.push(where, torch.from_numpy(newest), torch.from_numpy(starts))
            np.testing.assert_array_equal(found.numpy(), expected)


def test_actions_are_drawn_at_the_temperatures_of_the_request() -> None:
    settings = RunSettings.model_validate({"env": {"suite": "catch"}, "network": {"torso": "mlp"}})
    spec = environment_spec(settings.env)
    layout = ActingLayout(run_layout(settings, spec))
    torch.manual_seed(1)
    agent = build_agent(settings, spec)
    assert agent.policy_head is not None
    with torch.no_grad():
        agent.policy_head.weight.zero_()
        agent.policy_head.bias.copy_(torch.tensor([0.0, 1.0, 0.5]))
    count = 3000
    engine = Engine(agent, layout, num_agents=1, num_places=count, max_batch=count, device=CPU, precision=torch.float32, seed=4)
    session = Session(Peer(b"peer"), 0, (0, count))
    inverse = np.repeat(np.array([0.0, 1.0, 4.0], np.float32), count // 3)
    fields: dict[str, Any] = {field.name: np.zeros((count, *field.shape), field.dtype) for field in layout.state_fields}
    fields["inverse_temperature"] = inverse
    height, width, _ = spec.frame_shape
    planes = np.zeros((count, spec.observation_channels, height, width), np.uint8)
    request = Request(session, 1, ActingRows(fields, planes), has_state=True, wants_state=True, arrived_at=0.0)
    ((_, arrays),) = engine.collect(engine.submit([request]))
    logits = np.array([0.0, 1.0, 0.5])
    np.testing.assert_allclose(arrays["behaviour_parameters"], np.tile(logits, (count, 1)), atol=1e-6)  # before the temperature
    for part, tau in enumerate((0.0, 1.0, 4.0)):
        drawn = arrays["actions"][part * count // 3 : (part + 1) * count // 3]
        weights = np.exp(tau * logits)
        expected = weights / weights.sum()
        shares = np.bincount(drawn, minlength=3) / len(drawn)
        np.testing.assert_allclose(shares, expected, atol=5 * np.sqrt(0.25 / len(drawn)))  # five standard errors
