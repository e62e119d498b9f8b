"""The queue before a learner, the learner's shards, and the weights on their way back."""

from observability.panels import Panel, Query, Row, share

QUEUE = Row(
    title="Queue",
    panels=(
        share(
            "Queue filled",
            "Filled share of each shard's queue. Always full: the learner is the bottleneck. Always empty: the actors are. If "
            "only one shard differs, its connections are.",
            Query("herd_learner_queue_unrolls{SCOPE, AGENTS} / herd_learner_queue_capacity_unrolls{SCOPE, AGENTS}", "{{pod}}"),
            steps=((0.9, "orange"),),
            width=12,
        ),
        Panel(
            title="Frames reported, trained on and dropped",
            description="Env frames per second that actors reported, that were trained on, and that never will be, by reason: `stale`, "
            "older than learner.max_policy_lag; `learner_restart`, lost with a learner that died; `malformed`, see the row Wire. Those in "
            "flight are neither trained on nor dropped yet; queue and credit bound them.",
            queries=(
                Query("sum(rate(herd_learner_env_frames_generated_total{SCOPE, AGENTS}[$__rate_interval]))", "reported"),
                Query("sum(rate(herd_learner_env_frames_total{SCOPE, AGENTS}[$__rate_interval]))", "trained on"),
                Query("sum by (reason) (rate(herd_learner_env_frames_dropped_total{SCOPE, AGENTS}[5m]))", "dropped: {{reason}}"),
                Query("sum(herd_learner_env_frames_in_flight{SCOPE, AGENTS})", "in flight (frames)"),
            ),
            width=12,
        ),
    ),
)

LEARNER = Row(
    title="Learner",
    panels=(
        share(
            "Where the learner's time goes",
            "Mean over shards, by phase of the update. `wait`: waiting for unrolls. `agree`: waiting for other shards, "
            "usually for one without unrolls. `replay`: waiting for replayed unrolls. `assemble`: assembling a batch. "
            "`host_to_device`: copying it to the accelerator. `publish`: if it is long, weights are published too often for "
            "their size. Normal: forward_backward takes most of the time.",
            Query("avg by (phase) (rate(herd_learner_update_phase_seconds_total{SCOPE, AGENTS}[1m]))", "{{phase}}"),
            stacked=True,
            width=8,
        ),
        share(
            "Waiting, by shard",
            "Share of time that a shard waits for its own unrolls. All shards wait for the one with the largest share; the "
            "others then spend their time in the phase `agree` instead.",
            Query("sum by (pod) (rate(herd_learner_starved_seconds_total{SCOPE, AGENTS}[$__rate_interval]))", "{{pod}}"),
            steps=((0.5, "orange"),),
            width=8,
        ),
        Panel(
            title="Updates per second",
            description="Optimizer steps per second, by agent.",
            queries=(Query("max by (agent) (rate(herd_learner_updates_total{SCOPE, AGENTS}[1m]))", "agent {{agent}}"),),
            width=8,
        ),
        Panel(
            title="Updates skipped and clipped",
            description="Share of updates whose gradient was clipped, and updates in five minutes that were skipped because the gradient "
            "was not finite: the parameters did not change. Normal: none skipped, or one in days.",
            queries=(
                Query("max by (agent) (increase(herd_learner_updates_skipped_total{SCOPE, AGENTS}[5m]))", "agent {{agent}} skipped"),
                Query(
                    "max by (agent) (rate(herd_learner_updates_clipped_total{SCOPE, AGENTS}[5m]))\n"
                    "/ max by (agent) (rate(herd_learner_updates_total{SCOPE, AGENTS}[5m]))",
                    "agent {{agent}} clipped (share)",
                ),
            ),
            width=8,
        ),
        Panel(
            title="Updates since the last checkpoint",
            description="Updates that a restart would lose, on this disk and, with copy_to, on any other. Normal: a sawtooth. If it only "
            "increases, checkpoints or copies fail.",
            queries=(
                Query(
                    'max by (agent) (herd_weights_updates{SCOPE, AGENTS, component="learner"})'
                    " - max by (agent) (herd_learner_checkpoint_updates{SCOPE, AGENTS})",
                    "agent {{agent}}",
                ),
                Query(
                    'max by (agent) (herd_weights_updates{SCOPE, AGENTS, component="learner"})'
                    " - max by (agent) (herd_learner_copy_updates{SCOPE, AGENTS} > 0)",
                    "agent {{agent}}, in the copy",
                ),
            ),
            width=8,
        ),
        Panel(
            title="Checkpoints and files",
            description="Per hour: written checkpoints, failed checkpoints, failed copies (copy_to), and failed writes of other files of "
            "the run.",
            queries=(
                Query("sum(increase(herd_learner_checkpoints_written_total{SCOPE, AGENTS}[1h]))", "checkpoints written"),
                Query("sum(increase(herd_learner_checkpoint_failures_total{SCOPE, AGENTS}[1h]))", "checkpoints failed"),
                Query("sum(increase(herd_learner_copy_failures_total{SCOPE, AGENTS}[1h]))", "copies failed"),
                Query("sum by (file) (increase(herd_learner_write_failures_total{SCOPE, AGENTS}[1h]))", "{{file}} not written"),
            ),
            decimals=0,
            width=8,
        ),
    ),
)

WEIGHTS = Row(
    title="Weights",
    panels=(
        Panel(
            title="Updates behind the learner",
            description="By agent, how far the oldest weights that parameter servers serve are behind those that the learner published "
            "last. If only replicas are behind, they are cut off from the root. If the learner publishes nothing, all stay at 0; the "
            "panel Age of weights shows this case.",
            queries=(Query("herd:weights_behind_updates:max{SCOPE}", "{{component}}, agent {{agent}}"),),
            width=8,
        ),
        Panel(
            title="Age of weights",
            description="Time since the current weights arrived (learner: since they were published). Normal for actors: a little more "
            "than the duration of an unroll. If all increase together, a shard's slice is not confirmed and publication has "
            "stopped.",
            queries=(
                Query("herd:weights_age_seconds:max{SCOPE}", "{{component}} oldest"),
                Query("herd:weights_age_seconds:p50{SCOPE}", "{{component}} median"),
            ),
            unit="s",
            steps=((300.0, "red"),),
            width=8,
        ),
        Panel(
            title="Policy lag",
            description="Learner updates between the policy that began an unroll and the update that trained on it.",
            queries=(
                Query("herd:policy_lag_updates:p95_5m{SCOPE, AGENTS}", "95 %, agent {{agent}}"),
                Query(
                    "histogram_quantile(0.5, sum by (agent, le) (rate(herd_learner_policy_lag_updates_bucket{SCOPE, AGENTS}[5m])))",
                    "median, agent {{agent}}",
                ),
            ),
            steps=((32.0, "red"),),
            width=8,
        ),
    ),
)
