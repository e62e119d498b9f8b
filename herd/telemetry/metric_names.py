"""The catalogue: every metric that any process exports, defined once. ``docs/metrics.md`` is generated from it.

Prometheus adds ``job`` and ``instance`` to what it scrapes, so no metric here is labelled by pod, actor or host: thousands of
actors stay scrapeable at about 30 series each (9 more where a service acts for them), and series per task come from learner, bandit and
evaluator alone. Every label but ``task`` (bounded by ``env.tasks``), ``layer`` (by the network's), ``term`` and ``name`` (by the 32
numbers that a loss may name), ``agent`` (by ``agents``), ``setting`` (by ``sweep``), ``statistic`` (six), ``tile`` (by
``bandit.tile_accuracy``) and those of ``herd_process_info`` takes its values from a closed set, kept here.

The bandit has three series per agent, task and tile, and 17 more per agent and task: 57 games x (3 x 39 + 17) = 7,638 series, about
0.5 MB and 35 ms of processor time a scrape of that one process.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from herd.config.addresses import ServiceName
from herd.topology import SERVERS, SERVICE_NAMES, SERVICES

EVERY_SERVICE: tuple[ServiceName, ...] = SERVICE_NAMES
MOVE_WEIGHTS: tuple[ServiceName, ...] = tuple(service.name for service in SERVICES if service.moves_weights)
ARE_ASKED: tuple[ServiceName, ...] = tuple(service.name for service in SERVERS)
"""Bind a socket that other processes connect to."""
ANSWER_REQUESTS: tuple[ServiceName, ...] = ("bandit", "inference", "population", "replay")
"""Their sockets carry neither of the `STREAMS`."""

DROP_REASONS = ("stale", "malformed", "learner_restart", "other")
"""Reasons why the learner never trained on an unroll."""
MALFORMED_REASONS = ("header", "protocol", "array", "size", "compression", "digest", "unexpected", "other")
"""Reasons for dropping a message unread."""
REFUSAL_REASONS = ("protocol", "run", "agent", "contract", "size", "full", "session", "sequence", "credit", "duplicate", "ahead", "other")
"""Reasons for refusing a readable message."""
CONNECTIONS_CUT_BY = ("crowd", "unread")
"""Reasons for closing a connection."""
PHASES = ("wait", "agree", "replay", "assemble", "host_to_device", "forward_backward", "optimizer", "publish")
"""Phases of the learner's time; the phases of one update do not overlap."""
STREAMS = ("unrolls", "weights")
"""The two conversations on the wire."""
FILES = ("metrics.jsonl", "report.json", "lineage.json")
"""Files that the learner writes to the run directory in addition to checkpoints."""
ANSWERS = ("weights", "not_modified", "refused")
"""Answers of the parameter server to requests for weights."""
REQUEST_KINDS = ("get_weights", "publish_slice", "publish_heartbeat", "agent_ended", "lease_index", "release_index")
"""Requests to the parameter server."""
REQUEST_OUTCOMES = ("new", "repeated", "late", "evaluation")
"""Outcomes of requests to the bandit: answered, answered again, older than an answered one, best temperatures."""
REPORT_OUTCOMES = ("accepted", "duplicate", "late", "unknown", "non_finite", "out_of_range")
"""Outcomes of reported games at the bandit."""
REPLAY_OUTCOMES = ("inserted", "repeated", "early", "sampled", "empty", "malformed")
"""What replay made of a request: unrolls taken, taken before, or after some that are missing; drawn, nothing to draw; broken."""
DISCARDED_EPISODES_BY = ("hole", "open")
"""Reasons for discarding an episode: an unroll is missing, or open episodes took too much memory."""
EVICTED_EPISODES_BY = ("capacity", "memory")
"""Limits for which an episode was evicted."""
REPORT_ANSWERS = ("noted", "ordered")
"""Answers to a member's report: nothing to do, an order."""
DECISIONS = ("copied", "perturbed", "unchanged")
"""Decisions about a member with enough games: a copy of another member, only other settings, nothing."""
ACTING_OUTCOMES = ("new", "repeated", "late", "state_wanted")
"""What the inference service made of a request: acted on, answered as before or still being acted on, older than one answered since;
without the state of environments that it does not know."""
SAMPLE_KINDS = ("unroll", "episode")
"""Kinds of samples."""


AUTHENTICATION_FAILURES_BY = ("unknown_key", "revoked", "wrong_server_key", "mechanism", "incomplete", "protocol")
"""Reasons for failed handshakes; see docs/messaging.md, Security."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One entry of the catalogue."""

    name: str
    help: str
    unit: str
    services: tuple[ServiceName, ...]
    labels: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    """The closed set of the single label's values; empty if the label is open. With ``other`` in it, unknown values count as that."""


@dataclass(frozen=True, slots=True)
class CounterMetric(Metric):
    """Only increases; starts at 0 with the process."""


@dataclass(frozen=True, slots=True)
class GaugeMetric(Metric):
    """A present value."""


@dataclass(frozen=True, slots=True)
class HistogramMetric(Metric):
    """A distribution: one series per bucket, one for the sum, one for the count."""

    buckets: tuple[float, ...] = field(default=())


# --- every process -----------------------------------------------------------------------------------------------------------------
PROCESS_INFO = GaugeMetric(
    "herd_process_info",
    "Always 1; its labels say which service of which run this is.",
    "1",
    EVERY_SERVICE,
    labels=("service", "run", "version"),
)
PROCESS_RESIDENT_MEMORY = GaugeMetric("herd_process_resident_memory_bytes", "Resident memory of the process.", "bytes", EVERY_SERVICE)
PROCESS_CPU = CounterMetric(
    "herd_process_cpu_seconds_total", "Processor time, user and system, over all threads.", "seconds", EVERY_SERVICE
)
HEARTBEAT_AGE = GaugeMetric(
    "herd_process_heartbeat_age_ratio",
    "Time since the last turn of the main loop, as a share of the limit of /healthz, which fails above 1. The limit is 60 s, and longer in"
    " processes whose environments may take longer to load.",
    "1",
    EVERY_SERVICE,
)
BYTES_IN = CounterMetric(
    "herd_wire_received_bytes_total",
    "Bytes received, including headers, without ZeroMQ's framing.",
    "bytes",
    MOVE_WEIGHTS,
    labels=("stream",),
    values=STREAMS,
)
BYTES_OUT = CounterMetric(
    "herd_wire_sent_bytes_total",
    "Bytes sent, including headers, without ZeroMQ's framing.",
    "bytes",
    MOVE_WEIGHTS,
    labels=("stream",),
    values=STREAMS,
)
REQUEST_BYTES = CounterMetric(
    "herd_wire_request_bytes_total", "Bytes of requests received, including headers, without ZeroMQ's framing.", "bytes", ANSWER_REQUESTS
)
ANSWER_BYTES = CounterMetric(
    "herd_wire_answer_bytes_total", "Bytes of answers sent, including headers, without ZeroMQ's framing.", "bytes", ANSWER_REQUESTS
)
MALFORMED_MESSAGES = CounterMetric(
    "herd_wire_malformed_messages_total",
    "Messages dropped because they could not be read, by cause.",
    "messages",
    EVERY_SERVICE,
    labels=("reason",),
    values=MALFORMED_REASONS,
)
REFUSED_MESSAGES = CounterMetric(
    "herd_wire_refused_messages_total",
    "Messages that could be read and were refused, by reason. docs/messaging.md, What is refused, lists the reasons.",
    "messages",
    ARE_ASKED,
    labels=("reason",),
    values=REFUSAL_REASONS,
)
CONNECTIONS = GaugeMetric(
    "herd_wire_connections", "Connections to this server's socket, including half-open ones.", "connections", ARE_ASKED
)
CONNECTIONS_CUT = CounterMetric(
    "herd_wire_connections_cut_total",
    "Connections that this server closed: there were too many, or one had sent more bytes than the server can have read.",
    "connections",
    ARE_ASKED,
    labels=("cause",),
    values=CONNECTIONS_CUT_BY,
)
AUTHENTICATION_FAILURES = CounterMetric(
    "herd_wire_authentication_failures_total",
    "Failed handshakes with this server, and messages of clients whose key was revoked, by reason.",
    "failures",
    ARE_ASKED,
    labels=("reason",),
    values=AUTHENTICATION_FAILURES_BY,
)
WEIGHTS_LINEAGE = GaugeMetric(
    "herd_weights_lineage", "Lineage of the current weights. A restored checkpoint opens a new lineage.", "lineage", MOVE_WEIGHTS
)
WEIGHTS_UPDATES = GaugeMetric(
    "herd_weights_updates", "Learner updates of the current weights (learner: of those last published).", "updates", MOVE_WEIGHTS
)
WEIGHTS_AGE = GaugeMetric(
    "herd_weights_age_seconds",
    "Seconds since the current weights arrived (learner: since they were published). NaN before the first.",
    "seconds",
    MOVE_WEIGHTS,
)

# --- actor -------------------------------------------------------------------------------------------------------------------------
ACTOR_ENV_FRAMES = CounterMetric(
    "herd_actor_env_frames_total", "Emulator frames played, including action repeats.", "env_frames", ("actor",)
)
ACTOR_EPISODES = CounterMetric("herd_actor_episodes_total", "Games finished.", "episodes", ("actor",))
ACTOR_UNROLLS_SENT = CounterMetric(
    "herd_actor_unrolls_sent_total", "Unrolls sent. An unroll that is sent again counts once.", "unrolls", ("actor",)
)
ACTOR_UNROLLS_RESENT = CounterMetric("herd_actor_unrolls_resent_total", "Unrolls sent again after a reconnection.", "unrolls", ("actor",))
ACTOR_UNROLLS_REJECTED = CounterMetric("herd_actor_unrolls_rejected_total", "Unrolls that the learner refused.", "unrolls", ("actor",))
ACTOR_UNACKNOWLEDGED = GaugeMetric(
    "herd_actor_unacknowledged_unrolls", "Unrolls sent and kept until the learner acknowledges them.", "unrolls", ("actor",)
)
ACTOR_BLOCKED = CounterMetric(
    "herd_actor_blocked_seconds_total", "Time spent waiting for credit: the learner is the bottleneck.", "seconds", ("actor",)
)
ACTOR_WEIGHTS_WAIT = CounterMetric(
    "herd_actor_weights_wait_seconds_total", "Time spent waiting for weights at the start of an unroll.", "seconds", ("actor",)
)
ACTOR_ENV_STEP = CounterMetric("herd_actor_env_step_seconds_total", "Time spent stepping environments.", "seconds", ("actor",))
ACTOR_INFERENCE = CounterMetric(
    "herd_actor_inference_seconds_total", "Time spent in the policy, from observation to action.", "seconds", ("actor",)
)
ACTOR_ROUND_TRIP = HistogramMetric(
    "herd_actor_inference_round_trip_seconds",
    "Time from the request for a row to the answer of the inference service. Part of it overlaps with steps of other environments.",
    "seconds",
    ("actor",),
    buckets=(0.003, 0.009, 0.03, 0.1),
)
ACTOR_REQUESTS_PENDING = GaugeMetric(
    "herd_actor_inference_requests_pending",
    "Rows sent to the inference service and not answered yet.",
    "rows",
    ("actor",),
)
ACTOR_SUBSTITUTED = CounterMetric(
    "herd_actor_inference_substituted_rows_total",
    "Rows of one half of the environments that the actor's own policy acted on while the inference service did not answer.",
    "rows",
    ("actor",),
)

# --- learner: the ledger of frames and unrolls -------------------------------------------------------------------------------------
LEARNER_ENV_FRAMES = CounterMetric(
    "herd_learner_env_frames_total",
    "Env frames trained on for the first time since this process started. Replayed frames do not count.",
    "env_frames",
    ("learner",),
)
RUN_ENV_FRAMES = GaugeMetric(
    "herd_learner_run_env_frames",
    "Env frames trained on by all shards since the run began. A restart goes back to the count of the checkpoint.",
    "env_frames",
    ("learner",),
)
RUN_IS_OVER = GaugeMetric(
    "herd_learner_run_is_over",
    "1 when the run has reached its stop condition and this shard waits for a signal; 0 before.",
    "1",
    ("learner",),
)
FRAMES_GENERATED = CounterMetric(
    "herd_learner_env_frames_generated_total",
    "Env frames that actors reported as played, since this process started.",
    "env_frames",
    ("learner",),
)
FRAMES_DROPPED = CounterMetric(
    "herd_learner_env_frames_dropped_total",
    "Env frames never trained on, by reason, since this process started. Frames that the restart lost are included.",
    "env_frames",
    ("learner",),
    labels=("reason",),
    values=DROP_REASONS,
)
FRAMES_IN_FLIGHT = GaugeMetric(
    "herd_learner_env_frames_in_flight",
    "Env frames that were reported and are neither trained on nor dropped yet.",
    "env_frames",
    ("learner",),
)
UNROLLS_RECEIVED = CounterMetric("herd_learner_unrolls_received_total", "Unrolls accepted into the queue.", "unrolls", ("learner",))
UNROLLS_CONSUMED = CounterMetric("herd_learner_unrolls_consumed_total", "Fresh unrolls trained on.", "unrolls", ("learner",))
UNROLLS_REPLAYED = CounterMetric("herd_learner_unrolls_replayed_total", "Replayed unrolls trained on.", "unrolls", ("learner",))
UNROLLS_DROPPED = CounterMetric(
    "herd_learner_unrolls_dropped_total",
    "Unrolls never trained on, by reason.",
    "unrolls",
    ("learner",),
    labels=("reason",),
    values=DROP_REASONS,
)
QUEUE_DEPTH = GaugeMetric(
    "herd_learner_queue_unrolls",
    "Unrolls waiting for a batch. If the queue is always full, the learner is the bottleneck; if it is always empty, actors are.",
    "unrolls",
    ("learner",),
)
QUEUE_CAPACITY = GaugeMetric(
    "herd_learner_queue_capacity_unrolls", "Capacity of the queue, which also bounds all credit.", "unrolls", ("learner",)
)
CONNECTED_ACTORS = GaugeMetric(
    "herd_learner_connected_actors", "Actors that have sent something within learner.credit_expires_seconds.", "actors", ("learner",)
)
REPLAY_STALENESS = HistogramMetric(
    "herd_learner_replay_staleness_updates",
    "Learner updates between the policy that began a replayed unroll of this agent and the update that trains on it.",
    "updates",
    ("learner",),
    buckets=(1, 10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000),
)
REPLAY_TIMEOUTS = CounterMetric(
    "herd_learner_replay_timeouts_total",
    "Batches that got no answer from replay within replay.timeout_seconds. The following batches contain online unrolls only.",
    "batches",
    ("learner",),
)
REPLAY_LOST = CounterMetric(
    "herd_learner_replay_lost_unrolls_total",
    "Unrolls that never reached the replay service (backlog), or came back unreadable (damaged).",
    "unrolls",
    ("learner",),
    labels=("reason",),
    values=("backlog", "damaged"),
)
POLICY_LAG = HistogramMetric(
    "herd_learner_policy_lag_updates",
    "Learner updates between the policy that began a fresh unroll and the one that trained on it.",
    "updates",
    ("learner",),
    buckets=(0, 1, 2, 3, 4, 6, 8, 12, 16, 32, 64, 128, 256),
)

# --- learner: the update -----------------------------------------------------------------------------------------------------------
LEARNER_UPDATES = CounterMetric("herd_learner_updates_total", "Optimizer steps since this process started.", "updates", ("learner",))
UPDATES_SKIPPED = CounterMetric(
    "herd_learner_updates_skipped_total",
    "Updates that were skipped because their gradient was not finite. Every shard counts each.",
    "updates",
    ("learner",),
)
UPDATES_CLIPPED = CounterMetric(
    "herd_learner_updates_clipped_total",
    "Updates whose gradient was clipped by optimizer.max_gradient_norm. Every shard counts each.",
    "updates",
    ("learner",),
)
EXPLAINED_VARIANCE = GaugeMetric(
    "herd_learner_explained_variance_ratio",
    "Share of the variance of the value targets that the values explain, on one batch: 1 for perfect values, 0 for a constant. NaN if all"
    " targets are equal.",
    "1",
    ("learner",),
)
EFFECTIVE_SAMPLE_SIZE = GaugeMetric(
    "herd_learner_effective_sample_size_ratio",
    "Share of a batch's rows that counts after importance sampling: (sum rho)^2 / (n sum rho^2) of its unclipped importance ratios.",
    "1",
    ("learner",),
)
UPDATE_KL = GaugeMetric(
    "herd_learner_update_kl_nats",
    "KL(policy before an update || policy after it), mean over the rows of its batch.",
    "nats",
    ("learner",),
)
LAYER_DEAD = GaugeMetric(
    "herd_learner_layer_dead_ratio",
    "Share of a layer's units, or of a convolution's filters, that were 0 on a whole batch. Layer 1 is the first.",
    "1",
    ("learner",),
    labels=("layer",),
)
LAYER_ALWAYS_ON = GaugeMetric(
    "herd_learner_layer_always_on_ratio",
    "Share of a layer's units, or of a convolution's filters, that were above 0 on a whole batch.",
    "1",
    ("learner",),
    labels=("layer",),
)
UPDATE_PHASE = CounterMetric(
    "herd_learner_update_phase_seconds_total",
    "Time of the learner, by phase of the update. Divide by herd_learner_updates_total for the mean.",
    "seconds",
    ("learner",),
    labels=("phase",),
    values=PHASES,
)
LEARNER_STARVED = CounterMetric(
    "herd_learner_starved_seconds_total", "Time spent waiting for a full batch: actors are the bottleneck.", "seconds", ("learner",)
)
LOSS = GaugeMetric(
    "herd_learner_loss",
    "Loss of the last update by term, each times its cost: total per trained agent step, other terms per step that enters them. They add "
    "up to total if every step enters every term: no trust region rejects steps, and replayed ones have an entropy bonus too.",
    "nats or squared return",
    ("learner",),
    labels=("term",),
)
LEARNER_METRIC = GaugeMetric(
    "herd_learner_metric",
    "Numbers that the loss names, of the last update, as in metrics.jsonl: entropy, mean_rho, loss_value, ...",
    "the loss's own",
    ("learner",),
    labels=("name",),
)
GRADIENT_NORM = GaugeMetric("herd_learner_gradient_norm", "Global norm of the last gradient before clipping.", "1", ("learner",))
LEARNING_RATE = GaugeMetric("herd_learner_learning_rate", "Learning rate of the last update.", "1", ("learner",))
CHECKPOINTS_WRITTEN = CounterMetric(
    "herd_learner_checkpoints_written_total", "Checkpoints written completely to disk.", "checkpoints", ("learner",)
)
CHECKPOINT_FAILURES = CounterMetric(
    "herd_learner_checkpoint_failures_total", "Failed writes of a checkpoint. The previous checkpoint stays.", "checkpoints", ("learner",)
)
CHECKPOINT_UPDATES = GaugeMetric("herd_learner_checkpoint_updates", "Learner updates of the newest checkpoint.", "updates", ("learner",))
WRITE_FAILURES = CounterMetric(
    "herd_learner_write_failures_total",
    "Failed writes of a file of the run directory other than a checkpoint. The run continues without it.",
    "writes",
    ("learner",),
    labels=("file",),
    values=FILES,
)

# --- learner: per task -------------------------------------------------------------------------------------------------------------
TASK_ENV_FRAMES = CounterMetric(
    "herd_learner_task_env_frames_total", "Env frames trained on for the first time, by task.", "env_frames", ("learner",), labels=("task",)
)
EPISODES = CounterMetric(
    "herd_learner_episodes_total", "Games that actors reported as finished, by task.", "episodes", ("learner",), labels=("task",)
)
EPISODE_RETURN = GaugeMetric(
    "herd_learner_episode_return_mean_100",
    "Mean raw return of the last 100 finished games, by task.",
    "return",
    ("learner",),
    labels=("task",),
)
EPISODE_LENGTH = GaugeMetric(
    "herd_learner_episode_length_mean_100",
    "Mean length of the last 100 finished games, by task.",
    "agent_steps",
    ("learner",),
    labels=("task",),
)
HUMAN_NORMALISED = GaugeMetric(
    "herd_learner_human_normalised_mean_capped",
    "Mean over the tasks with human scores of (return - random) / (human - random), each at most 1, over the last 100 games of shard 0. "
    "Missing until each of these tasks has finished a game.",
    "1",
    ("learner",),
)

# --- parameter server --------------------------------------------------------------------------------------------------------------
PARAMSERVER_ANSWERS = CounterMetric(
    "herd_paramserver_answers_total",
    "Answers to requests for weights, by kind.",
    "messages",
    ("paramserver",),
    labels=("answer",),
    values=ANSWERS,
)
PARAMSERVER_REQUESTS = CounterMetric(
    "herd_paramserver_requests_total",
    "Requests received, by kind, without malformed ones.",
    "messages",
    ("paramserver",),
    labels=("kind",),
    values=REQUEST_KINDS,
)
PARAMSERVER_VERSIONS = CounterMetric(
    "herd_paramserver_versions_total",
    "Complete versions accepted, from learners (root) or from the parent (replica).",
    "versions",
    ("paramserver",),
)
PARAMSERVER_STALE_PUBLISHES = CounterMetric(
    "herd_paramserver_stale_publishes_total",
    "Publications refused because the server holds or is receiving a newer version.",
    "messages",
    ("paramserver",),
)
PARAMSERVER_WEIGHTS_SIZE = GaugeMetric(
    "herd_paramserver_weights_bytes", "Size of all weights in memory, over all agents.", "bytes", ("paramserver",)
)
PARAMSERVER_AGENT_LEASES = GaugeMetric(
    "herd_paramserver_agent_leased_indices",
    "Actor indices that live actors hold, by agent. They differ by at most one, except for agents that have ended (root).",
    "indices",
    ("paramserver",),
    labels=("agent",),
)
PARAMSERVER_MOVES = CounterMetric(
    "herd_paramserver_moves_total",
    "Actors that were moved to another agent or another index (root).",
    "moves",
    ("paramserver",),
)
PARAMSERVER_AGENT_LINEAGE = GaugeMetric(
    "herd_paramserver_agent_lineage", "Lineage of the weights served, by agent.", "lineage", ("paramserver",), labels=("agent",)
)
PARAMSERVER_AGENT_UPDATES = GaugeMetric(
    "herd_paramserver_agent_updates", "Learner updates of the weights served, by agent.", "updates", ("paramserver",), labels=("agent",)
)
PARAMSERVER_UPSTREAM_ANSWERS = CounterMetric(
    "herd_paramserver_upstream_answers_total",
    "The parent's answers to this replica's requests for newer weights, by kind (replica).",
    "messages",
    ("paramserver",),
    labels=("answer",),
    values=ANSWERS,
)
PARAMSERVER_UPSTREAM_SILENCE = GaugeMetric(
    "herd_paramserver_upstream_silence_seconds",
    "Seconds since the parent last answered, or since the start if it never did (replica). Below one second while the parent is alive.",
    "seconds",
    ("paramserver",),
)

# --- bandit ------------------------------------------------------------------------------------------------------------------------
BANDIT_REQUESTS = CounterMetric(
    "herd_bandit_requests_total",
    "Requests for temperatures, by outcome, without malformed ones.",
    "messages",
    ("bandit",),
    labels=("outcome",),
    values=REQUEST_OUTCOMES,
)
BANDIT_REPORTS = CounterMetric(
    "herd_bandit_reports_total",
    "Finished games that actors reported, by outcome. Only accepted reports change the bandits.",
    "episodes",
    ("bandit",),
    labels=("outcome",),
    values=REPORT_OUTCOMES,
)
BANDIT_REUSED = CounterMetric(
    "herd_bandit_reused_temperatures_total",
    "Accepted games that an actor played under its previous temperature because no answer came in time.",
    "episodes",
    ("bandit",),
)
BANDIT_TEMPERATURE = HistogramMetric(
    "herd_bandit_inverse_temperature",
    "Inverse temperatures (1/tau) drawn for training since this process started.",
    "1",
    ("bandit",),
    labels=("agent", "task"),
    buckets=(0, 0.25, 0.5, 1, 1.5, 2, 3, 5, 8, 12, 18, 25, 35, 50),  # about two tiles each, in the middle of the row
)
BANDIT_TILE_VALUE = GaugeMetric(
    "herd_bandit_tile_value",
    "Value of a tile, averaged over the bandits. Tile i starts at log(1 + 1/tau) = lower bound + i x tile_accuracy.",
    "return",
    ("bandit",),
    labels=("agent", "task", "tile"),
)
BANDIT_TILE_REPORTS = CounterMetric(
    "herd_bandit_tile_reports_total",
    "Games counted, by the tile of their temperature, since the run began.",
    "episodes",
    ("bandit",),
    labels=("agent", "task", "tile"),
)
BANDIT_RESTORED = GaugeMetric(
    "herd_bandit_restored_episodes",
    "Games counted in the state that this process restored; 0 if it started fresh.",
    "episodes",
    ("bandit",),
)
BANDIT_SNAPSHOTS = CounterMetric("herd_bandit_snapshots_written_total", "States written completely to disk.", "snapshots", ("bandit",))
BANDIT_FILE_FAILURES = CounterMetric(
    "herd_bandit_file_failures_total",
    "Failed writes of the state or the history. The service continues.",
    "failures",
    ("bandit",),
    labels=("file",),
    values=("state.json", "history.jsonl"),
)
BANDIT_SNAPSHOT_AGE = GaugeMetric(
    "herd_bandit_snapshot_age_seconds",
    "Seconds since the state was last written or restored: what a kill now would lose. NaN before either.",
    "seconds",
    ("bandit",),
)

# --- replay ------------------------------------------------------------------------------------------------------------------------
REPLAY_REQUESTS = CounterMetric(
    "herd_replay_requests_total",
    "Messages from learners, by outcome.",
    "messages",
    ("replay",),
    labels=("outcome",),
    values=REPLAY_OUTCOMES,
)
REPLAY_INSERTED_EPISODES = CounterMetric(
    "herd_replay_inserted_episodes_total", "Episodes that became complete and were stored.", "episodes", ("replay",)
)
REPLAY_INSERTED_STEPS = CounterMetric(
    "herd_replay_inserted_agent_steps_total", "Agent steps of the stored episodes.", "agent_steps", ("replay",)
)
REPLAY_DISCARDED = CounterMetric(
    "herd_replay_discarded_episodes_total",
    "Episodes that were not kept: an unroll was missing (hole), or open ones took too much memory (open).",
    "episodes",
    ("replay",),
    labels=("reason",),
    values=DISCARDED_EPISODES_BY,
)
REPLAY_EVICTED = CounterMetric(
    "herd_replay_evicted_episodes_total",
    "Oldest episodes that were dropped for new ones, by the bound that was reached: replay.capacity_agent_steps or "
    "replay_service.memory_bytes.",
    "episodes",
    ("replay",),
    labels=("reason",),
    values=EVICTED_EPISODES_BY,
)
REPLAY_SAMPLED = CounterMetric(
    "herd_replay_samples_total", "Samples drawn and sent, by kind.", "samples", ("replay",), labels=("kind",), values=SAMPLE_KINDS
)
REPLAY_SAMPLED_STEPS = CounterMetric(
    "herd_replay_sampled_agent_steps_total", "Agent steps of the samples drawn.", "agent_steps", ("replay",)
)
REPLAY_SAMPLE_AGE = HistogramMetric(
    "herd_replay_sample_age_agent_steps",
    "Age of a sample: agent steps inserted since its episode was.",
    "agent_steps",
    ("replay",),
    buckets=(1e3, 1e4, 3e4, 1e5, 3e5, 1e6, 2e6, 3e6, 5e6, 1e7, 1.5e7, 3e7),
)
REPLAY_STEPS = GaugeMetric("herd_replay_agent_steps", "Agent steps of complete episodes held.", "agent_steps", ("replay",))
REPLAY_CAPACITY = GaugeMetric(
    "herd_replay_capacity_agent_steps",
    "Largest number of agent steps of complete episodes that this replica holds.",
    "agent_steps",
    ("replay",),
)
REPLAY_EPISODES = GaugeMetric("herd_replay_episodes", "Complete episodes held.", "episodes", ("replay",))
REPLAY_OPEN_STEPS = GaugeMetric(
    "herd_replay_open_agent_steps", "Agent steps of episodes that have not ended yet.", "agent_steps", ("replay",)
)
REPLAY_BYTES = GaugeMetric("herd_replay_bytes", "Memory of all episodes, complete and open.", "bytes", ("replay",))
REPLAY_MAX_BYTES = GaugeMetric(
    "herd_replay_max_bytes", "Largest memory for episodes. Beyond it the oldest complete ones are dropped.", "bytes", ("replay",)
)
REPLAY_RESTORED = GaugeMetric(
    "herd_replay_restored_agent_steps",
    "Agent steps in the snapshot that this process restored; 0 if it started fresh.",
    "agent_steps",
    ("replay",),
)
REPLAY_SNAPSHOTS = CounterMetric("herd_replay_snapshots_written_total", "Snapshots written completely to disk.", "snapshots", ("replay",))
REPLAY_FILE_FAILURES = CounterMetric(
    "herd_replay_file_failures_total", "Failed writes of a snapshot. The previous snapshot stays.", "failures", ("replay",)
)
REPLAY_SNAPSHOT_AGE = GaugeMetric(
    "herd_replay_snapshot_age_seconds",
    "Seconds since the last snapshot was written or restored: what a kill now would lose. NaN before either.",
    "seconds",
    ("replay",),
)

# --- population --------------------------------------------------------------------------------------------------------------------
POPULATION_REPORTS = CounterMetric(
    "herd_population_reports_total",
    "Reports from members, by the answer.",
    "messages",
    ("population",),
    labels=("outcome",),
    values=REPORT_ANSWERS,
)
POPULATION_DECISIONS = CounterMetric(
    "herd_population_decisions_total",
    "Decisions about members that had played enough games, by outcome.",
    "decisions",
    ("population",),
    labels=("outcome",),
    values=DECISIONS,
)
POPULATION_FAILED_ORDERS = CounterMetric(
    "herd_population_failed_orders_total",
    "Orders that a member could not carry out. Nothing of such an order takes effect.",
    "orders",
    ("population",),
)
POPULATION_FILE_FAILURES = CounterMetric(
    "herd_population_file_failures_total",
    "Events that could not be written to the journal and therefore did not take effect.",
    "failures",
    ("population",),
)
POPULATION_FITNESS = GaugeMetric(
    "herd_population_fitness", "Fitness of a member, as last reported.", "population.fitness", ("population",), labels=("agent",)
)
POPULATION_SETTING = GaugeMetric(
    "herd_population_setting", "Value of a numeric setting of a member.", "1", ("population",), labels=("agent", "setting")
)

# --- inference ---------------------------------------------------------------------------------------------------------------------
INFERENCE_REQUESTS = CounterMetric(
    "herd_inference_requests_total",
    "Requests from actors, by outcome.",
    "messages",
    ("inference",),
    labels=("outcome",),
    values=ACTING_OUTCOMES,
)
INFERENCE_STEPS = CounterMetric(
    "herd_inference_agent_steps_total", "Agent steps for which the service chose actions.", "agent_steps", ("inference",)
)
INFERENCE_BATCH = HistogramMetric(
    "herd_inference_batch_environments",
    "Number of environments in a batch.",
    "environments",
    ("inference",),
    buckets=(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024),
)
INFERENCE_WAIT = HistogramMetric(
    "herd_inference_wait_seconds",
    "Time from the arrival of a request to the start of its batch: inference.deadline_milliseconds, and the batches before it.",
    "seconds",
    ("inference",),
    buckets=(0.0002, 0.0005, 0.001, 0.002, 0.003, 0.005, 0.009, 0.02, 0.05, 0.2),
)
INFERENCE_COMPUTE = CounterMetric(
    "herd_inference_compute_seconds_total", "Time spent on batches, from their first copy to their answers.", "seconds", ("inference",)
)
INFERENCE_PENDING = GaugeMetric(
    "herd_inference_pending_requests", "Requests accepted and not answered yet. Each client has at most one.", "messages", ("inference",)
)
INFERENCE_ENVIRONMENTS = GaugeMetric(
    "herd_inference_environments", "Environments whose stacks and recurrent states are kept.", "environments", ("inference",)
)
INFERENCE_EVICTED = CounterMetric(
    "herd_inference_evicted_environments_total",
    "Environments whose state was dropped for others, those silent longest first. Their actors send it again.",
    "environments",
    ("inference",),
)

# --- evaluator ---------------------------------------------------------------------------------------------------------------------
EVALUATOR_EVALUATIONS = CounterMetric("herd_evaluator_evaluations_total", "Evaluations completed.", "evaluations", ("evaluator",))
EVALUATOR_EPISODES = CounterMetric("herd_evaluator_episodes_total", "Whole games played in completed evaluations.", "games", ("evaluator",))
EVALUATOR_UPDATES = GaugeMetric(
    "herd_evaluator_evaluated_updates",
    "Learner updates of the last evaluated version.",
    "updates",
    ("evaluator",),
    labels=("agent",),
)
EVALUATOR_SCORE = GaugeMetric(
    "herd_evaluator_score", "Mean raw return over the games of the last evaluation.", "return", ("evaluator",), labels=("agent", "task")
)
EVALUATOR_AGGREGATE = GaugeMetric(
    "herd_evaluator_normalised_score",
    "Human-normalised score over the tasks of the last evaluation (saber_...: record-normalised). Only if all tasks have reference scores.",
    "1 = human",
    ("evaluator",),
    labels=("agent", "statistic"),
)
EVALUATOR_FILE_FAILURES = CounterMetric(
    "herd_evaluator_file_failures_total", "Points that could not be written to evaluation.jsonl.", "points", ("evaluator",)
)

CATALOGUE: tuple[Metric, ...] = tuple(entry for entry in list(globals().values()) if isinstance(entry, Metric))
"""Every metric above, in the order of this file."""
WORK_DONE: dict[ServiceName, Metric] = {
    "actor": ACTOR_ENV_FRAMES,
    "bandit": BANDIT_REQUESTS,
    "evaluator": EVALUATOR_EPISODES,
    "inference": INFERENCE_STEPS,
    "learner": WEIGHTS_UPDATES,  # counts over the whole run: repeating lost updates is no progress
    "paramserver": PARAMSERVER_ANSWERS,
    "population": POPULATION_REPORTS,
    "replay": REPLAY_REQUESTS,
}
"""The metric that increases while a process of the service makes progress."""
