from __future__ import annotations

import math

from herd.components.trackers.api import scalars


def test_finite_numbers_become_scalars_named_by_their_path() -> None:
    point = {
        "env_frames": 640,
        "entropy": 0.5,
        "loss_total": None,
        "gradient_norm": math.inf,
        "kind": "words",
        "is_new": True,
        "health": {"update_kl": 0.25, "layers": [{"kind": "filters", "dead": 3}, {"kind": "units", "dead": 0}]},
        "tasks": {"pong": {"episodes": 7, "episode_return_mean_100": math.nan}, "qbert": {"episode_return_mean_100": -1}},
    }
    assert scalars(point) == {
        "run/env_frames": 640.0,
        "run/entropy": 0.5,
        "health/update_kl": 0.25,
        "health/layers/1/dead": 3.0,
        "health/layers/2/dead": 0.0,
        "tasks/pong/episodes": 7.0,
        "tasks/qbert/episode_return_mean_100": -1.0,
    }
