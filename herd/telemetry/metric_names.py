"""The catalogue: every metric that any process exports, defined once. ``docs/metrics.md`` is generated from it.

Prometheus adds ``job`` and ``instance`` to what it scrapes, so no metric here is labelled by pod, actor or host: thousands of
actors stay scrapeable at about 30 series each, and series per task come from the learner and the bandit alone. Every label but ``task``
(bounded by ``env.tasks``), ``agent`` (by ``bandit.agents``), ``tile`` (by ``bandit.tile_accuracy``) and those of ``herd_process_info``
takes its values from a closed set, kept here.

The bandit has three series per agent, task and tile, and 17 more per agent and task: 57 games x (3 x 39 + 17) = 7,638 series, about
0.5 MB and 35 ms of processor time a scrape of that one process.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from herd.topology import SERVERS, SERVICE_NAMES, SERVICES, ServiceName

EVERY_SERVICE: tuple[ServiceName, ...] = SERVICE_NAMES
MOVE_WEIGHTS: tuple[ServiceName, ...] = tuple(service.name for service in SERVICES if service.moves_weights)
ARE_ASKED: tuple[ServiceName, ...] = tuple(service.name for service in SERVERS)
"""Bind a socket that other processes connect to."""

DROP_REASONS = ("stale", "malformed", "learner_restart", "other")
"""Why the learner never trained on an unroll."""
MALFORMED_REASONS = ("header", "protocol", "array", "size", "compression", "digest", "unexpected", "other")
"""What was wrong with a message that was dropped unread."""
REFUSAL_REASONS = ("protocol", "run", "contract", "size", "full", "session", "sequence", "credit", "duplicate", "other")
"""Why a message that could be read was not taken."""
CONNECTIONS_CUT_BY = ("crowd", "unread")
"""Why a server ended a connection."""
PHASES = ("wait", "agree", "assemble", "host_to_device", "forward_backward", "optimizer", "publish")
"""Where the learner's time goes; the phases of one update do not overlap."""
STREAMS = ("unrolls", "weights")
"""The two conversations on the wire."""
FILES = ("metrics.jsonl", "report.json", "lineage.json")
"""What the learner leaves in the run directory beside its checkpoints."""
ANSWERS = ("weights", "not_modified", "refused")
"""What the parameter server said to a request for weights."""
REQUEST_KINDS = ("get_weights", "publish_slice", "publish_heartbeat", "lease_index", "release_index")
"""What the parameter server is asked."""
REQUEST_OUTCOMES = ("new", "repeated", "late", "evaluation", "refused")
"""What the bandit made of a request: answered, answered again, older than one answered since, best temperatures, of no run of ours."""
REPORT_OUTCOMES = ("accepted", "duplicate", "late", "unknown", "non_finite", "out_of_range")
"""What the bandit made of a finished game."""


AUTHENTICATION_FAILURES_BY = ("unknown_key", "revoked", "wrong_server_key", "mechanism", "incomplete", "protocol")
"""Why somebody could not connect; docs/messaging.md, Security, says what each means."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One entry of the catalogue."""

    name: str
    help: str
    unit: str
    services: tuple[ServiceName, ...]
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
    services=MOVE_WEIGHTS,
    labels=("stream",),
    values=STREAMS,
)
BYTES_OUT = CounterMetric(
    name="herd_wire_sent_bytes_total",
    help="Sent, headers included, ZeroMQ's own framing excluded.",
    unit="bytes",
    services=MOVE_WEIGHTS,
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
REFUSED_MESSAGES = CounterMetric(
    name="herd_wire_refused_messages_total",
    help="Messages that were understood and not taken, by why; docs/messaging.md, What is refused, lists the reasons.",
    unit="messages",
    services=("learner", "paramserver"),
    labels=("reason",),
    values=REFUSAL_REASONS,
)
CONNECTIONS = GaugeMetric(
    name="herd_wire_connections",
    help="Connections to this server's socket, half-open ones among them.",
    unit="connections",
    services=ARE_ASKED,
)
CONNECTIONS_CUT = CounterMetric(
    name="herd_wire_connections_cut_total",
    help="Connections that this server ended: one too many, or more bytes sent than can have been read.",
    unit="connections",
    services=ARE_ASKED,
    labels=("cause",),
    values=CONNECTIONS_CUT_BY,
)
UNREAD_BYTES = GaugeMetric(
    name="herd_wire_unread_bytes",
    help="Received on this server's connections and not read as messages yet.",
    unit="bytes",
    services=ARE_ASKED,
)
AUTHENTICATION_FAILURES = CounterMetric(
    name="herd_wire_authentication_failures_total",
    help="Handshakes with this server that failed, and messages of clients whose key was revoked, by reason.",
    unit="failures",
    services=ARE_ASKED,
    labels=("reason",),
    values=AUTHENTICATION_FAILURES_BY,
)
WEIGHTS_LINEAGE = GaugeMetric(
    name="herd_weights_lineage",
    help="Lineage of the weights held: a restored checkpoint opens a new one.",
    unit="lineage",
    services=MOVE_WEIGHTS,
)
WEIGHTS_UPDATES = GaugeMetric(
    name="herd_weights_updates",
    help="Learner updates behind the weights held (learner: last published).",
    unit="updates",
    services=MOVE_WEIGHTS,
)
WEIGHTS_AGE = GaugeMetric(
    name="herd_weights_age_seconds",
    help="Since the weights held arrived (learner: since they were published); NaN before the first.",
    unit="seconds",
    services=MOVE_WEIGHTS,
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
RUN_ENV_FRAMES = GaugeMetric(
    name="herd_learner_run_env_frames",
    help="Env frames trained on by all shards since the run began; a restart goes back to the checkpoint's.",
    unit="env_frames",
    services=("learner",),
)
RUN_IS_OVER = GaugeMetric(
    name="herd_learner_run_is_over",
    help="1 when the run has reached its stop and this shard only waits for a signal; 0 before.",
    unit="1",
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
    help="Env frames that actors reported as played, since this process started.",
    unit="env_frames",
    services=("learner",),
)
FRAMES_DROPPED = CounterMetric(
    name="herd_learner_env_frames_dropped_total",
    help="Env frames never trained on, by reason, since this process started; those lost by its start are among them.",
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
UPDATES_SKIPPED = CounterMetric(
    name="herd_learner_updates_skipped_total",
    help="Updates that changed no parameter, since their gradient was not finite; every shard counts each.",
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
    help="Of the last update, per valid agent step, by term, each with its cost: policy, value, q (DiCE only) and entropy add up to total.",
    unit="nats or squared return",
    services=("learner",),
    labels=("term",),
    values=("total", "policy", "value", "q", "entropy"),
)
UNROLLS_TRAINED = CounterMetric(
    name="herd_learner_unrolls_trained_total",
    help="Unrolls from actors, counted at every update that trained on them: over those consumed, how often each sample is used.",
    unit="unrolls",
    services=("learner",),
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
WRITE_FAILURES = CounterMetric(
    name="herd_learner_write_failures_total",
    help="Times that a file of the run directory, other than a checkpoint, could not be written; the run goes on without.",
    unit="writes",
    services=("learner",),
    labels=("file",),
    values=FILES,
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
PARAMSERVER_REQUESTS = CounterMetric(
    name="herd_paramserver_requests_total",
    help="Requests taken in, by kind; malformed ones are not among them.",
    unit="messages",
    services=("paramserver",),
    labels=("kind",),
    values=REQUEST_KINDS,
)
PARAMSERVER_VERSIONS = CounterMetric(
    name="herd_paramserver_versions_total",
    help="Complete versions taken, from learners (root) or from the parent (replica).",
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
    help="Actor indices held by living actors (root).",
    unit="indices",
    services=("paramserver",),
)
PARAMSERVER_UPSTREAM_ANSWERS = CounterMetric(
    name="herd_paramserver_upstream_answers_total",
    help="The parent's answers to this replica's questions for newer weights, by kind (replica).",
    unit="messages",
    services=("paramserver",),
    labels=("answer",),
    values=ANSWERS,
)
PARAMSERVER_UPSTREAM_SILENCE = GaugeMetric(
    name="herd_paramserver_upstream_silence_seconds",
    help="Since the parent last answered, or since the start where it never did (replica). Part of a second while it lives.",
    unit="seconds",
    services=("paramserver",),
)
PARAMSERVER_RELAYED = GaugeMetric(
    name="herd_paramserver_relayed_requests",
    help="Index requests passed on to the parent and not answered yet (replica).",
    unit="messages",
    services=("paramserver",),
)

# --- bandit ------------------------------------------------------------------------------------------------------------------------
BANDIT_REQUESTS = CounterMetric(
    name="herd_bandit_requests_total",
    help="Requests for temperatures, by what became of them; malformed ones are not among them.",
    unit="messages",
    services=("bandit",),
    labels=("outcome",),
    values=REQUEST_OUTCOMES,
)
BANDIT_REPORTS = CounterMetric(
    name="herd_bandit_reports_total",
    help="Finished games that actors reported, by what became of the report; only accepted ones change anything.",
    unit="episodes",
    services=("bandit",),
    labels=("outcome",),
    values=REPORT_OUTCOMES,
)
BANDIT_REUSED = CounterMetric(
    name="herd_bandit_reused_temperatures_total",
    help="Accepted games that an actor played under its last temperature, because no answer came in time.",
    unit="episodes",
    services=("bandit",),
)
BANDIT_TEMPERATURE = HistogramMetric(
    name="herd_bandit_inverse_temperature",
    help="1/tau handed out for training since this process started.",
    unit="1",
    services=("bandit",),
    labels=("agent", "task"),
    buckets=(0, 0.25, 0.5, 1, 1.5, 2, 3, 5, 8, 12, 18, 25, 35, 50),  # about two tiles each, in the middle of the row
)
BANDIT_TILE_VALUE = GaugeMetric(
    name="herd_bandit_tile_value",
    help="Mean over the bandits of a tile's value. Tile i holds log(1 + 1/tau) from i x tile_accuracy on, counted from the left boundary.",
    unit="return",
    services=("bandit",),
    labels=("agent", "task", "tile"),
)
BANDIT_TILE_REPORTS = CounterMetric(
    name="herd_bandit_tile_reports_total",
    help="Games counted, by the tile of their temperature, since the run began.",
    unit="episodes",
    services=("bandit",),
    labels=("agent", "task", "tile"),
)
BANDIT_TILE_VOTES = CounterMetric(
    name="herd_bandit_votes_total",
    help="Candidates that bandits proposed, by tile, since the run began: one of them is drawn for each temperature.",
    unit="candidates",
    services=("bandit",),
    labels=("agent", "task", "tile"),
)
BANDIT_RESTORED = GaugeMetric(
    name="herd_bandit_restored_episodes",
    help="Games counted in the state that this process started from; 0 for a fresh one.",
    unit="episodes",
    services=("bandit",),
)
BANDIT_SNAPSHOTS = CounterMetric(
    name="herd_bandit_snapshots_written_total",
    help="States complete on disk.",
    unit="snapshots",
    services=("bandit",),
)
BANDIT_FILE_FAILURES = CounterMetric(
    name="herd_bandit_file_failures_total",
    help="Times that the state or the history could not be written; the service goes on.",
    unit="failures",
    services=("bandit",),
    labels=("file",),
    values=("state.json", "history.jsonl"),
)
BANDIT_SNAPSHOT_AGE = GaugeMetric(
    name="herd_bandit_snapshot_age_seconds",
    help="Since the state was last written, or restored: what a kill now would cost. NaN before either.",
    unit="seconds",
    services=("bandit",),
)
BANDIT_CLIENTS = GaugeMetric(
    name="herd_bandit_remembered_clients",
    help="Clients whose last request is remembered, so that it counts once.",
    unit="clients",
    services=("bandit",),
)
BANDIT_BYTES_IN = CounterMetric(
    name="herd_bandit_received_bytes_total",
    help="Received, headers included, ZeroMQ's own framing excluded.",
    unit="bytes",
    services=("bandit",),
)
BANDIT_BYTES_OUT = CounterMetric(
    name="herd_bandit_sent_bytes_total",
    help="Sent, headers included, ZeroMQ's own framing excluded.",
    unit="bytes",
    services=("bandit",),
)

CATALOGUE: tuple[Metric, ...] = tuple(entry for entry in list(globals().values()) if isinstance(entry, Metric))
"""Every metric above, in the order of this file."""
WORK_DONE: dict[ServiceName, Metric] = {
    "actor": ACTOR_ENV_FRAMES,
    "bandit": BANDIT_REQUESTS,
    "learner": WEIGHTS_UPDATES,  # counts over the whole run: repeating lost updates is no progress
    "paramserver": PARAMSERVER_ANSWERS,
}
"""What grows while a process of the service makes progress."""
