"""PPO (arXiv:1707.06347) on envpool's games of Atari: ``python -m benchmarks.peers.envpool_ppo TASK SEED``.

One loop in one process, with the settings that CleanRL publishes for its ``ppo_atari_envpool``. A lost life ends an episode of learning and
rewards are clipped, but envpool also reports raw rewards and whole games, and this program writes down those, as `tasks.Recorded` does.

Shapes: N environments, T steps, M rows of a minibatch, A actions.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.peers.tasks import TASKS, EpisodeLog

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

NUM_STEPS = 10_000_000  # agent steps, after which the learning rate is 0
NUM_ENVIRONMENTS, UNROLL_LENGTH, EPOCHS, MINIBATCHES, ACTION_REPEAT = 8, 128, 4, 4, 4
LEARNING_RATE, MAX_GRADIENT_NORM, DISCOUNT, LAMBDA, CLIP, ENTROPY_COST, VALUE_COST = 2.5e-4, 0.5, 0.99, 0.95, 0.1, 0.01, 0.5


class Batch(NamedTuple):
    """What is learned from, [M] each but the frames."""

    frames: Tensor
    """uint8 [M, 4, 84, 84]."""
    actions: Tensor
    log_probs: Tensor
    """Log-probabilities of the actions when they were taken."""
    values: Tensor
    """Estimates from then."""
    advantages: Tensor


class Network(nn.Module):
    """The network of DQN's Nature paper with a policy and a value."""

    def __init__(self, num_actions: int) -> None:
        super().__init__()
        convolutions = [nn.Conv2d(4, 32, 8, 4), nn.Conv2d(32, 64, 4, 2), nn.Conv2d(64, 64, 3, 1)]
        hidden, self.policy, self.value = nn.Linear(64 * 7 * 7, 512), nn.Linear(512, num_actions), nn.Linear(512, 1)
        gains = {**dict.fromkeys((*convolutions, hidden), 2**0.5), self.policy: 0.01, self.value: 1.0}
        for layer, gain in gains.items():
            nn.init.orthogonal_(layer.get_parameter("weight"), gain)
            nn.init.zeros_(layer.get_parameter("bias"))
        rectified = (part for layer in convolutions for part in (layer, nn.ReLU()))
        self.torso = nn.Sequential(*rectified, nn.Flatten(), hidden, nn.ReLU())

    def forward(self, frames: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits [M, A] and values [M] of frames, uint8 [M, 4, 84, 84]."""
        features = self.torso(frames.float() / 255.0)
        return self.policy(features), self.value(features)[:, 0]


def generalized_advantages(rewards: Tensor, values: Tensor, ended: Tensor) -> Tensor:
    """Return A_t = delta_t + gamma lambda A_t+1, where delta_t = r_t + gamma V_t+1 - V_t, and nothing follows an end (arXiv:1506.02438).

    Args:
        rewards: [T, N].
        values: [T + 1, N]; the last row bootstraps.
        ended: [T, N], 1 where the step ended an episode, else 0.
    """
    advantages, following = torch.empty_like(rewards), torch.zeros_like(rewards[0])
    for t in reversed(range(len(rewards))):
        goes_on = DISCOUNT * (1.0 - ended[t])
        following = rewards[t] + goes_on * values[t + 1] - values[t] + goes_on * LAMBDA * following
        advantages[t] = following
    return advantages


def ppo_loss(logits: Tensor, values: Tensor, batch: Batch) -> Tensor:
    """Return the loss of new logits [M, A] and values [M]: PPO's equation 9, with the change of a value clipped like a ratio."""
    log_policy = logits.log_softmax(-1)
    ratios = (log_policy.gather(1, batch.actions[:, None])[:, 0] - batch.log_probs).exp()
    advantages = (batch.advantages - batch.advantages.mean()) / (batch.advantages.std() + 1e-8)
    gains = torch.minimum(ratios * advantages, ratios.clamp(1.0 - CLIP, 1.0 + CLIP) * advantages)
    targets = batch.advantages + batch.values
    near = batch.values + (values - batch.values).clamp(-CLIP, CLIP)
    errors = torch.maximum((values - targets) ** 2, (near - targets) ** 2)
    entropies = -(log_policy.exp() * log_policy).sum(-1)
    return -gains.mean() + VALUE_COST * 0.5 * errors.mean() - ENTROPY_COST * entropies.mean()


class Games:
    """Whole games in envpool's information, which goes on where a lost life ends an episode."""

    def __init__(self, log: EpisodeLog) -> None:
        self._log = log
        self._returns = np.zeros(NUM_ENVIRONMENTS)

    def count(self, info: Mapping[str, Any], truncated: NDArray[np.bool_]) -> None:
        """Count a step, and write down the games that it ended."""
        self._returns += info["reward"]
        for index in np.flatnonzero(info["terminated"].astype(bool) | truncated):
            self._log.add(int(info["elapsed_step"][index]) * ACTION_REPEAT, self._returns[index])
            self._returns[index] = 0.0


def main(task: str, seed: int) -> None:
    """Train; whole games are written down."""
    import envpool  # noqa: PLC0415  only this program's environment has it

    torch.manual_seed(seed)
    name = f"{str(TASKS[task].game).capitalize()}-v5"
    environments = envpool.make(name, "gymnasium", num_envs=NUM_ENVIRONMENTS, seed=seed, episodic_life=True, reward_clip=True)
    games, network = Games(EpisodeLog()), Network(environments.action_space.n)
    optimizer = torch.optim.Adam(network.parameters(), lr=LEARNING_RATE, eps=1e-5)
    size = NUM_ENVIRONMENTS * UNROLL_LENGTH
    seen = torch.empty(UNROLL_LENGTH, NUM_ENVIRONMENTS, 4, 84, 84, dtype=torch.uint8)
    actions = torch.empty(UNROLL_LENGTH, NUM_ENVIRONMENTS, dtype=torch.int64)
    log_probs, rewards, ended = torch.empty(3, UNROLL_LENGTH, NUM_ENVIRONMENTS)
    values = torch.empty(UNROLL_LENGTH + 1, NUM_ENVIRONMENTS)
    frames = torch.from_numpy(environments.reset()[0])
    for update in range(NUM_STEPS // size):
        optimizer.param_groups[0]["lr"] = LEARNING_RATE * (1.0 - update * size / NUM_STEPS)
        with torch.no_grad():
            for t in range(UNROLL_LENGTH):
                seen[t] = frames
                logits, values[t] = network(frames)
                log_policy = logits.log_softmax(-1)
                actions[t] = torch.multinomial(log_policy.exp(), 1)[:, 0]
                log_probs[t] = log_policy.gather(1, actions[t][:, None])[:, 0]
                result = environments.step(actions[t].numpy().astype(np.int32))
                frames, rewards[t] = torch.from_numpy(result[0]), torch.from_numpy(result[1])
                ended[t] = torch.from_numpy(result[2] | result[3])
                games.count(result[4], result[3])
            values[-1] = network(frames)[1]
        advantages = generalized_advantages(rewards, values, ended)
        rows = Batch(*(part.flatten(0, 1) for part in (seen, actions, log_probs, values[:-1], advantages)))
        for _ in range(EPOCHS):
            for chosen in torch.randperm(size).chunk(MINIBATCHES):
                batch = Batch(*(part[chosen] for part in rows))
                logits, estimates = network(batch.frames)
                loss = ppo_loss(logits, estimates, batch)
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                nn.utils.clip_grad_norm_(network.parameters(), MAX_GRADIENT_NORM)
                optimizer.step()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
