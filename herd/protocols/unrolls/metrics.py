"""Metrics of the stream of unrolls: the actor that plays and sends, and the learner's ledger of frames and unrolls."""

from __future__ import annotations

from herd.telemetry.metrics import Exporters

_actor = Exporters("actor")
_learner = Exporters("learner")

ACTOR_ENV_FRAMES = _actor.counter(
    "herd_actor_env_frames_total", "env_frames", "Emulator frames played, including action repeats.", counts_work=True
)
ACTOR_EPISODES = _actor.counter("herd_actor_episodes_total", "episodes", "Games finished.")
ACTOR_UNROLLS_SENT = _actor.counter("herd_actor_unrolls_sent_total", "unrolls", "Unrolls sent. An unroll that is sent again counts once.")
ACTOR_UNROLLS_RESENT = _actor.counter("herd_actor_unrolls_resent_total", "unrolls", "Unrolls sent again after a reconnection.")
ACTOR_UNROLLS_REJECTED = _actor.counter("herd_actor_unrolls_rejected_total", "unrolls", "Unrolls that the learner refused.")
ACTOR_ENVIRONMENTS_REPLACED = _actor.counter(
    "herd_actor_environments_replaced_total", "environments", "Environments that failed and were replaced by new ones."
)
ACTOR_UNACKNOWLEDGED = _actor.gauge(
    "herd_actor_unacknowledged_unrolls", "unrolls", "Unrolls sent and kept until the learner acknowledges them."
)
ACTOR_BLOCKED = _actor.counter(
    "herd_actor_blocked_seconds_total", "seconds", "Time spent waiting for credit: the learner is the bottleneck."
)
ACTOR_WEIGHTS_WAIT = _actor.counter(
    "herd_actor_weights_wait_seconds_total", "seconds", "Time spent waiting for weights at the start of an unroll."
)
ACTOR_ENV_STEP = _actor.counter("herd_actor_env_step_seconds_total", "seconds", "Time spent stepping environments.")
ACTOR_INFERENCE = _actor.counter("herd_actor_inference_seconds_total", "seconds", "Time spent in the policy, from observation to action.")
FRAMES_GENERATED = _learner.counter(
    "herd_learner_env_frames_generated_total", "env_frames", "Env frames that actors reported as played, since this process started."
)

LEARNER_RESTART = "learner_restart"
"""Acknowledged, but lost with the learner before an update consumed it."""
MALFORMED = "malformed"
"""The header was valid, but the arrays were unusable."""
STALE = "stale"
"""Begun under a policy older than ``learner.max_policy_lag`` updates, of an abandoned lineage, or not made yet."""
DROP_REASONS = (STALE, MALFORMED, LEARNER_RESTART, "other")
"""Reasons why the learner never trained on an unroll."""
FRAMES_DROPPED = _learner.counter(
    "herd_learner_env_frames_dropped_total",
    "env_frames",
    "Env frames never trained on, by reason, since this process started. Frames that the restart lost are included.",
    labels=("reason",),
    values=DROP_REASONS,
)
FRAMES_IN_FLIGHT = _learner.gauge(
    "herd_learner_env_frames_in_flight", "env_frames", "Env frames that were reported and are neither trained on nor dropped yet."
)
UNROLLS_REPLAYED = _learner.counter("herd_learner_unrolls_replayed_total", "unrolls", "Replayed unrolls trained on.")
UNROLLS_DROPPED = _learner.counter(
    "herd_learner_unrolls_dropped_total", "unrolls", "Unrolls never trained on, by reason.", labels=("reason",), values=DROP_REASONS
)
QUEUE_DEPTH = _learner.gauge(
    "herd_learner_queue_unrolls",
    "unrolls",
    "Unrolls waiting for a batch. If the queue is always full, the learner is the bottleneck; if it is always empty, actors are.",
)
QUEUE_CAPACITY = _learner.gauge("herd_learner_queue_capacity_unrolls", "unrolls", "Capacity of the queue, which also bounds all credit.")
CONNECTED_ACTORS = _learner.gauge(
    "herd_learner_connected_actors", "actors", "Actors that have sent something within learner.credit_expires_seconds."
)
POLICY_LAG = _learner.histogram(
    "herd_learner_policy_lag_updates",
    "updates",
    "Learner updates between the policy that began a fresh unroll and the one that trained on it.",
    buckets=(0, 1, 2, 3, 4, 6, 8, 12, 16, 32, 64, 128, 256),
)
