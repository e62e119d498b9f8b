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

from herd.topology import SERVERS, SERVICE_NAMES, SERVICES, ServiceName

EVERY_SERVICE: tuple[ServiceName, ...] = SERVICE_NAMES
MOVE_WEIGHTS: tuple[ServiceName, ...] = tuple(service.name for service in SERVICES if service.moves_weights)
ARE_ASKED: tuple[ServiceName, ...] = tuple(service.name for service in SERVERS)
"""Bind a socket that other processes connect to."""

DROP_REASONS = ("stale", "malformed", "learner_restart", "other")
"""Why the learner never trained on an unroll."""
MALFORMED_REASONS = ("header", "protocol", "array", "size", "compression", "digest", "unexpected", "other")
"""What was wrong with a message that was dropped unread."""
REFUSAL_REASONS = ("protocol", "run", "agent", "contract", "size", "full", "session", "sequence", "credit", "duplicate", "ahead", "other")
"""Why a message that could be read was not taken."""
CONNECTIONS_CUT_BY = ("crowd", "unread")
"""Why a server ended a connection."""
PHASES = ("wait", "agree", "replay", "assemble", "host_to_device", "forward_backward", "optimizer", "publish")
"""Where the learner's time goes; the phases of one update do not overlap."""
STREAMS = ("unrolls", "weights")
"""The two conversations on the wire."""
FILES = ("metrics.jsonl", "report.json", "lineage.json")
"""What the learner leaves in the run directory beside its checkpoints."""
ANSWERS = ("weights", "not_modified", "refused")
"""What the parameter server said to a request for weights."""
REQUEST_KINDS = ("get_weights", "publish_slice", "publish_heartbeat", "agent_ended", "lease_index", "release_index")
"""What the parameter server is asked."""
REQUEST_OUTCOMES = ("new", "repeated", "late", "evaluation", "refused")
"""What the bandit made of a request: answered, answered again, older than one answered since, best temperatures, of no run of ours."""
REPORT_OUTCOMES = ("accepted", "duplicate", "late", "unknown", "non_finite", "out_of_range")
"""What the bandit made of a finished game."""
REPLAY_OUTCOMES = ("inserted", "repeated", "early", "sampled", "empty", "refused", "malformed")
"""What replay made of a request: unrolls taken, taken before, or after some that are missing; drawn, nothing to draw; of no run of ours;
broken."""
DISCARDED_EPISODES_BY = ("hole", "open", "size")
"""Why replay did not keep an episode: an unroll of it is missing, too many were open, it is too large."""
DROPPED_PIECES_BY = ("duplicate", "late")
"""Why replay did not take a piece of an episode: it has it, or the episode is over."""
EVICTED_EPISODES_BY = ("capacity", "memory")
"""Which bound an episode went for."""
REPORT_ANSWERS = ("noted", "ordered", "refused")
"""What the population said to a member's report: nothing to do, an order, not a member of ours."""
DECISIONS = ("copied", "perturbed", "unchanged")
"""What the population decided for a member whose games were enough: another's weights, other settings alone, nothing."""
ACTING_OUTCOMES = ("new", "repeated", "late", "state_wanted", "refused")
"""What the inference service made of a request: acted on, answered as before or still being acted on, older than one answered since;
without the state of environments that it does not know; of no run of ours."""
SAMPLE_KINDS = ("unroll", "episode")
"""What a learner asks replay for."""


AUTHENTICATION_FAILURES_BY = ("unknown_key", "revoked", "wrong_server_key", "mechanism", "incomplete", "protocol")
"""Why somebody could not connect; docs/messaging.md, Security, says what each means."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One entry of the catalogue."""

    name: str
    help: str
    unit: str
    services: tuple[ServiceName, ...]
    labels: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    """The closed set of the single label's values; empty where the label is open. With ``other`` in it, strangers count as that."""


@dataclass(frozen=True, slots=True)
class CounterMetric(Metric):
    """Only grows; starts at 0 with the process."""


@dataclass(frozen=True, slots=True)
class GaugeMetric(Metric):
    """A value now."""


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
    "herd_process_heartbeat_age_seconds",
    "Since the main loop last came round; /healthz fails when it grows too old.",
    "seconds",
    EVERY_SERVICE,
)
BYTES_IN = CounterMetric(
    "herd_wire_received_bytes_total",
    "Received, headers included, ZeroMQ's own framing excluded.",
    "bytes",
    MOVE_WEIGHTS,
    labels=("stream",),
    values=STREAMS,
)
BYTES_OUT = CounterMetric(
    "herd_wire_sent_bytes_total",
    "Sent, headers included, ZeroMQ's own framing excluded.",
    "bytes",
    MOVE_WEIGHTS,
    labels=("stream",),
    values=STREAMS,
)
MALFORMED_MESSAGES = CounterMetric(
    "herd_wire_malformed_messages_total",
    "Messages dropped because they could not be read, by what was wrong.",
    "messages",
    EVERY_SERVICE,
    labels=("reason",),
    values=MALFORMED_REASONS,
)
REFUSED_MESSAGES = CounterMetric(
    "herd_wire_refused_messages_total",
    "Messages that were understood and not taken, by why; docs/messaging.md, What is refused, lists the reasons.",
    "messages",
    ("learner", "paramserver"),
    labels=("reason",),
    values=REFUSAL_REASONS,
)
CONNECTIONS = GaugeMetric(
    "herd_wire_connections", "Connections to this server's socket, half-open ones among them.", "connections", ARE_ASKED
)
CONNECTIONS_CUT = CounterMetric(
    "herd_wire_connections_cut_total",
    "Connections that this server ended: one too many, or more bytes sent than can have been read.",
    "connections",
    ARE_ASKED,
    labels=("cause",),
    values=CONNECTIONS_CUT_BY,
)
UNREAD_BYTES = GaugeMetric(
    "herd_wire_unread_bytes", "Received on this server's connections and not read as messages yet.", "bytes", ARE_ASKED
)
AUTHENTICATION_FAILURES = CounterMetric(
    "herd_wire_authentication_failures_total",
    "Handshakes with this server that failed, and messages of clients whose key was revoked, by reason.",
    "failures",
    ARE_ASKED,
    labels=("reason",),
    values=AUTHENTICATION_FAILURES_BY,
)
WEIGHTS_LINEAGE = GaugeMetric(
    "herd_weights_lineage", "Lineage of the weights held: a restored checkpoint opens a new one.", "lineage", MOVE_WEIGHTS
)
WEIGHTS_UPDATES = GaugeMetric(
    "herd_weights_updates", "Learner updates behind the weights held (learner: last published).", "updates", MOVE_WEIGHTS
)
WEIGHTS_AGE = GaugeMetric(
    "herd_weights_age_seconds",
    "Since the weights held arrived (learner: since they were published); NaN before the first.",
    "seconds",
    MOVE_WEIGHTS,
)

# --- actor -------------------------------------------------------------------------------------------------------------------------
ACTOR_ENV_FRAMES = CounterMetric(
    "herd_actor_env_frames_total", "Emulator frames played, action repeats included.", "env_frames", ("actor",)
)
ACTOR_EPISODES = CounterMetric("herd_actor_episodes_total", "Games finished.", "episodes", ("actor",))
ACTOR_UNROLLS_SENT = CounterMetric(
    "herd_actor_unrolls_sent_total", "Unrolls sent, each counted once however often it was sent again.", "unrolls", ("actor",)
)
ACTOR_UNROLLS_RESENT = CounterMetric("herd_actor_unrolls_resent_total", "Unrolls sent again after a reconnection.", "unrolls", ("actor",))
ACTOR_UNROLLS_REJECTED = CounterMetric(
    "herd_actor_unrolls_rejected_total", "Unrolls that the learner would not take.", "unrolls", ("actor",)
)
ACTOR_CREDIT = GaugeMetric("herd_actor_credit_unrolls", "Unrolls the actor may still send.", "unrolls", ("actor",))
ACTOR_UNACKNOWLEDGED = GaugeMetric(
    "herd_actor_unacknowledged_unrolls", "Unrolls sent and kept until the learner acknowledges them.", "unrolls", ("actor",)
)
ACTOR_BLOCKED = CounterMetric(
    "herd_actor_blocked_seconds_total", "Waited for credit: the learner is the bottleneck.", "seconds", ("actor",)
)
ACTOR_WEIGHTS_WAIT = CounterMetric(
    "herd_actor_weights_wait_seconds_total", "Waited for weights at the start of an unroll.", "seconds", ("actor",)
)
ACTOR_ENV_STEP = CounterMetric("herd_actor_env_step_seconds_total", "Spent in stepping environments.", "seconds", ("actor",))
ACTOR_INFERENCE = CounterMetric(
    "herd_actor_inference_seconds_total", "Spent in the policy, from observation to action.", "seconds", ("actor",)
)
ACTOR_ROUND_TRIP = HistogramMetric(
    "herd_actor_inference_round_trip_seconds",
    "From asking the inference service about a row to its answer; some of it passes while other environments are stepped.",
    "seconds",
    ("actor",),
    buckets=(0.003, 0.009, 0.03, 0.1),
)
ACTOR_REQUESTS_PENDING = GaugeMetric(
    "herd_actor_inference_requests_pending",
    "Rows that the inference service has been asked about and has not answered.",
    "rows",
    ("actor",),
)
ACTOR_SUBSTITUTED = CounterMetric(
    "herd_actor_inference_substituted_rows_total",
    "Rows of one half of the environments that the actor's own policy acted on while the inference service was away.",
    "rows",
    ("actor",),
)

# --- learner: the ledger of frames and unrolls -------------------------------------------------------------------------------------
LEARNER_ENV_FRAMES = CounterMetric(
    "herd_learner_env_frames_total",
    "Env frames trained on for the first time (replayed ones do not count), since this process started.",
    "env_frames",
    ("learner",),
)
RUN_ENV_FRAMES = GaugeMetric(
    "herd_learner_run_env_frames",
    "Env frames trained on by all shards since the run began; a restart goes back to the checkpoint's.",
    "env_frames",
    ("learner",),
)
RUN_IS_OVER = GaugeMetric(
    "herd_learner_run_is_over", "1 when the run has reached its stop and this shard only waits for a signal; 0 before.", "1", ("learner",)
)
LEARNER_FRAMES_PER_SECOND = GaugeMetric(
    "herd_learner_env_frames_per_second", "Env frames trained on per second over the last log interval.", "env_frames/second", ("learner",)
)
FRAMES_GENERATED = CounterMetric(
    "herd_learner_env_frames_generated_total",
    "Env frames that actors reported as played, since this process started.",
    "env_frames",
    ("learner",),
)
FRAMES_DROPPED = CounterMetric(
    "herd_learner_env_frames_dropped_total",
    "Env frames never trained on, by reason, since this process started; those lost by its start are among them.",
    "env_frames",
    ("learner",),
    labels=("reason",),
    values=DROP_REASONS,
)
FRAMES_IN_FLIGHT = GaugeMetric(
    "herd_learner_env_frames_in_flight", "Env frames reported but neither trained on nor dropped yet.", "env_frames", ("learner",)
)
UNROLLS_RECEIVED = CounterMetric("herd_learner_unrolls_received_total", "Unrolls taken into the queue.", "unrolls", ("learner",))
UNROLLS_CONSUMED = CounterMetric("herd_learner_unrolls_consumed_total", "Fresh unrolls trained on.", "unrolls", ("learner",))
UNROLLS_REPLAYED = CounterMetric("herd_learner_unrolls_replayed_total", "Unrolls trained on again out of replay.", "unrolls", ("learner",))
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
    "Unrolls waiting for a batch. Always full: the learner is the bottleneck; always empty: the actors are.",
    "unrolls",
    ("learner",),
)
QUEUE_CAPACITY = GaugeMetric(
    "herd_learner_queue_capacity_unrolls", "Bound of the queue and of all credit together.", "unrolls", ("learner",)
)
CREDIT_OUTSTANDING = GaugeMetric(
    "herd_learner_credit_outstanding_unrolls", "Unrolls that actors may send and have not sent.", "unrolls", ("learner",)
)
CONNECTED_ACTORS = GaugeMetric("herd_learner_connected_actors", "Actors heard from within the credit's expiry.", "actors", ("learner",))
REPLAY_UNROLLS = GaugeMetric("herd_learner_replay_unrolls", "Unrolls held in the learner's own replay.", "unrolls", ("learner",))
REPLAY_STALENESS = HistogramMetric(
    "herd_learner_replay_staleness_updates",
    "Learner updates between the policy that began a replayed unroll of this agent and the update that trains on it.",
    "updates",
    ("learner",),
    buckets=(1, 10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000),
)
REPLAY_TIMEOUTS = CounterMetric(
    "herd_learner_replay_timeouts_total",
    "Batches that waited replay.timeout_seconds for the replay service in vain; those that follow are of online unrolls alone.",
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
    "Updates that changed no parameter, since their gradient was not finite; every shard counts each.",
    "updates",
    ("learner",),
)
UPDATES_CLIPPED = CounterMetric(
    "herd_learner_updates_clipped_total",
    "Updates whose gradient was longer than optimizer.max_gradient_norm or optimizer.clip_percentile allow; every shard counts each.",
    "updates",
    ("learner",),
)
EXPLAINED_VARIANCE = GaugeMetric(
    "herd_learner_explained_variance_ratio",
    "Of the values' targets, by the values, on one batch: 1 for perfect values, 0 for a constant; NaN where all targets are the same.",
    "1",
    ("learner",),
)
EFFECTIVE_SAMPLE_SIZE = GaugeMetric(
    "herd_learner_effective_sample_size_ratio",
    "(sum rho)^2 / (n sum rho^2) of one batch's unclipped importance ratios: the share of its rows that importance sampling leaves.",
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
    "Share of a layer's units, or of a convolution's filters, that gave 0 on all of one batch; layers count from 1, the first.",
    "1",
    ("learner",),
    labels=("layer",),
)
LAYER_ALWAYS_ON = GaugeMetric(
    "herd_learner_layer_always_on_ratio",
    "Share of a layer's units, or of a convolution's filters, that gave more than 0 on all of one batch.",
    "1",
    ("learner",),
    labels=("layer",),
)
UPDATE_PHASE = CounterMetric(
    "herd_learner_update_phase_seconds_total",
    "The learner's time, by phase of the update; divide by herd_learner_updates_total for the mean.",
    "seconds",
    ("learner",),
    labels=("phase",),
    values=PHASES,
)
LEARNER_STARVED = CounterMetric(
    "herd_learner_starved_seconds_total", "Waited for a full batch: the actors are the bottleneck.", "seconds", ("learner",)
)
LOSS = GaugeMetric(
    "herd_learner_loss",
    "Of the last update, per trained agent step, by term, each with its cost: the terms that the loss names add up to total.",
    "nats or squared return",
    ("learner",),
    labels=("term",),
)
LEARNER_METRIC = GaugeMetric(
    "herd_learner_metric",
    "Of the last update, each number that the loss names, as it is in metrics.jsonl: entropy, mean_rho, loss_value, ...",
    "the loss's own",
    ("learner",),
    labels=("name",),
)
UNROLLS_TRAINED = CounterMetric(
    "herd_learner_unrolls_trained_total",
    "Unrolls from actors, counted at every update that trained on them: over those consumed, how often each sample is used.",
    "unrolls",
    ("learner",),
)
GRADIENT_NORM = GaugeMetric("herd_learner_gradient_norm", "Global norm of the last gradient before clipping.", "1", ("learner",))
LEARNING_RATE = GaugeMetric("herd_learner_learning_rate", "Of the last update.", "1", ("learner",))
CHECKPOINTS_WRITTEN = CounterMetric("herd_learner_checkpoints_written_total", "Checkpoints complete on disk.", "checkpoints", ("learner",))
CHECKPOINT_FAILURES = CounterMetric(
    "herd_learner_checkpoint_failures_total", "Checkpoints that could not be written; the one before stays.", "checkpoints", ("learner",)
)
CHECKPOINT_UPDATES = GaugeMetric(
    "herd_learner_checkpoint_updates", "Learner updates behind the newest checkpoint.", "updates", ("learner",)
)
WRITE_FAILURES = CounterMetric(
    "herd_learner_write_failures_total",
    "Times that a file of the run directory, other than a checkpoint, could not be written; the run goes on without.",
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
EPISODE_AGENT_STEPS = CounterMetric(
    "herd_learner_episode_agent_steps_total",
    "Agent steps of finished games, by task; divide by herd_learner_episodes_total for the mean length.",
    "agent_steps",
    ("learner",),
    labels=("task",),
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
    "Mean over the tasks with human scores of (return - random) / (human - random), each at most 1, of the last 100 games; shard 0's. "
    "Not there before each of them has finished a game.",
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
    "Requests taken in, by kind; malformed ones are not among them.",
    "messages",
    ("paramserver",),
    labels=("kind",),
    values=REQUEST_KINDS,
)
PARAMSERVER_VERSIONS = CounterMetric(
    "herd_paramserver_versions_total",
    "Complete versions taken, from learners (root) or from the parent (replica).",
    "versions",
    ("paramserver",),
)
PARAMSERVER_STALE_PUBLISHES = CounterMetric(
    "herd_paramserver_stale_publishes_total",
    "Publications refused because a newer version is held or on its way.",
    "messages",
    ("paramserver",),
)
PARAMSERVER_WEIGHTS_SIZE = GaugeMetric(
    "herd_paramserver_weights_bytes", "Size of everything held, of all agents.", "bytes", ("paramserver",)
)
PARAMSERVER_LEASES = GaugeMetric(
    "herd_paramserver_leased_indices", "Actor indices held by living actors (root).", "indices", ("paramserver",)
)
PARAMSERVER_AGENT_LEASES = GaugeMetric(
    "herd_paramserver_agent_leased_indices",
    "The same by agent: they differ by one at most, but for agents that are over (root).",
    "indices",
    ("paramserver",),
    labels=("agent",),
)
PARAMSERVER_MOVES = CounterMetric(
    "herd_paramserver_moves_total",
    "Actors told to act for another agent, or under another index, than they did (root).",
    "moves",
    ("paramserver",),
)
PARAMSERVER_AGENT_LINEAGE = GaugeMetric(
    "herd_paramserver_agent_lineage", "Lineage of the weights served, by agent.", "lineage", ("paramserver",), labels=("agent",)
)
PARAMSERVER_AGENT_UPDATES = GaugeMetric(
    "herd_paramserver_agent_updates", "Learner updates behind the weights served, by agent.", "updates", ("paramserver",), labels=("agent",)
)
PARAMSERVER_UPSTREAM_ANSWERS = CounterMetric(
    "herd_paramserver_upstream_answers_total",
    "The parent's answers to this replica's questions for newer weights, by kind (replica).",
    "messages",
    ("paramserver",),
    labels=("answer",),
    values=ANSWERS,
)
PARAMSERVER_UPSTREAM_SILENCE = GaugeMetric(
    "herd_paramserver_upstream_silence_seconds",
    "Since the parent last answered, or since the start where it never did (replica). Part of a second while it lives.",
    "seconds",
    ("paramserver",),
)
PARAMSERVER_RELAYED = GaugeMetric(
    "herd_paramserver_relayed_requests",
    "Index requests passed on to the parent and not answered yet (replica).",
    "messages",
    ("paramserver",),
)

# --- bandit ------------------------------------------------------------------------------------------------------------------------
BANDIT_REQUESTS = CounterMetric(
    "herd_bandit_requests_total",
    "Requests for temperatures, by what became of them; malformed ones are not among them.",
    "messages",
    ("bandit",),
    labels=("outcome",),
    values=REQUEST_OUTCOMES,
)
BANDIT_REPORTS = CounterMetric(
    "herd_bandit_reports_total",
    "Finished games that actors reported, by what became of the report; only accepted ones change anything.",
    "episodes",
    ("bandit",),
    labels=("outcome",),
    values=REPORT_OUTCOMES,
)
BANDIT_REUSED = CounterMetric(
    "herd_bandit_reused_temperatures_total",
    "Accepted games that an actor played under its last temperature, because no answer came in time.",
    "episodes",
    ("bandit",),
)
BANDIT_TEMPERATURE = HistogramMetric(
    "herd_bandit_inverse_temperature",
    "1/tau handed out for training since this process started.",
    "1",
    ("bandit",),
    labels=("agent", "task"),
    buckets=(0, 0.25, 0.5, 1, 1.5, 2, 3, 5, 8, 12, 18, 25, 35, 50),  # about two tiles each, in the middle of the row
)
BANDIT_TILE_VALUE = GaugeMetric(
    "herd_bandit_tile_value",
    "Mean over the bandits of a tile's value. Tile i holds log(1 + 1/tau) from i x tile_accuracy on, counted from the left boundary.",
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
BANDIT_TILE_VOTES = CounterMetric(
    "herd_bandit_votes_total",
    "Candidates that bandits proposed, by tile, since the run began: one of them is drawn for each temperature.",
    "candidates",
    ("bandit",),
    labels=("agent", "task", "tile"),
)
BANDIT_RESTORED = GaugeMetric(
    "herd_bandit_restored_episodes",
    "Games counted in the state that this process started from; 0 for a fresh one.",
    "episodes",
    ("bandit",),
)
BANDIT_SNAPSHOTS = CounterMetric("herd_bandit_snapshots_written_total", "States complete on disk.", "snapshots", ("bandit",))
BANDIT_FILE_FAILURES = CounterMetric(
    "herd_bandit_file_failures_total",
    "Times that the state or the history could not be written; the service goes on.",
    "failures",
    ("bandit",),
    labels=("file",),
    values=("state.json", "history.jsonl"),
)
BANDIT_SNAPSHOT_AGE = GaugeMetric(
    "herd_bandit_snapshot_age_seconds",
    "Since the state was last written, or restored: what a kill now would cost. NaN before either.",
    "seconds",
    ("bandit",),
)
BANDIT_CLIENTS = GaugeMetric(
    "herd_bandit_remembered_clients", "Clients whose last request is remembered, so that it counts once.", "clients", ("bandit",)
)
BANDIT_BYTES_IN = CounterMetric(
    "herd_bandit_received_bytes_total", "Received, headers included, ZeroMQ's own framing excluded.", "bytes", ("bandit",)
)
BANDIT_BYTES_OUT = CounterMetric(
    "herd_bandit_sent_bytes_total", "Sent, headers included, ZeroMQ's own framing excluded.", "bytes", ("bandit",)
)

# --- replay ------------------------------------------------------------------------------------------------------------------------
REPLAY_REQUESTS = CounterMetric(
    "herd_replay_requests_total",
    "Messages of learners, by what became of them.",
    "messages",
    ("replay",),
    labels=("outcome",),
    values=REPLAY_OUTCOMES,
)
REPLAY_INSERTED_UNROLLS = CounterMetric(
    "herd_replay_inserted_unrolls_total",
    "Unrolls taken in, by the agent that played them; one that straddles two games may be so by two replicas.",
    "unrolls",
    ("replay",),
    labels=("agent",),
)
REPLAY_INSERTED_EPISODES = CounterMetric(
    "herd_replay_inserted_episodes_total", "Episodes that became complete and were kept.", "episodes", ("replay",)
)
REPLAY_INSERTED_STEPS = CounterMetric("herd_replay_inserted_agent_steps_total", "Agent steps of them.", "agent_steps", ("replay",))
REPLAY_DISCARDED = CounterMetric(
    "herd_replay_discarded_episodes_total",
    "Episodes that were not kept: an unroll is missing (hole), too many were open, or too large.",
    "episodes",
    ("replay",),
    labels=("reason",),
    values=DISCARDED_EPISODES_BY,
)
REPLAY_DROPPED = CounterMetric(
    "herd_replay_dropped_pieces_total",
    "Parts of unrolls that were not taken: replay has them, or their episode is over.",
    "unrolls",
    ("replay",),
    labels=("reason",),
    values=DROPPED_PIECES_BY,
)
REPLAY_EVICTED = CounterMetric(
    "herd_replay_evicted_episodes_total",
    "Oldest episodes that made room, by the bound: replay.capacity_agent_steps or replay_service.memory_bytes.",
    "episodes",
    ("replay",),
    labels=("reason",),
    values=EVICTED_EPISODES_BY,
)
REPLAY_SAMPLED = CounterMetric(
    "herd_replay_samples_total", "Drawn and sent, by kind.", "samples", ("replay",), labels=("kind",), values=SAMPLE_KINDS
)
REPLAY_SAMPLED_STEPS = CounterMetric("herd_replay_sampled_agent_steps_total", "Agent steps of what was drawn.", "agent_steps", ("replay",))
REPLAY_SAMPLE_AGE = HistogramMetric(
    "herd_replay_sample_age_agent_steps",
    "Of what was drawn: agent steps inserted since its episode was.",
    "agent_steps",
    ("replay",),
    buckets=(1e3, 1e4, 3e4, 1e5, 3e5, 1e6, 2e6, 3e6, 5e6, 1e7, 1.5e7, 3e7),
)
REPLAY_STEPS = GaugeMetric("herd_replay_agent_steps", "Agent steps of complete episodes held.", "agent_steps", ("replay",))
REPLAY_CAPACITY = GaugeMetric("herd_replay_capacity_agent_steps", "Most of them that this replica holds.", "agent_steps", ("replay",))
REPLAY_EPISODES = GaugeMetric("herd_replay_episodes", "Complete episodes held.", "episodes", ("replay",))
REPLAY_OPEN_STEPS = GaugeMetric(
    "herd_replay_open_agent_steps", "Agent steps of episodes that have not ended yet.", "agent_steps", ("replay",)
)
REPLAY_OPEN_EPISODES = GaugeMetric("herd_replay_open_episodes", "Episodes that have not ended yet.", "episodes", ("replay",))
REPLAY_BYTES = GaugeMetric("herd_replay_bytes", "Memory that episodes take, complete and open ones.", "bytes", ("replay",))
REPLAY_MAX_BYTES = GaugeMetric(
    "herd_replay_max_bytes", "Most memory that complete episodes may take; then the oldest go.", "bytes", ("replay",)
)
REPLAY_RESTORED = GaugeMetric(
    "herd_replay_restored_agent_steps",
    "Agent steps in the snapshot that this process started from; 0 for a fresh one.",
    "agent_steps",
    ("replay",),
)
REPLAY_SNAPSHOTS = CounterMetric("herd_replay_snapshots_written_total", "Snapshots complete on disk.", "snapshots", ("replay",))
REPLAY_FILE_FAILURES = CounterMetric(
    "herd_replay_file_failures_total", "Times that a snapshot could not be written; the one before stays.", "failures", ("replay",)
)
REPLAY_SNAPSHOT_AGE = GaugeMetric(
    "herd_replay_snapshot_age_seconds",
    "Since the last snapshot was written, or restored: what a kill now would cost. NaN before either.",
    "seconds",
    ("replay",),
)
REPLAY_BYTES_IN = CounterMetric(
    "herd_replay_received_bytes_total", "Received, headers included, ZeroMQ's own framing excluded.", "bytes", ("replay",)
)
REPLAY_BYTES_OUT = CounterMetric(
    "herd_replay_sent_bytes_total", "Sent, headers included, ZeroMQ's own framing excluded.", "bytes", ("replay",)
)

# --- population --------------------------------------------------------------------------------------------------------------------
POPULATION_REPORTS = CounterMetric(
    "herd_population_reports_total",
    "Reports of members, by the answer.",
    "messages",
    ("population",),
    labels=("outcome",),
    values=REPORT_ANSWERS,
)
POPULATION_DECISIONS = CounterMetric(
    "herd_population_decisions_total",
    "Decisions about members whose games were enough, by what came of them.",
    "decisions",
    ("population",),
    labels=("outcome",),
    values=DECISIONS,
)
POPULATION_FAILED_ORDERS = CounterMetric(
    "herd_population_failed_orders_total", "Orders that a member could not carry out; nothing of them was done.", "orders", ("population",)
)
POPULATION_FILE_FAILURES = CounterMetric(
    "herd_population_file_failures_total",
    "Events that the journal could not take, and that did not happen.",
    "failures",
    ("population",),
)
POPULATION_FITNESS = GaugeMetric(
    "herd_population_fitness", "Of a member, as it reported last.", "population.fitness", ("population",), labels=("agent",)
)
POPULATION_ENV_FRAMES = GaugeMetric(
    "herd_population_env_frames", "That a member has trained on, as it reported last.", "env_frames", ("population",), labels=("agent",)
)
POPULATION_SETTING = GaugeMetric(
    "herd_population_setting", "A number that a member has as its own setting.", "1", ("population",), labels=("agent", "setting")
)
POPULATION_BYTES_IN = CounterMetric(
    "herd_population_received_bytes_total", "Received, headers included, ZeroMQ's own framing excluded.", "bytes", ("population",)
)
POPULATION_BYTES_OUT = CounterMetric(
    "herd_population_sent_bytes_total", "Sent, headers included, ZeroMQ's own framing excluded.", "bytes", ("population",)
)

# --- inference ---------------------------------------------------------------------------------------------------------------------
INFERENCE_REQUESTS = CounterMetric(
    "herd_inference_requests_total",
    "Requests of actors, by what became of them.",
    "messages",
    ("inference",),
    labels=("outcome",),
    values=ACTING_OUTCOMES,
)
INFERENCE_STEPS = CounterMetric(
    "herd_inference_agent_steps_total", "Environments acted for, once for each row.", "agent_steps", ("inference",)
)
INFERENCE_BATCH = HistogramMetric(
    "herd_inference_batch_environments",
    "Environments acted for at once.",
    "environments",
    ("inference",),
    buckets=(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024),
)
INFERENCE_WAIT = HistogramMetric(
    "herd_inference_wait_seconds",
    "From a request's arrival until its batch began: inference.deadline_milliseconds, and the batches before it.",
    "seconds",
    ("inference",),
    buckets=(0.0002, 0.0005, 0.001, 0.002, 0.003, 0.005, 0.009, 0.02, 0.05, 0.2),
)
INFERENCE_COMPUTE = CounterMetric(
    "herd_inference_compute_seconds_total", "Spent on batches, from their first copy to their answers.", "seconds", ("inference",)
)
INFERENCE_PENDING = GaugeMetric(
    "herd_inference_pending_requests", "Requests taken and not answered yet; at most one of each client.", "messages", ("inference",)
)
INFERENCE_ENVIRONMENTS = GaugeMetric(
    "herd_inference_environments", "Environments whose stacks and recurrent states are kept.", "environments", ("inference",)
)
INFERENCE_CAPACITY = GaugeMetric(
    "herd_inference_capacity_environments", "Most of them: inference.max_environments.", "environments", ("inference",)
)
INFERENCE_EVICTED = CounterMetric(
    "herd_inference_evicted_environments_total",
    "Environments, silent the longest, whose state made room for others'; their actors send it again.",
    "environments",
    ("inference",),
)
INFERENCE_BYTES_IN = CounterMetric(
    "herd_inference_received_bytes_total", "Received of actors, headers included, ZeroMQ's own framing excluded.", "bytes", ("inference",)
)
INFERENCE_BYTES_OUT = CounterMetric(
    "herd_inference_sent_bytes_total", "Sent to actors, headers included, ZeroMQ's own framing excluded.", "bytes", ("inference",)
)

# --- evaluator ---------------------------------------------------------------------------------------------------------------------
EVALUATOR_EVALUATIONS = CounterMetric(
    "herd_evaluator_evaluations_total", "Frozen versions played to the end.", "evaluations", ("evaluator",)
)
EVALUATOR_EPISODES = CounterMetric("herd_evaluator_episodes_total", "Whole games that were played and count.", "games", ("evaluator",))
EVALUATOR_SECONDS = GaugeMetric(
    "herd_evaluator_last_evaluation_seconds",
    "That the last evaluation took; above evaluation.interval_seconds it sets the pace.",
    "seconds",
    ("evaluator",),
)
EVALUATOR_UPDATES = GaugeMetric(
    "herd_evaluator_evaluated_updates",
    "Learner updates of the version that was evaluated last.",
    "updates",
    ("evaluator",),
    labels=("agent",),
)
EVALUATOR_SCORE = GaugeMetric(
    "herd_evaluator_score", "Mean raw return over the games of the last evaluation.", "return", ("evaluator",), labels=("agent", "task")
)
EVALUATOR_AGGREGATE = GaugeMetric(
    "herd_evaluator_normalised_score",
    "Over the tasks of the last evaluation, where all have reference scores: human-normalised (saber_...: record-normalised).",
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
"""What grows while a process of the service makes progress."""
