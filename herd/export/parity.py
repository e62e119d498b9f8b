"""Does an exported policy compute what the network does? Asked on games that it really plays."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from herd.acting.policy import LocalPolicy
from herd.acting.row_state import RowState
from herd.acting.temperatures import Temperatures
from herd.envs.make import make_environments
from herd.export.network import LOGITS, NEXT_CORE_STATE, VALUES, tensors_of
from herd.service.hardware import usable_cpus

if TYPE_CHECKING:
    from herd.evaluation.trained_run import TrainedRun
    from herd.export.formats import Compute
    from herd.export.network import ExportedPolicy


@dataclass(frozen=True, slots=True)
class Parity:
    """How far the two came apart."""

    rows: int
    """Observations that both saw."""
    games: int
    """That ended on the way."""
    differences: dict[str, float]
    """By output: the largest |exported - network|."""
    largest: dict[str, float]
    """By output: the network's largest number."""
    other_actions: int
    """Rows whose most probable action is another one."""

    def within(self, tolerance: float) -> bool:
        """Whether each difference is at most ``tolerance`` times the output's largest number, or 1 where that is smaller."""
        return all(np.isfinite(each) and each <= tolerance * max(1.0, self.largest[name]) for name, each in self.differences.items())


def compare(run: TrainedRun, policy: ExportedPolicy, compute: Compute, *, steps: int, environments: int, seed: int) -> Parity:
    """Play ``steps`` steps in ``environments`` environments with the network, and ask the exported policy about every row.

    Each carries its own recurrent state from row to row, so that what comes apart may add up.
    """
    network = LocalPolicy(run.agent, seed=seed, precision=torch.float32)
    state = RowState(run.spec, run.settings.network, Temperatures(), num_environments=environments)
    names = [port.name for port in policy.outputs]
    differences, largest = dict.fromkeys(names, 0.0), dict.fromkeys(names, 0.0)
    other_actions = games = 0
    carried = np.array(state.core_state)
    threads = min(usable_cpus(), environments)
    with closing(make_environments(run.settings.env, num_environments=environments, first_slot=0, seed=seed, num_threads=threads)) as batch:
        observation = batch.reset()
        for _ in range(steps):
            rows = state.rows(observation)
            inputs = tensors_of(rows._replace(core_state=carried), policy.inputs)
            found = dict(zip(names, compute(inputs), strict=True))
            step = network.collect(network.submit(rows))
            expected = {LOGITS: step.behaviour_logits, VALUES: step.values, NEXT_CORE_STATE: step.core_state}
            for name in names:
                differences[name] = _larger(differences[name], np.abs(found[name] - expected[name]).max())
                largest[name] = _larger(largest[name], np.abs(expected[name]).max())
            other_actions += int((found[LOGITS].argmax(axis=1) != expected[LOGITS].argmax(axis=1)).sum())
            carried = np.array(found.get(NEXT_CORE_STATE, carried))
            transition = batch.step(step.actions)
            state.advance(step, transition)
            observation = transition.observation
            games += len(transition.finished)
    return Parity(steps * environments, games, differences, largest, other_actions)


def _larger(one: float, other: np.floating) -> float:
    """The larger one; NaN where either is."""
    return float(np.maximum(one, other))
