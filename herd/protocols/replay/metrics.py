"""Metrics of replay, and of the learner as its client."""

from __future__ import annotations

from herd.telemetry.metrics import Exporters

_learner = Exporters("learner")
_replay = Exporters("replay")

REPLAY_STALENESS = _learner.histogram(
    "herd_learner_replay_staleness_updates",
    "updates",
    "Learner updates between the policy that began a replayed unroll of this agent and the update that trains on it.",
    buckets=(1, 10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000),
)
REPLAY_TIMEOUTS = _learner.counter(
    "herd_learner_replay_timeouts_total",
    "batches",
    "Batches that got no answer from replay within replay.timeout_seconds. The following batches contain online unrolls only.",
)
REPLAY_LOST = _learner.counter(
    "herd_learner_replay_lost_unrolls_total",
    "unrolls",
    "Unrolls that never reached the replay service (backlog), or came back unreadable (damaged).",
    labels=("reason",),
    values=("backlog", "damaged"),
)

REPLAY_OUTCOMES = ("inserted", "repeated", "early", "sampled", "empty", "malformed")
"""What replay made of a request: unrolls taken, taken before, or after some that are missing; drawn, nothing to draw; broken."""
REPLAY_REQUESTS = _replay.counter(
    "herd_replay_requests_total",
    "messages",
    "Messages from learners, by outcome.",
    labels=("outcome",),
    values=REPLAY_OUTCOMES,
    counts_work=True,
)
REPLAY_INSERTED_EPISODES = _replay.counter(
    "herd_replay_inserted_episodes_total", "episodes", "Episodes that became complete and were stored."
)
REPLAY_INSERTED_STEPS = _replay.counter("herd_replay_inserted_agent_steps_total", "agent_steps", "Agent steps of the stored episodes.")

DISCARDED_EPISODES_BY = ("hole", "open")
"""Reasons for discarding an episode: an unroll is missing, or open episodes took too much memory."""
REPLAY_DISCARDED = _replay.counter(
    "herd_replay_discarded_episodes_total",
    "episodes",
    "Episodes that were not kept: an unroll was missing (hole), or open ones took too much memory (open).",
    labels=("reason",),
    values=DISCARDED_EPISODES_BY,
)

EVICTED_EPISODES_BY = ("capacity", "memory")
"""Limits for which an episode was evicted."""
REPLAY_EVICTED = _replay.counter(
    "herd_replay_evicted_episodes_total",
    "episodes",
    "Oldest episodes that were dropped for new ones, by the bound that was reached: replay.capacity_agent_steps or "
    "replay_service.memory_bytes.",
    labels=("reason",),
    values=EVICTED_EPISODES_BY,
)

REPLAY_SAMPLED_STEPS = _replay.counter("herd_replay_sampled_agent_steps_total", "agent_steps", "Agent steps of the samples drawn.")
REPLAY_SAMPLE_AGE = _replay.histogram(
    "herd_replay_sample_age_agent_steps",
    "agent_steps",
    "Age of a sample: agent steps inserted since its episode was.",
    buckets=(1e3, 1e4, 3e4, 1e5, 3e5, 1e6, 2e6, 3e6, 5e6, 1e7, 1.5e7, 3e7),
)
REPLAY_STEPS = _replay.gauge("herd_replay_agent_steps", "agent_steps", "Agent steps of complete episodes held.")
REPLAY_CAPACITY = _replay.gauge(
    "herd_replay_capacity_agent_steps", "agent_steps", "Largest number of agent steps of complete episodes that this replica holds."
)
REPLAY_EPISODES = _replay.gauge("herd_replay_episodes", "episodes", "Complete episodes held.")
REPLAY_OPEN_STEPS = _replay.gauge("herd_replay_open_agent_steps", "agent_steps", "Agent steps of episodes that have not ended yet.")
REPLAY_BYTES = _replay.gauge("herd_replay_bytes", "bytes", "Memory of all episodes, complete and open.")
REPLAY_MAX_BYTES = _replay.gauge(
    "herd_replay_max_bytes", "bytes", "Largest memory for episodes. Beyond it the oldest complete ones are dropped."
)
REPLAY_RESTORED = _replay.gauge(
    "herd_replay_restored_agent_steps", "agent_steps", "Agent steps in the snapshot that this process restored; 0 if it started fresh."
)
REPLAY_SNAPSHOTS = _replay.counter("herd_replay_snapshots_written_total", "snapshots", "Snapshots written completely to disk.")
REPLAY_FILE_FAILURES = _replay.counter(
    "herd_replay_file_failures_total", "failures", "Failed writes of a snapshot. The previous snapshot stays."
)
REPLAY_SNAPSHOT_AGE = _replay.gauge(
    "herd_replay_snapshot_age_seconds",
    "seconds",
    "Seconds since the last snapshot was written or restored: what a kill now would lose. NaN before either.",
)
