"""Recording rules for expressions that the dashboard, the alerts and an autoscaler evaluate repeatedly.

Thousands of actors are added up here once per evaluation, not once per viewer. A *share* is of wall time, from 0 to 1; over several
actors it is their mean, over shards of the learner the largest: one that waits for its batch holds up all. Windows of one minute follow
what happens and need a scrape every 30 s or more often; alerts use five.
"""

from __future__ import annotations

from observability.rules import Group
from observability.rules import RecordingRule as Rule

OVER = {"actor": "avg", "learner": "max"}
"""Aggregation of several shares. A shard counts as starved only while its own queue is too short; others wait for it in phase `agree`."""
WHOSE = {"actor": "an actor", "learner": "the learner shard that waits most"}


def _shares(component: str, seconds: dict[str, str], window: str) -> tuple[Rule, ...]:
    """Return a rule for each counter of seconds: the share of time that a process spent on it."""
    return tuple(
        Rule(
            f"herd:{component}_{thing}:ratio_rate{window}",
            f"{OVER[component]} by (RUN) (rate(herd_{component}_{thing}_seconds_total{{SCOPE}}[{window}]))",
            f"Share of {WHOSE[component]}'s time {meaning}.",
        )
        for thing, meaning in seconds.items()
    )


ACTOR_TIMES = {
    "blocked": "waiting for credit",
    "weights_wait": "waiting for weights",
    "env_step": "stepping environments",
    "inference": "in the policy",
}
LEARNER_TIMES = {"starved": "waiting for a batch of its own"}

FRAMES = Group(
    "herd-frames",
    (
        Rule(
            "herd:env_frames:rate1m",
            "sum by (RUN) (rate(herd_learner_env_frames_total{SCOPE}[1m]))",
            "Env frames trained on per second, all shards together: the speed of the run.",
        ),
        Rule(
            "herd:env_frames:rate5m",
            "sum by (RUN) (rate(herd_learner_env_frames_total{SCOPE}[5m]))",
            "The same over five minutes.",
        ),
        Rule(
            "herd:env_frames:rate1h",
            "sum by (RUN) (rate(herd_learner_env_frames_total{SCOPE}[1h]))",
            "The same over an hour: the trend.",
        ),
        Rule(
            "herd:run_env_frames:max",
            "max by (RUN) (herd_learner_run_env_frames{SCOPE})",
            "Env frames trained on since the run began, restarts included.",
        ),
        Rule(
            "herd:run_is_over:max",
            "max by (RUN) (herd_learner_run_is_over{SCOPE})",
            "1 when the run has reached its stop and is still installed.",
        ),
        Rule(
            "herd:actor_env_frames:rate1m",
            "sum by (RUN) (rate(herd_actor_env_frames_total{SCOPE}[1m]))",
            "Env frames played per second, all actors together.",
        ),
        Rule(
            "herd:env_frames_dropped:rate5m",
            "sum by (RUN, reason) (rate(herd_learner_env_frames_dropped_total{SCOPE}[5m]))",
            "Env frames per second that will never be trained on, by reason.",
        ),
        Rule(
            "herd:learner_updates:rate1m",
            "max by (RUN) (rate(herd_learner_updates_total{SCOPE}[1m]))",
            "Learner updates per second; every shard takes part in each.",
        ),
        Rule(
            "herd:learner_updates:rate5m",
            "max by (RUN) (rate(herd_learner_updates_total{SCOPE}[5m]))",
            "The same over five minutes.",
        ),
    ),
)

WAITING = Group(
    "herd-waiting",
    (
        *_shares("actor", ACTOR_TIMES, "1m"),
        *_shares("learner", LEARNER_TIMES, "1m"),
        *_shares("actor", {"blocked": ACTOR_TIMES["blocked"]}, "5m"),
        *_shares("learner", LEARNER_TIMES, "5m"),
        Rule(
            "herd:learner_phase:ratio_rate1m",
            "avg by (RUN, phase) (rate(herd_learner_update_phase_seconds_total{SCOPE}[1m]))",
            "Share of a learner shard's time, by phase of the update.",
        ),
        Rule(
            "herd:learner_queue:ratio",
            "sum by (RUN) (herd_learner_queue_unrolls{SCOPE}) / sum by (RUN) (herd_learner_queue_capacity_unrolls{SCOPE})",
            "How full the learner's queues are, from 0 to 1.",
        ),
        Rule(
            "herd:actor_rate_env_frames:p05_5m",
            "quantile by (RUN) (0.05, rate(herd_actor_env_frames_total{SCOPE}[5m]))",
            "Env frames per second of a slow actor: one in twenty is slower.",
        ),
        Rule(
            "herd:actor_rate_env_frames:p50_5m",
            "quantile by (RUN) (0.5, rate(herd_actor_env_frames_total{SCOPE}[5m]))",
            "Env frames per second of the actor in the middle.",
        ),
        Rule(
            "herd:actor_rate_env_frames:p95_5m",
            "quantile by (RUN) (0.95, rate(herd_actor_env_frames_total{SCOPE}[5m]))",
            "Env frames per second of a fast actor: one in twenty is faster.",
        ),
        Rule(
            "herd:actor_credit_unrolls:sum",
            "sum by (RUN) (herd_actor_credit_unrolls{SCOPE})",
            "Unrolls that all actors together may still send.",
        ),
        Rule(
            "herd:actor_unacknowledged_unrolls:sum",
            "sum by (RUN) (herd_actor_unacknowledged_unrolls{SCOPE})",
            "Unrolls that actors have sent and the learner has not acknowledged.",
        ),
    ),
)

PROCESSES = Group(
    "herd-processes",
    (
        Rule(
            "herd:processes:count",
            "count by (RUN, component) (up{SCOPE, ANY_COMPONENT})",
            "Processes that Prometheus knows of, by component.",
        ),
        Rule(
            "herd:processes:sum",
            "sum by (RUN) (herd:processes:count{SCOPE})",
            "The same over all components: a run is there while Prometheus knows any process of it.",
        ),
        Rule(
            "herd:processes_up:sum",
            "sum by (RUN, component) (up{SCOPE, ANY_COMPONENT})",
            "Processes that answer.",
        ),
        Rule(
            "herd:process_cpu_seconds:rate1m",
            "sum by (RUN, component) (rate(herd_process_cpu_seconds_total{SCOPE}[1m]))",
            "Cores in use, by component.",
        ),
        Rule(
            "herd:process_resident_memory_bytes:max",
            "max by (RUN, component) (herd_process_resident_memory_bytes{SCOPE})",
            "Resident memory of the largest process of a component, bytes.",
        ),
        Rule(
            "herd:process_heartbeat_age_ratio:max",
            "max by (RUN, component) (herd_process_heartbeat_age_ratio{SCOPE})",
            "The longest silence of a main loop, by component, as a share of the limit of /healthz.",
        ),
    ),
)

WIRE = Group(
    "herd-wire",
    (
        Rule(
            "herd:wire_sent_bytes:rate1m",
            "sum by (RUN, component, stream) (rate(herd_wire_sent_bytes_total{SCOPE}[1m]))",
            "Bytes per second sent, by component and stream.",
        ),
        Rule(
            "herd:wire_received_bytes:rate1m",
            "sum by (RUN, component, stream) (rate(herd_wire_received_bytes_total{SCOPE}[1m]))",
            "Bytes per second received, by component and stream.",
        ),
        Rule(
            "herd:wire_malformed_messages:rate5m",
            "sum by (RUN, component, reason) (rate(herd_wire_malformed_messages_total{SCOPE}[5m]))",
            "Messages per second that could not be read, by component and reason.",
        ),
        Rule(
            "herd:actor_unrolls_sent:rate5m",
            "sum by (RUN) (rate(herd_actor_unrolls_sent_total{SCOPE}[5m]))",
            "Unrolls per second that actors sent.",
        ),
        Rule(
            "herd:actor_unrolls_resent:rate5m",
            "sum by (RUN) (rate(herd_actor_unrolls_resent_total{SCOPE}[5m]))",
            "Unrolls per second that actors sent again.",
        ),
        Rule(
            "herd:actor_unrolls_rejected:rate5m",
            "sum by (RUN) (rate(herd_actor_unrolls_rejected_total{SCOPE}[5m]))",
            "Unrolls per second that the learner would not take.",
        ),
    ),
)

WEIGHTS = Group(
    "herd-weights",
    (
        Rule(
            "herd:policy_lag_updates:p50_5m",
            "histogram_quantile(0.5, sum by (RUN, le) (rate(herd_learner_policy_lag_updates_bucket{SCOPE}[5m])))",
            "Policy lag of the unroll in the middle, updates.",
        ),
        Rule(
            "herd:policy_lag_updates:p95_5m",
            "histogram_quantile(0.95, sum by (RUN, le) (rate(herd_learner_policy_lag_updates_bucket{SCOPE}[5m])))",
            "Policy lag that one unroll in twenty exceeds, updates.",
        ),
        Rule(
            "herd:policy_lag_updates:mean_5m",
            "sum by (RUN) (rate(herd_learner_policy_lag_updates_sum{SCOPE}[5m]))\n"
            "/ sum by (RUN) (rate(herd_learner_policy_lag_updates_count{SCOPE}[5m]))",
            "Mean policy lag, updates.",
        ),
        Rule(
            "herd:weights_age_seconds:p50",
            "quantile by (RUN, component) (0.5, herd_weights_age_seconds{SCOPE} >= 0)",
            "Age of the weights held by the process in the middle, seconds; those without weights do not count.",
        ),
        Rule(
            "herd:weights_age_seconds:max",
            "max by (RUN, component) (herd_weights_age_seconds{SCOPE} >= 0)",
            "Age of the oldest weights held, by component, seconds.",
        ),
        Rule(
            "herd:weights_updates:min",
            "min by (RUN, component) (herd_weights_updates{SCOPE})",
            "Learner updates behind the oldest weights held, by component.",
        ),
        Rule(
            "herd:weights_updates:max",
            "max by (RUN, component) (herd_weights_updates{SCOPE})",
            "Learner updates behind the newest weights held, by component.",
        ),
        Rule(
            "herd:weights_lineage:min",
            "min by (RUN, component) (herd_weights_lineage{SCOPE})",
            "The oldest lineage held, by component.",
        ),
        Rule(
            "herd:weights_behind_updates:max",
            'clamp_min(herd:weights_updates:max{SCOPE, component="learner"} - on (RUN) group_right () herd:weights_updates:min{SCOPE}, 0)',
            "How many updates the oldest weights held are behind those that the learner published last, by component.",
        ),
    ),
)

SCORES = Group(
    "herd-scores",
    (
        Rule(
            "herd:episode_return:mean_100",
            "avg by (RUN, task) (herd_learner_episode_return_mean_100{SCOPE} and herd_learner_episodes_total{SCOPE} > 0)",
            "Mean raw return of the last 100 games, by task; several shards: the mean of theirs. Nothing before the first game.",
        ),
        Rule(
            "herd:episode_length:mean_100",
            "avg by (RUN, task) (herd_learner_episode_length_mean_100{SCOPE} and herd_learner_episodes_total{SCOPE} > 0)",
            "Mean agent steps of the last 100 games, by task.",
        ),
        Rule(
            "herd:episodes:rate5m",
            "sum by (RUN, task) (rate(herd_learner_episodes_total{SCOPE}[5m]))",
            "Games finished per second, by task.",
        ),
        Rule(
            "herd:task_env_frames:rate5m",
            "sum by (RUN, task) (rate(herd_learner_task_env_frames_total{SCOPE}[5m]))",
            "Env frames trained on per second, by task.",
        ),
    ),
)

GROUPS = (FRAMES, WAITING, PROCESSES, WIRE, WEIGHTS, SCORES)
"""In the order of the dashboard's rows."""
