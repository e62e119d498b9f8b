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
                Query("sum by (reason) (herd:env_frames_dropped:rate5m{SCOPE, AGENTS})", "dropped: {{reason}}"),
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
            Query("avg by (phase) (herd:learner_phase:ratio_rate1m{SCOPE, AGENTS})", "{{phase}}"),
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
            queries=(Query("herd:learner_updates:rate1m{SCOPE, AGENTS}", "agent {{agent}}"),),
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
                Query("herd:policy_lag_updates:p50_5m{SCOPE, AGENTS}", "median, agent {{agent}}"),
                Query("herd:policy_lag_updates:mean_5m{SCOPE, AGENTS}", "mean, agent {{agent}}"),
            ),
            steps=((32.0, "red"),),
            width=8,
        ),
        Panel(
            title="Requests and answers per second",
            description="Requests to parameter servers by kind, answers, and slices that were refused as stale. The learner publishes "
            "slices; actors request weights and lease an index. Most answers are `not_modified`, because clients ask more often than "
            "versions are published.",
            queries=(
                Query(
                    "sum by (component, kind) (rate(herd_paramserver_requests_total{SCOPE}[$__rate_interval]))", "{{component}}: {{kind}}"
                ),
                Query(
                    "sum by (component, answer) (rate(herd_paramserver_answers_total{SCOPE}[$__rate_interval]))",
                    "{{component}} answers {{answer}}",
                ),
                Query("sum(rate(herd_paramserver_stale_publishes_total{SCOPE}[$__rate_interval]))", "refused as stale"),
            ),
            width=12,
        ),
        Panel(
            title="Actors by agent",
            description="Leased actor indices by agent, and moved actors per minute. The numbers differ by at most one, except for agents "
            "whose run is over, which have none.",
            queries=(
                Query("max by (agent) (herd_paramserver_agent_leased_indices{SCOPE})", "agent {{agent}}"),
                Query("60 * sum(rate(herd_paramserver_moves_total{SCOPE}[$__rate_interval]))", "moved per minute"),
            ),
            width=12,
        ),
    ),
)
