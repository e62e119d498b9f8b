"""The recorded values of known series: sums over shards, shares of time, quantiles, and values after a restart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.observability.generated import RECORDING_RULES
from tests.observability.healthy_run import ACTORS, REPLICA, RUN, SHARDS, STEP_SECONDS, Series, everywhere, grows, healthy_run, key, stays
from tests.observability.test_alert_rules import run_promtool, write_test

MINUTES = 70
RETURN, GAMES = "herd_learner_episode_return_mean_100", "herd_learner_episodes_total"


def series() -> Series:
    """The healthy run, with values that distinguish sums from means and maxima."""
    return {
        **healthy_run(MINUTES),
        **{key("herd_actor_env_frames_total", actor): grows(100 * number, MINUTES) for number, actor in enumerate(ACTORS, 1)},
        key("herd_learner_starved_seconds_total", SHARDS[0]): grows(0.2, MINUTES),
        key("herd_learner_starved_seconds_total", SHARDS[1]): grows(0.6, MINUTES),
        # Shard 1 restarts after an hour.
        key("herd_learner_env_frames_total", SHARDS[1]): f"{grows(1000, 60)} {grows(1000, 10)}",
        **everywhere("herd_learner_run_env_frames", stays(7e6, MINUTES)),
        key("herd_learner_run_is_over", SHARDS[1]): stays(1, MINUTES),
        key("herd_learner_queue_unrolls", SHARDS[0]): stays(64, MINUTES),
        key("herd_learner_queue_unrolls", SHARDS[1]): stays(0, MINUTES),
        **everywhere("herd_learner_queue_capacity_unrolls", stays(64, MINUTES)),
        **everywhere("herd_weights_updates", stays(1000, MINUTES), "learner"),
        **everywhere("herd_weights_updates", stays(5, MINUTES), "learner", agent="1"),
        key("herd_paramserver_agent_updates", REPLICA, agent="0"): stays(960, MINUTES),
        key("herd_paramserver_agent_updates", REPLICA, agent="1"): stays(5, MINUTES),
        key("herd_weights_age_seconds", ACTORS[0]): stays("NaN", MINUTES),
        key("herd_weights_age_seconds", ACTORS[1]): stays(40, MINUTES),
        key(RETURN, SHARDS[0], task="pong"): stays(18, MINUTES),
        key(GAMES, SHARDS[0], task="pong"): grows(1, MINUTES),
        key(RETURN, SHARDS[1], task="pong"): stays(0, MINUTES),  # no game has ended in this shard
        key(GAMES, SHARDS[1], task="pong"): stays(0, MINUTES),
        key("up", ACTORS[9]): stays(0, MINUTES),
    }


EXPECTED: dict[str, list[tuple[dict[str, str], float]]] = {
    "herd:env_frames:rate1m": [({"agent": "0"}, 2000)],
    "herd:env_frames:rate5m": [({"agent": "0"}, 2000)],
    "herd:run_env_frames:max": [({"agent": "0"}, 7e6)],
    "herd:run_is_over:max": [({"agent": "0"}, 1)],
    "herd:actor_env_frames:rate1m": [({}, 5500)],
    "herd:actor_rate_env_frames:p50_5m": [({}, 550)],
    "herd:learner_starved:ratio_rate1m": [({"agent": "0"}, 0.6)],
    "herd:learner_queue:ratio": [({"agent": "0"}, 0.5)],
    "herd:episode_return:mean_100": [({"agent": "0", "task": "pong"}, 18)],
    'herd:processes_up:sum{component="actor"}': [({"component": "actor"}, 9)],
    'herd:processes:count{component="actor"}': [({"component": "actor"}, 10)],
    "herd:processes:sum": [({}, 18)],
    'herd:weights_age_seconds:max{component="actor"}': [({"component": "actor"}, 40)],
    'herd:weights_age_seconds:p50{component="actor"}': [({"component": "actor"}, 3)],
    'herd:weights_behind_updates:max{component="paramserver-replica"}': [
        ({"component": "paramserver-replica", "agent": "0"}, 40),
        ({"component": "paramserver-replica", "agent": "1"}, 0),
    ],
    # Nine in ten unrolls are at most 2 updates old: the 95th percentile lies in the middle of (2, 4].
    "herd:policy_lag_updates:p95_5m": [({"agent": "0"}, 3)],
}


def sample(labels: dict[str, str], value: float) -> dict[str, Any]:
    pairs = ", ".join(f'{label}="{text}"' for label, text in {**RUN, **labels}.items())
    return {"labels": f"{{{pairs}}}", "value": value}


@pytest.mark.processes
def test_recorded_values_match_known_series(tmp_path: Path) -> None:
    test = {
        "name": "recorded",
        "interval": f"{STEP_SECONDS}s",
        "input_series": [{"series": name, "values": values} for name, values in series().items()],
        "promql_expr_test": [
            {
                "expr": f"round({expression}, 0.001)",  # rates are floats
                "eval_time": f"{MINUTES}m",
                "exp_samples": [sample(labels, value) for labels, value in expected],
            }
            for expression, expected in EXPECTED.items()
        ],
    }
    assert run_promtool(write_test(tmp_path, "recorded", [RECORDING_RULES], [test])) == ""
