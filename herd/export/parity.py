"""Compares an exported policy with the network on games that the network plays."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from herd.acting.policy import LocalPolicy
from herd.acting.row_state import RowState
from herd.acting.temperatures import Temperatures
from herd.algorithms.distributions import FORBIDDEN
from herd.components.suites import make_environments
from herd.export.network import NEXT_CORE_STATE, VALUES, tensors_of
from herd.service.host import usable_cpus

if TYPE_CHECKING:
    from herd.evaluation.trained_run import TrainedRun
    from herd.export.formats import Compute
    from herd.export.network import ExportedPolicy

_ENVIRONMENTS = 4
_SAME_ACTION = 1e-3
"""Continuous actions that differ by less are the same; integers differ by more."""


@dataclass(frozen=True, slots=True)
class Parity:
    """The differences between both."""

    rows: int
    """Number of compared observations."""
    games: int
    """Number of games that ended."""
    differences: dict[str, float]
    """Largest |exported - network| by output."""
    largest: dict[str, float]
    """The network's largest number by output."""
    other_actions: int
    """Number of rows with a different most probable action."""

    def within(self, tolerance: float) -> bool:
        """Return whether each difference is at most ``tolerance`` times the output's largest number, or times 1 if that is larger."""
        return all(np.isfinite(each) and each <= tolerance * max(1.0, self.largest[name]) for name, each in self.differences.items())


def compare(run: TrainedRun, policy: ExportedPolicy, compute: Compute, *, steps: int) -> Parity:
    """Play ``steps`` steps in four environments, or one for each task, and compute every row with the exported policy too.

    Each keeps its own recurrent state, so that differences can accumulate.
    """
    environments = max(_ENVIRONMENTS, len(run.spec.task_names))
    network = LocalPolicy(run.agent, seed=0, precision=torch.float32)
    state = RowState(run.spec, run.settings.network, Temperatures(), num_environments=environments)
    distribution = policy.agent.distribution
    parameters = distribution.parameters_name
    names = [port.name for port in policy.outputs]
    differences, largest = dict.fromkeys(names, 0.0), dict.fromkeys(names, 0.0)
    other_actions = games = 0
    carried = np.array(state.core_state)
    threads = min(usable_cpus(), environments)
    with closing(make_environments(run.settings.env, num_environments=environments, first_slot=0, seed=0, num_threads=threads)) as batch:
        observation = batch.reset()
        for _ in range(steps):
            rows = state.rows(observation)
            inputs = tensors_of(rows._replace(core_state=carried), policy.inputs)
            found = dict(zip(names, compute(inputs), strict=True))
            step = network.collect(network.submit(rows))
            assert step.core_state is not None
            expected = {parameters: step.behaviour_parameters, VALUES: step.values, NEXT_CORE_STATE: step.core_state}
            if rows.action_masks is not None:
                expected[parameters] = np.where(rows.action_masks, step.behaviour_parameters, np.float32(FORBIDDEN))
            for name in names:
                counts = np.abs(expected[name]) < -FORBIDDEN  # forbidden actions have no logit of their own
                differences[name] = _larger(differences[name], np.abs(found[name] - expected[name]).max())
                largest[name] = _larger(largest[name], np.abs(expected[name]).max(where=counts, initial=0.0))
            one, other = (distribution.at(torch.from_numpy(each[parameters])).mode().double() for each in (found, expected))
            same = torch.isclose(one, other, rtol=_SAME_ACTION, atol=_SAME_ACTION)
            other_actions += int((~same).reshape(environments, -1).any(dim=1).sum())
            carried = np.array(found.get(NEXT_CORE_STATE, carried))
            transition = batch.step(step.actions)
            state.advance(step, transition)
            observation = transition.observation
            games += len(transition.finished)
    return Parity(steps * environments, games, differences, largest, other_actions)


def _larger(one: float, other: np.floating) -> float:
    """Return the larger number; NaN if either is NaN."""
    return float(np.maximum(one, other))
