"""Counts units of each layer that never or always fire before any training: ``python -m benchmarks.dead_units --game pong --seeds 12``.

It plays a game at random, runs the network's torso on some hundred of its frames, and prints means over seeds for each setting.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch

from herd.agent import agent_of
from herd.components.suites import environment_spec, make_environments
from herd.config.loading import load_settings
from herd.training.diagnostics import watched_layers

SETTINGS = (
    (),
    ("--network.input_centering", "half"),
    ("--network.input_centering", "filters"),
    ("--network.layer_norm", "true"),
    ("--network.input_centering", "filters", "--network.layer_norm", "true"),
    ("--network.initialization", "truncated_normal"),
)
ENVIRONMENTS, STEPS, EVERY = 8, 120, 6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--game", default="pong")
    parser.add_argument("--seeds", type=int, default=12, metavar="N")
    options = parser.parse_args()
    torch.set_num_threads(1)
    base = ["--env.tasks", options.game]
    frames = random_frames(base)
    print("| settings | dead and always on, by layer, mean of", options.seeds, "seeds |\n| --- | --- |")
    for words in SETTINGS:
        layers = np.mean([units(frames, [*base, *words], seed) for seed in range(options.seeds)], axis=0)
        print(f"| {' '.join(words) or 'defaults'} | {', '.join(f'{dead:.1f} and {on:.1f}' for dead, on in layers)} |", flush=True)


def random_frames(words: list[str]) -> torch.Tensor:
    """Return stacks of random play, uint8 [N, C, H, W]."""
    settings = load_settings([], words, {})
    environments = make_environments(settings.env, num_environments=ENVIRONMENTS, first_slot=0, seed=3, num_threads=1)
    num_actions, random = environment_spec(settings.env).actions.num_actions, np.random.default_rng(0)
    environments.reset()
    stacks = []
    for step in range(STEPS):
        transition = environments.step(random.integers(0, num_actions, ENVIRONMENTS).astype(np.int32))
        if step % EVERY == 0:
            stacks.append(transition.observation.stack.copy())
    environments.close()
    return torch.from_numpy(np.concatenate(stacks))


def units(frames: torch.Tensor, words: list[str], seed: int) -> list[tuple[int, int]]:
    """Return the number of dead and of always active units of each layer."""
    settings = load_settings([], words, {})
    torch.manual_seed(seed)
    agent = agent_of(settings, environment_spec(settings.env))
    with torch.no_grad(), watched_layers(agent, frames.device) as watched:
        agent.torso(frames, None, torch.float32)
    return [(int(dead), int(always_on)) for dead, always_on in (each.counts() for each in watched)]


if __name__ == "__main__":
    main()
