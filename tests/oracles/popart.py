"""A whole update of PopArt-IMPALA (arXiv:1809.04474, section "Multi-task PopArt") on a small feed-forward network, in float64.

The network has two layers with ReLUs, a policy head and a value head of K outputs. Gradients are derived by hand, V-trace is the sum of
its definition, and statistics are updated unroll by unroll. The order is the paper's: the actor-critic step with the current statistics,
then the statistics, then the rewrite of the value layer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tests.oracles.actor_critic import Batch, Costs, softmax, targets_and_advantages
from tests.oracles.vtrace import Array, Mask

DECAY, EPSILON = 0.99, 0.01
"""Settings of TensorFlow's RMSProp, whose second moment starts at 1."""


@dataclass(frozen=True)
class Unrolls:
    """[T, B] rows; pixels in [0, 1] are [T + 1, B, D]."""

    pixels: Array
    actions: NDArray[np.int64]
    behaviour_logits: Array
    rewards: Array
    terminated: Mask
    row_valid: Mask
    task_ids: NDArray[np.int64]


@dataclass
class SlowPopArt:
    parameters: dict[str, Array]
    """``<layer>.weight`` [out, in] and ``<layer>.bias`` of first, second, policy and value."""
    num_tasks: int
    rate: float
    costs: Costs
    discount: float
    min_scale: float = 1e-4
    max_scale: float = 1e6
    shift: list[float] = field(default_factory=list)
    second_moment: list[float] = field(default_factory=list)
    mean_squares: dict[str, Array] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.shift, self.second_moment = [0.0] * self.num_tasks, [1.0] * self.num_tasks
        self.mean_squares = {name: np.ones_like(parameter) for name, parameter in self.parameters.items()}

    def scale(self, task: int) -> float:
        variance = self.second_moment[task] - self.shift[task] ** 2
        return min(max(math.sqrt(max(variance, 0.0)), self.min_scale), self.max_scale)

    def layers(self, pixels: Array) -> tuple[Array, Array, Array, Array]:
        """Both hidden layers, logits and normalised values."""
        first = np.maximum(self._linear("first", pixels), 0.0)
        second = np.maximum(self._linear("second", first), 0.0)
        return first, second, self._linear("policy", second), self._linear("value", second)

    def values(self, pixels: Array, task_ids: NDArray[np.int64]) -> Array:
        """Un-normalised values, [rows, B]."""
        normalised = self.layers(pixels)[3]
        out = np.zeros(normalised.shape[:2])
        for row, unroll in np.ndindex(out.shape):
            task = int(task_ids[unroll])
            out[row, unroll] = self.scale(task) * normalised[row, unroll, task] + self.shift[task]
        return out

    def update(self, unrolls: Unrolls, learning_rate: float) -> None:
        values = self.values(unrolls.pixels, unrolls.task_ids)
        logits = self.layers(unrolls.pixels)[2]
        batch = Batch(
            target_logits=logits[:-1],
            behaviour_logits=unrolls.behaviour_logits,
            values=values,
            actions=unrolls.actions,
            rewards=unrolls.rewards,
            terminated=unrolls.terminated,
            row_valid=unrolls.row_valid,
        )
        targets, advantages = targets_and_advantages(batch, self.discount, self.costs)
        self._step(self._gradients(unrolls, values, targets, advantages), learning_rate)
        self._follow(targets, unrolls)

    def _gradients(self, unrolls: Unrolls, values: Array, targets: Array, advantages: Array) -> dict[str, Array]:
        """Gradients of the sum over the valid rows; values and advantages are divided by the task's scale."""
        gradients = {name: np.zeros_like(parameter) for name, parameter in self.parameters.items()}
        first, second, logits, _ = self.layers(unrolls.pixels)
        for t, b in np.ndindex(targets.shape):
            if not unrolls.row_valid[t, b]:
                continue
            task = int(unrolls.task_ids[b])
            policy = softmax(logits[t, b])
            entropy = -float(np.sum(policy * np.log(policy)))
            taken = np.eye(len(policy))[unrolls.actions[t, b]]
            by_logits = advantages[t, b] / self.scale(task) * (policy - taken)
            by_logits += self.costs.entropy_cost * policy * (np.log(policy) + entropy)
            by_values = np.zeros(self.num_tasks)
            by_values[task] = -self.costs.baseline_cost * (targets[t, b] - values[t, b]) / self.scale(task)
            by_second = by_logits @ self.parameters["policy.weight"] + by_values @ self.parameters["value.weight"]
            by_second = by_second * (second[t, b] > 0)
            by_first = by_second @ self.parameters["second.weight"] * (first[t, b] > 0)
            for layer, error, inputs in (
                ("policy", by_logits, second[t, b]),
                ("value", by_values, second[t, b]),
                ("second", by_second, first[t, b]),
                ("first", by_first, unrolls.pixels[t, b]),
            ):
                gradients[f"{layer}.weight"] += np.outer(error, inputs)
                gradients[f"{layer}.bias"] += error
        return gradients

    def _step(self, gradients: dict[str, Array], learning_rate: float) -> None:
        for name, gradient in gradients.items():
            self.mean_squares[name] = DECAY * self.mean_squares[name] + (1.0 - DECAY) * gradient**2
            self.parameters[name] = self.parameters[name] - learning_rate * gradient / np.sqrt(self.mean_squares[name] + EPSILON)

    def _follow(self, targets: Array, unrolls: Unrolls) -> None:
        before = [(self.scale(task), self.shift[task]) for task in range(self.num_tasks)]
        for b, task in enumerate(unrolls.task_ids):
            of_unroll = [targets[t, b] for t in range(len(targets)) if unrolls.row_valid[t, b]]
            if of_unroll:
                mean = sum(of_unroll) / len(of_unroll)
                self.shift[task] = (1.0 - self.rate) * self.shift[task] + self.rate * mean
                self.second_moment[task] = (1.0 - self.rate) * self.second_moment[task] + self.rate * mean**2
        weight, bias = self.parameters["value.weight"].copy(), self.parameters["value.bias"].copy()
        for task, (scale, shift) in enumerate(before):
            weight[task] = weight[task] * scale / self.scale(task)
            bias[task] = (scale * bias[task] + shift - self.shift[task]) / self.scale(task)
        self.parameters["value.weight"], self.parameters["value.bias"] = weight, bias

    def _linear(self, layer: str, inputs: Array) -> Array:
        out: Array = inputs @ self.parameters[f"{layer}.weight"].T + self.parameters[f"{layer}.bias"]
        return out
