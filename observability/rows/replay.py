"""Shared replay: insertions, contents and samples. Empty if the run has no replay service."""

from observability.panels import Panel, Query, Row, share

ROW = Row(
    title="Replay",
    panels=(
        Panel(
            title="Agent steps in and out",
            description="Agent steps per second of stored episodes and of samples. replay.fraction determines their ratio.",
            queries=(
                Query("sum(rate(herd_replay_inserted_agent_steps_total{SCOPE}[$__rate_interval]))", "in"),
                Query("sum(rate(herd_replay_sampled_agent_steps_total{SCOPE}[$__rate_interval]))", "out"),
            ),
        ),
        share(
            "Replay filled",
            "Stored agent steps as a share of replay.capacity_agent_steps, by replica. If it never reaches 100 %, "
            "replay_service.memory_bytes is the limit.",
            Query("herd_replay_agent_steps{SCOPE} / herd_replay_capacity_agent_steps{SCOPE}", "{{pod}}"),
        ),
        Panel(
            title="Memory of episodes",
            description="Memory of complete and open episodes by replica, and its limit. The process needs a little more.",
            queries=(
                Query("herd_replay_bytes{SCOPE}", "{{pod}}"),
                Query("max(herd_replay_max_bytes{SCOPE})", "bound"),
            ),
            unit="bytes",
        ),
        Panel(
            title="Episodes",
            description="Episodes per second that were stored, discarded and evicted. `hole`: an unroll was stale or lost; `open` and "
            "`size`: see the runbook.",
            queries=(
                Query("sum(rate(herd_replay_inserted_episodes_total{SCOPE}[$__rate_interval]))", "kept"),
                Query("sum by (reason) (rate(herd_replay_discarded_episodes_total{SCOPE}[$__rate_interval]))", "discarded: {{reason}}"),
                Query("sum by (reason) (rate(herd_replay_evicted_episodes_total{SCOPE}[$__rate_interval]))", "evicted: {{reason}}"),
            ),
        ),
        Panel(
            title="Age of what is drawn",
            description="Agent steps inserted since a sampled episode was: quantiles over five minutes. Normal median: half of the "
            "capacity.",
            queries=(
                Query("histogram_quantile(0.9, sum by (le) (rate(herd_replay_sample_age_agent_steps_bucket{SCOPE}[5m])))", "90 %"),
                Query("histogram_quantile(0.5, sum by (le) (rate(herd_replay_sample_age_agent_steps_bucket{SCOPE}[5m])))", "middle"),
                Query(
                    "sum(rate(herd_replay_sample_age_agent_steps_sum{SCOPE}[5m]))"
                    " / sum(rate(herd_replay_sample_age_agent_steps_count{SCOPE}[5m]))",
                    "mean",
                ),
            ),
        ),
        Panel(
            title="Staleness in learners",
            description="Learner updates since the policy that began a replayed unroll of the same agent, over five minutes.",
            queries=(
                Query("histogram_quantile(0.9, sum by (le) (rate(herd_learner_replay_staleness_updates_bucket{SCOPE}[5m])))", "90 %"),
                Query("histogram_quantile(0.5, sum by (le) (rate(herd_learner_replay_staleness_updates_bucket{SCOPE}[5m])))", "middle"),
                Query(
                    "sum(rate(herd_learner_replay_staleness_updates_sum{SCOPE}[5m]))"
                    " / sum(rate(herd_learner_replay_staleness_updates_count{SCOPE}[5m]))",
                    "mean",
                ),
            ),
        ),
        Panel(
            title="Learners without replay",
            description="Per second: batches without replayed unrolls after the timeout, and unrolls that never reached replay (backlog) "
            "or came back damaged.",
            queries=(
                Query("sum(rate(herd_learner_replay_timeouts_total{SCOPE}[$__rate_interval]))", "batches"),
                Query("sum by (reason) (rate(herd_learner_replay_lost_unrolls_total{SCOPE}[$__rate_interval]))", "unrolls: {{reason}}"),
            ),
        ),
        Panel(
            title="Messages of learners",
            description="Messages per second, by outcome. `repeated` and `early` follow a lost connection; `empty`: there is nothing to "
            "draw yet.",
            queries=(
                Query("sum by (outcome) (rate(herd_replay_requests_total{SCOPE}[$__rate_interval]))", "{{outcome}}"),
                Query("sum by (reason) (rate(herd_replay_dropped_pieces_total{SCOPE}[$__rate_interval]))", "pieces dropped: {{reason}}"),
            ),
        ),
        Panel(
            title="Unrolls in, samples out",
            description="Per second: inserted unrolls by the agent that played them, and drawn unrolls and episodes.",
            queries=(
                Query("sum by (agent) (rate(herd_replay_inserted_unrolls_total{SCOPE}[$__rate_interval]))", "in, agent {{agent}}"),
                Query("sum by (kind) (rate(herd_replay_samples_total{SCOPE}[$__rate_interval]))", "drawn: {{kind}}"),
            ),
        ),
        Panel(
            title="Episodes held",
            description="Complete episodes, and agent steps of episodes that have not ended.",
            queries=(
                Query("sum(herd_replay_episodes{SCOPE})", "complete"),
                Query("sum(herd_replay_open_agent_steps{SCOPE})", "agent steps of open ones"),
            ),
        ),
        Panel(
            title="Snapshots",
            description="Age of the oldest snapshot, which is the loss if a process is killed. If it is far above "
            "replay_service.snapshot_interval_seconds, the disk may be full.",
            queries=(
                Query("max(herd_replay_snapshot_age_seconds{SCOPE})", "age"),
                Query("sum(increase(herd_replay_snapshots_written_total{SCOPE}[1h]))", "written, last hour"),
                Query("sum(increase(herd_replay_file_failures_total{SCOPE}[1h]))", "not written, last hour"),
                Query("sum(herd_replay_restored_agent_steps{SCOPE})", "agent steps restored at the start"),
            ),
            unit="short",
        ),
    ),
)
