"""Series of a healthy run in promtool's notation, some of which the cases change."""

from __future__ import annotations

STEP_SECONDS = 30
"""Interval between samples and between evaluations, in seconds."""
RUN = {"namespace": "lab", "release": "pong"}
SHARDS = ("pong-learner-0", "pong-learner-1")
ACTORS = tuple(f"pong-actor-{number}" for number in range(10))
ROOT, REPLICA, BANDIT, REPLAY = "pong-paramserver-0", "pong-paramserver-replica-0", "pong-bandit-0", "pong-replay-0"
POPULATION = "pong-population-0"
INFERENCE = "pong-inference-0"
PODS = {
    **dict.fromkeys(SHARDS, "learner"),
    **dict.fromkeys(ACTORS, "actor"),
    ROOT: "paramserver",
    REPLICA: "paramserver-replica",
    BANDIT: "bandit",
    REPLAY: "replay",
    POPULATION: "population",
    INFERENCE: "inference",
}
Series = dict[str, str]


def steps(minutes: float) -> int:
    """Number of samples after the first one."""
    return int(minutes * 60) // STEP_SECONDS


def grows(per_second: float, minutes: float, start: float = 0.0) -> str:
    """Values of a counter."""
    return f"{start:g}+{per_second * STEP_SECONDS:g}x{steps(minutes)}"


def stays(value: float | str, minutes: float) -> str:
    """Values of a gauge. NaN and Inf are given as text, which the notation cannot repeat."""
    return " ".join([value] * (steps(minutes) + 1)) if isinstance(value, str) else f"{value:g}x{steps(minutes)}"


def key(name: str, pod: str, **labels: str) -> str:
    """Name of a series of this pod, with the labels that its target adds."""
    agent = {"agent": "0"} if PODS[pod] == "learner" else {}
    pairs = {**RUN, "component": PODS[pod], "pod": pod, **agent, **labels}
    return f"{name}{{{', '.join(f'{label}={value!r}' for label, value in pairs.items())}}}".replace("'", '"')


def everywhere(name: str, values: str, component: str | None = None, **labels: str) -> Series:
    """The same series for every pod of a component: by default the one that the metric is named after."""
    component = component or name.split("_")[1]
    return {key(name, pod, **labels): values for pod, its in PODS.items() if its == component}


def gone(name: str, component: str | None = None) -> dict[str, None]:
    """Removes this series from every pod of a component."""
    return dict.fromkeys(everywhere(name, "", component))


def healthy_run(minutes: float) -> Series:
    """Two shards at 1,000 env frames per second each; ten actors; root, replica, bandit, replay, population and inference."""
    series: Series = {}

    def counts(name: str, component: str, per_second: float, **labels: str) -> None:
        series.update(everywhere(name, grows(per_second, minutes), component, **labels))

    def shows(name: str, component: str, value: float, **labels: str) -> None:
        series.update(everywhere(name, stays(value, minutes), component, **labels))

    for component in dict.fromkeys(PODS.values()):
        shows("up", component, 1)
        counts("herd_process_cpu_seconds_total", component, 0.9)
        shows("herd_process_heartbeat_age_ratio", component, 0.003)
        shows("herd_process_resident_memory_bytes", component, 5e8)
        counts("herd_wire_malformed_messages_total", component, 0, reason="digest")
    for component in ("learner", "paramserver", "paramserver-replica", "actor"):
        shows("herd_weights_age_seconds", component, 3)
        counts("herd_weights_updates", component, 2)
    for component in ("learner", "paramserver", "paramserver-replica", "bandit", "replay", "population", "inference"):
        counts("herd_wire_connections_cut_total", component, 0, cause="too_many")
        counts("herd_wire_authentication_failures_total", component, 0, reason="unknown_key")
        counts("herd_wire_authentication_failures_total", component, 0.1, reason="incomplete")  # such as a TCP probe
    for component in ("paramserver", "paramserver-replica"):
        counts("herd_paramserver_agent_updates", component, 2, agent="0")
    counts("herd_wire_refused_messages_total", "learner", 0, reason="contract")
    counts("herd_wire_refused_messages_total", "learner", 0.5, reason="duplicate")
    counts("herd_actor_env_frames_total", "actor", 200)
    counts("herd_actor_episodes_total", "actor", 0.1)
    counts("herd_actor_unrolls_sent_total", "actor", 2.5)
    counts("herd_actor_unrolls_resent_total", "actor", 0)
    counts("herd_actor_blocked_seconds_total", "actor", 0.1)
    counts("herd_learner_env_frames_total", "learner", 1000)
    counts("herd_learner_env_frames_generated_total", "learner", 1000)
    counts("herd_learner_env_frames_dropped_total", "learner", 10, reason="stale")
    shows("herd_learner_run_is_over", "learner", 0)
    counts("herd_learner_updates_total", "learner", 2)
    counts("herd_learner_updates_skipped_total", "learner", 0)
    counts("herd_learner_starved_seconds_total", "learner", 0.2)
    shows("herd_learner_loss", "learner", 1.5, term="total")
    counts("herd_learner_policy_lag_updates_bucket", "learner", 9, le="2")
    counts("herd_learner_policy_lag_updates_bucket", "learner", 10, le="4")
    counts("herd_learner_policy_lag_updates_bucket", "learner", 10, le="64")
    counts("herd_learner_policy_lag_updates_bucket", "learner", 10, le="+Inf")
    counts("herd_learner_checkpoints_written_total", "learner", 1 / 300)
    counts("herd_learner_checkpoint_failures_total", "learner", 0)
    counts("herd_learner_checkpoint_updates", "learner", 2)
    counts("herd_learner_copy_updates", "learner", 2)
    series[key("herd_learner_copy_updates", SHARDS[1])] = stays(0, minutes)  # shard 0 copies for all
    counts("herd_learner_copy_failures_total", "learner", 0)
    counts("herd_learner_write_failures_total", "learner", 0, file="metrics.jsonl")
    shows("herd_paramserver_upstream_silence_seconds", "paramserver-replica", 0.01)
    counts("herd_bandit_requests_total", "bandit", 1, outcome="new")
    counts("herd_bandit_reports_total", "bandit", 1, outcome="accepted")
    counts("herd_bandit_reused_temperatures_total", "bandit", 0.01)
    counts("herd_bandit_file_failures_total", "bandit", 0, file="state.json")
    counts("herd_replay_requests_total", "replay", 10, outcome="inserted")
    counts("herd_replay_inserted_episodes_total", "replay", 1)
    counts("herd_replay_discarded_episodes_total", "replay", 0.1, reason="hole")
    counts("herd_replay_evicted_episodes_total", "replay", 1, reason="capacity")
    counts("herd_replay_evicted_episodes_total", "replay", 0, reason="memory")
    counts("herd_replay_file_failures_total", "replay", 0)
    counts("herd_population_reports_total", "population", 1, outcome="noted")
    counts("herd_population_decisions_total", "population", 0.01, outcome="copied")
    counts("herd_population_decisions_total", "population", 0.02, outcome="perturbed")
    counts("herd_population_failed_orders_total", "population", 0.001)
    counts("herd_population_file_failures_total", "population", 0)
    counts("herd_inference_agent_steps_total", "inference", 2000)
    counts("herd_inference_evicted_environments_total", "inference", 0)
    shows("herd_actor_inference_requests_pending", "actor", 1)
    shows("herd_replay_agent_steps", "replay", 990_000)
    shows("herd_replay_capacity_agent_steps", "replay", 1_000_000)
    return series
