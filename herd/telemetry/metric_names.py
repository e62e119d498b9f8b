"""The catalogue: every metric that any process exports, defined once. ``docs/metrics.md`` is generated from it.

Prometheus adds ``job`` and ``instance`` to what it scrapes, so no metric here is labelled by pod, actor or host: thousands of
actors stay scrapeable at about 30 series each, and series per task come from the learner alone. Every label but ``task`` (bounded
by ``env.tasks``) and those of ``herd_process_info`` takes its values from a closed set, kept here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Service = Literal["actor", "learner", "paramserver"]
EVERY_SERVICE: tuple[Service, ...] = ("actor", "learner", "paramserver")

DROP_REASONS = ("stale", "malformed", "inconsistent", "duplicate", "old_incarnation", "learner_restart", "shutdown", "other")
"""Why the learner never trained on an unroll."""
MALFORMED_REASONS = ("header", "protocol", "array", "size", "compression", "digest", "unexpected", "other")
"""What was wrong with a message that was dropped unread."""
PHASES = ("wait", "host_to_device", "forward_backward", "optimizer", "publish")
"""Where the learner's time goes; the phases of one update do not overlap."""
STREAMS = ("unrolls", "weights")
"""The two conversations on the wire."""
ANSWERS = ("weights", "not_modified", "refused")
"""What the parameter server said to a request for weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One entry of the catalogue."""

    name: str
    help: str
    unit: str
    services: tuple[Service, ...]
    labels: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    """The closed set of the single label's values; empty where the label is open. With ``other`` in it, strangers count as that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterMetric(Metric):
    """Only grows; starts at 0 with the process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GaugeMetric(Metric):
    """A value now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistogramMetric(Metric):
    """A distribution: one series per bucket, one for the sum, one for the count."""

    buckets: tuple[float, ...] = field(default=())


# --- every process -----------------------------------------------------------------------------------------------------------------
PROCESS_INFO = GaugeMetric(
    name="herd_process_info",
    help="Always 1; its labels say which service of which run this is.",
    unit="1",
    services=EVERY_SERVICE,
    labels=("service", "run", "version"),
)
PROCESS_RESIDENT_MEMORY = GaugeMetric(
    name="herd_process_resident_memory_bytes",
    help="Resident memory of the process.",
    unit="bytes",
    services=EVERY_SERVICE,
)
PROCESS_CPU = CounterMetric(
    name="herd_process_cpu_seconds_total",
    help="Processor time, user and system, over all threads.",
    unit="seconds",
    services=EVERY_SERVICE,
)
HEARTBEAT_AGE = GaugeMetric(
    name="herd_process_heartbeat_age_seconds",
    help="Since the main loop last came round; /healthz fails when it grows too old.",
    unit="seconds",
    services=EVERY_SERVICE,
)
BYTES_IN = CounterMetric(
    name="herd_wire_received_bytes_total",
    help="Received, headers included, ZeroMQ's own framing excluded.",
    unit="bytes",
    services=EVERY_SERVICE,
    labels=("stream",),
    values=STREAMS,
)
BYTES_OUT = CounterMetric(
    name="herd_wire_sent_bytes_total",
    help="Sent, headers included, ZeroMQ's own framing excluded.",
    unit="bytes",
    services=EVERY_SERVICE,
    labels=("stream",),
    values=STREAMS,
)
MALFORMED_MESSAGES = CounterMetric(
    name="herd_wire_malformed_messages_total",
    help="Messages dropped because they could not be read, by what was wrong.",
    unit="messages",
    services=EVERY_SERVICE,
    labels=("reason",),
    values=MALFORMED_REASONS,
)
WEIGHTS_LINEAGE = GaugeMetric(
    name="herd_weights_lineage",
    help="Lineage of the weights held: a restored checkpoint opens a new one.",
    unit="lineage",
    services=EVERY_SERVICE,
)
WEIGHTS_UPDATES = GaugeMetric(
    name="herd_weights_updates",
    help="Learner updates behind the weights held (learner: last published).",
    unit="updates",
    services=EVERY_SERVICE,
)
WEIGHTS_AGE = GaugeMetric(
    name="herd_weights_age_seconds",
    help="Since the weights held arrived (learner: since they were published); NaN before the first.",
    unit="seconds",
    services=EVERY_SERVICE,
)

# --- actor -------------------------------------------------------------------------------------------------------------------------
ACTOR_ENV_FRAMES = CounterMetric(
    name="herd_actor_env_frames_total",
    help="Emulator frames played, action repeats included.",
    unit="env_frames",
    services=("actor",),
)
ACTOR_EPISODES = CounterMetric(
    name="herd_actor_episodes_total",
    help="Games finished.",
    unit="episodes",
    services=("actor",),
)
ACTOR_UNROLLS_SENT = CounterMetric(
    name="herd_actor_unrolls_sent_total",
    help="Unrolls sent, each counted once however often it was sent again.",
    unit="unrolls",
    services=("actor",),
)
ACTOR_UNROLLS_RESENT = CounterMetric(
    name="herd_actor_unrolls_resent_total",
    help="Unrolls sent again after a reconnection.",
    unit="unrolls",
    services=("actor",),
)
ACTOR_UNROLLS_REJECTED = CounterMetric(
    name="herd_actor_unrolls_rejected_total",
    help="Unrolls that the learner would not take.",
    unit="unrolls",
    services=("actor",),
)
ACTOR_CREDIT = GaugeMetric(
    name="herd_actor_credit_unrolls",
    help="Unrolls the actor may still send.",
    unit="unrolls",
    services=("actor",),
)
ACTOR_UNACKNOWLEDGED = GaugeMetric(
    name="herd_actor_unacknowledged_unrolls",
    help="Unrolls sent and kept until the learner acknowledges them.",
    unit="unrolls",
    services=("actor",),
)
ACTOR_BLOCKED = CounterMetric(
    name="herd_actor_blocked_seconds_total",
    help="Waited for credit: the learner is the bottleneck.",
    unit="seconds",
    services=("actor",),
)
ACTOR_WEIGHTS_WAIT = CounterMetric(
    name="herd_actor_weights_wait_seconds_total",
    help="Waited for weights at the start of an unroll.",
    unit="seconds",
    services=("actor",),
)
ACTOR_ENV_STEP = CounterMetric(
    name="herd_actor_env_step_seconds_total",
    help="Spent in stepping environments.",
    unit="seconds",
    services=("actor",),
)
ACTOR_INFERENCE = CounterMetric(
    name="herd_actor_inference_seconds_total",
    help="Spent in the policy, from observation to action.",
    unit="seconds",
    services=("actor",),
)

# --- learner: the ledger of frames and unrolls -------------------------------------------------------------------------------------
LEARNER_ENV_FRAMES = CounterMetric(
    name="herd_learner_env_frames_total",
    help="Env frames trained on for the first time (replayed ones do not count), since this process started.",
    unit="env_frames",
    services=("learner",),
)
LEARNER_FRAMES_PER_SECOND = GaugeMetric(
    name="herd_learner_env_frames_per_second",
    help="Env frames trained on per second over the last log interval.",
    unit="env_frames/second",
    services=("learner",),
)
FRAMES_GENERATED = CounterMetric(
    name="herd_learner_env_frames_generated_total",
    help="Env frames that actors reported as played: consumed + dropped + in flight.",
    unit="env_frames",
    services=("learner",),
)
FRAMES_DROPPED = CounterMetric(
    name="herd_learner_env_frames_dropped_total",
    help="Env frames never trained on, by reason.",
    unit="env_frames",
    services=("learner",),
    labels=("reason",),
    values=DROP_REASONS,
)
FRAMES_IN_FLIGHT = GaugeMetric(
    name="herd_learner_env_frames_in_flight",
    help="Env frames reported but neither trained on nor dropped yet.",
    unit="env_frames",
    services=("learner",),
)
UNROLLS_RECEIVED = CounterMetric(
    name="herd_learner_unrolls_received_total",
    help="Unrolls taken into the queue.",
    unit="unrolls",
    services=("learner",),
)
UNROLLS_CONSUMED = CounterMetric(
    name="herd_learner_unrolls_consumed_total",
    help="Fresh unrolls trained on.",
    unit="unrolls",
    services=("learner",),
)
UNROLLS_REPLAYED = CounterMetric(
    name="herd_learner_unrolls_replayed_total",
    help="Unrolls trained on again out of replay.",
    unit="unrolls",
    services=("learner",),
)
UNROLLS_DROPPED = CounterMetric(
    name="herd_learner_unrolls_dropped_total",
    help="Unrolls never trained on, by reason.",
    unit="unrolls",
    services=("learner",),
    labels=("reason",),
    values=DROP_REASONS,
)
QUEUE_DEPTH = GaugeMetric(
    name="herd_learner_queue_unrolls",
    help="Unrolls waiting for a batch. Always full: the learner is the bottleneck; always empty: the actors are.",
    unit="unrolls",
    services=("learner",),
)
QUEUE_CAPACITY = GaugeMetric(
    name="herd_learner_queue_capacity_unrolls",
    help="Bound of the queue and of all credit together.",
    unit="unrolls",
    services=("learner",),
)
CREDIT_OUTSTANDING = GaugeMetric(
    name="herd_learner_credit_outstanding_unrolls",
    help="Unrolls that actors may send and have not sent.",
    unit="unrolls",
    services=("learner",),
)
CONNECTED_ACTORS = GaugeMetric(
    name="herd_learner_connected_actors",
    help="Actors heard from within the credit's expiry.",
    unit="actors",
    services=("learner",),
)
REPLAY_UNROLLS = GaugeMetric(
    name="herd_learner_replay_unrolls",
    help="Unrolls held in replay.",
    unit="unrolls",
    services=("learner",),
)
POLICY_LAG = HistogramMetric(
    name="herd_learner_policy_lag_updates",
    help="Learner updates between the policy that began a fresh unroll and the one that trained on it.",
    unit="updates",
    services=("learner",),
    buckets=(0, 1, 2, 3, 4, 6, 8, 12, 16, 32, 64, 128, 256),
)

# --- learner: the update -----------------------------------------------------------------------------------------------------------
LEARNER_UPDATES = CounterMetric(
    name="herd_learner_updates_total",
    help="Optimizer steps since this process started.",
    unit="updates",
    services=("learner",),
)
UPDATE_PHASE = CounterMetric(
    name="herd_learner_update_phase_seconds_total",
    help="The learner's time, by phase of the update; divide by herd_learner_updates_total for the mean.",
    unit="seconds",
    services=("learner",),
    labels=("phase",),
    values=PHASES,
)
LEARNER_STARVED = CounterMetric(
    name="herd_learner_starved_seconds_total",
    help="Waited for a full batch: the actors are the bottleneck.",
    unit="seconds",
    services=("learner",),
)
LOSS = GaugeMetric(
    name="herd_learner_loss",
    help="Of the last update, by term, as reduced by algorithm.loss_reduction.",
    unit="nats or squared return",
    services=("learner",),
    labels=("term",),
    values=("total", "policy", "value", "entropy"),
)
ENTROPY = GaugeMetric(
    name="herd_learner_policy_entropy",
    help="Mean entropy of the trained policy over the last update's valid rows.",
    unit="nats",
    services=("learner",),
)
GRADIENT_NORM = GaugeMetric(
    name="herd_learner_gradient_norm",
    help="Global norm of the last gradient before clipping.",
    unit="1",
    services=("learner",),
)
LEARNING_RATE = GaugeMetric(
    name="herd_learner_learning_rate",
    help="Of the last update.",
    unit="1",
    services=("learner",),
)
MEAN_RHO = GaugeMetric(
    name="herd_learner_mean_rho",
    help="Mean importance ratio of the last update before clipping; far from 1 means far off-policy.",
    unit="1",
    services=("learner",),
)
CHECKPOINTS_WRITTEN = CounterMetric(
    name="herd_learner_checkpoints_written_total",
    help="Checkpoints complete on disk.",
    unit="checkpoints",
    services=("learner",),
)
CHECKPOINT_FAILURES = CounterMetric(
    name="herd_learner_checkpoint_failures_total",
    help="Checkpoints that could not be written; the one before stays.",
    unit="checkpoints",
    services=("learner",),
)
CHECKPOINT_UPDATES = GaugeMetric(
    name="herd_learner_checkpoint_updates",
    help="Learner updates behind the newest checkpoint.",
    unit="updates",
    services=("learner",),
)

# --- learner: per task -------------------------------------------------------------------------------------------------------------
TASK_ENV_FRAMES = CounterMetric(
    name="herd_learner_task_env_frames_total",
    help="Env frames trained on for the first time, by task.",
    unit="env_frames",
    services=("learner",),
    labels=("task",),
)
EPISODES = CounterMetric(
    name="herd_learner_episodes_total",
    help="Games that actors reported as finished, by task.",
    unit="episodes",
    services=("learner",),
    labels=("task",),
)
EPISODE_AGENT_STEPS = CounterMetric(
    name="herd_learner_episode_agent_steps_total",
    help="Agent steps of finished games, by task; divide by herd_learner_episodes_total for the mean length.",
    unit="agent_steps",
    services=("learner",),
    labels=("task",),
)
EPISODE_RETURN = GaugeMetric(
    name="herd_learner_episode_return_mean_100",
    help="Mean raw return of the last 100 finished games, by task.",
    unit="return",
    services=("learner",),
    labels=("task",),
)
EPISODE_LENGTH = GaugeMetric(
    name="herd_learner_episode_length_mean_100",
    help="Mean length of the last 100 finished games, by task.",
    unit="agent_steps",
    services=("learner",),
    labels=("task",),
)

# --- parameter server --------------------------------------------------------------------------------------------------------------
PARAMSERVER_ANSWERS = CounterMetric(
    name="herd_paramserver_answers_total",
    help="Answers to requests for weights, by kind.",
    unit="messages",
    services=("paramserver",),
    labels=("answer",),
    values=ANSWERS,
)
PARAMSERVER_VERSIONS = CounterMetric(
    name="herd_paramserver_versions_total",
    help="Complete versions taken from learners.",
    unit="versions",
    services=("paramserver",),
)
PARAMSERVER_STALE_PUBLISHES = CounterMetric(
    name="herd_paramserver_stale_publishes_total",
    help="Slices refused because a newer version is held.",
    unit="messages",
    services=("paramserver",),
)
PARAMSERVER_WEIGHTS_SIZE = GaugeMetric(
    name="herd_paramserver_weights_bytes",
    help="Size of the version held.",
    unit="bytes",
    services=("paramserver",),
)
PARAMSERVER_LEASES = GaugeMetric(
    name="herd_paramserver_leased_indices",
    help="Actor indices held by living actors.",
    unit="indices",
    services=("paramserver",),
)

CATALOGUE: tuple[Metric, ...] = tuple(entry for entry in list(globals().values()) if isinstance(entry, Metric))
"""Every metric above, in the order of this file."""
