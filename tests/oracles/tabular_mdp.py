"""A small Markov decision process, its exact policy values, and every trajectory of a given length with its probability.

For IMPALA (arXiv:1802.01561), appendix A: expectations under the behaviour policy become finite sums.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tests.oracles.vtrace import Array


@dataclass(frozen=True)
class TabularMdp:
    """``transition[x, a, y]`` = p(y|x,a), ``reward[x, a]``; policies are [X, A]."""

    transition: Array
    reward: Array
    discount: float

    def policy_values(self, policy: Array) -> Array:
        """V^policy: the solution of Bellman's linear equations."""
        num_states = len(self.reward)
        moves = np.einsum("xa,xay->xy", policy, self.transition)
        gains = np.einsum("xa,xa->x", policy, self.reward)
        values: Array = np.linalg.solve(np.eye(num_states) - self.discount * moves, gains)
        return values

    def trajectories(self, behaviour: Array, length: int) -> tuple[NDArray[np.int64], NDArray[np.int64], Array]:
        """Every (x_0 .. x_n), (a_0 .. a_{n-1}): states [n + 1, N], actions [n, N], probability given x_0 [N]."""
        num_states, num_actions = self.reward.shape
        states, actions, probabilities = [], [], []
        for path in itertools.product(range(num_states), repeat=length + 1):
            for choice in itertools.product(range(num_actions), repeat=length):
                probability = 1.0
                for t, action in enumerate(choice):
                    probability *= behaviour[path[t], action] * self.transition[path[t], action, path[t + 1]]
                states.append(path)
                actions.append(choice)
                probabilities.append(probability)
        return np.array(states).T, np.array(actions).T, np.array(probabilities)


def truncated_policy(target: Array, behaviour: Array, rho_bar: float) -> Array:
    """pi_rho-bar of eq. (3)."""
    clipped: Array = np.minimum(rho_bar * behaviour, target)
    normalised: Array = clipped / clipped.sum(axis=1, keepdims=True)
    return normalised
