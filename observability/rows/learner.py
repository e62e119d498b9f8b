"""How the learner spends its time, by shard, and whether its work is on disk."""

from observability.panels import Panel, Query, Row, share

ROW = Row(
    title="Learner",
    panels=(
        share(
            "Where the learner's time goes",
            "Mean over shards, by phase of the update. `wait`: waiting for unrolls. `agree`: waiting for other shards, "
            "usually for one without unrolls. `replay`: waiting for replayed unrolls. `assemble`: assembling a batch. "
            "`host_to_device`: copying it to the accelerator. `publish`: if it is long, weights are published too often for "
            "their size. Normal: forward_backward takes most of the time.",
            Query("herd:learner_phase:ratio_rate1m{SCOPE}", "{{phase}}"),
            stacked=True,
        ),
        share(
            "Waiting, by shard",
            "Share of time that a shard waits for its own unrolls. All shards wait for the one with the largest share; the "
            "others then spend their time in the phase `agree` instead.",
            Query("sum by (pod) (rate(herd_learner_starved_seconds_total{SCOPE}[$__rate_interval]))", "{{pod}}"),
            steps=((0.5, "orange"),),
        ),
        Panel(
            title="Frames per second, by shard",
            description="Shards train on equal parts of each batch, so their lines coincide.",
            queries=(Query("sum by (pod) (rate(herd_learner_env_frames_total{SCOPE}[$__rate_interval]))", "{{pod}}"),),
        ),
        Panel(
            title="Seconds per update, by phase",
            description="Seconds per update and shard: mean by phase.",
            queries=(
                Query(
                    "avg by (phase) (rate(herd_learner_update_phase_seconds_total{SCOPE}[$__rate_interval]))\n"
                    "/ on () group_left () avg(rate(herd_learner_updates_total{SCOPE}[$__rate_interval]))",
                    "{{phase}}",
                ),
            ),
            unit="s",
            stacked=True,
        ),
        Panel(
            title="Use of a sample",
            description="Number of updates in which each unroll is used. It should be learner.sample_reuse.",
            queries=(
                Query(
                    "sum(rate(herd_learner_unrolls_trained_total{SCOPE}[$__rate_interval]))\n"
                    "/ sum(rate(herd_learner_unrolls_consumed_total{SCOPE}[$__rate_interval]))",
                    "updates per unroll",
                ),
            ),
            decimals=1,
        ),
        Panel(
            title="Updates skipped",
            description="Updates in five minutes that were skipped because the gradient was not finite; the parameters did not change. "
            "Normal: 0, or one in days.",
            queries=(Query("max(increase(herd_learner_updates_skipped_total{SCOPE}[5m]))", "skipped"),),
            decimals=0,
        ),
        Panel(
            title="Updates since the last checkpoint",
            description="Updates that a restart would lose. Normal: a sawtooth. If it only increases, checkpoints fail.",
            queries=(
                Query(
                    'herd:weights_updates:max{SCOPE, component="learner"} - on () max(herd_learner_checkpoint_updates{SCOPE})',
                    "updates at stake",
                ),
            ),
        ),
        Panel(
            title="Checkpoints and files",
            description="Per hour: written checkpoints, failed checkpoints, and failed writes of other files of the run.",
            queries=(
                Query("sum(increase(herd_learner_checkpoints_written_total{SCOPE}[1h]))", "checkpoints written"),
                Query("sum(increase(herd_learner_checkpoint_failures_total{SCOPE}[1h]))", "checkpoints failed"),
                Query("sum by (file) (increase(herd_learner_write_failures_total{SCOPE}[1h]))", "{{file}} not written"),
            ),
            decimals=0,
        ),
        Panel(
            title="Cores in use, by shard",
            description="Processor time per second. Normal with an accelerator: one or two cores.",
            queries=(
                Query('sum by (pod) (rate(herd_process_cpu_seconds_total{SCOPE, component="learner"}[$__rate_interval]))', "{{pod}}"),
            ),
        ),
        Panel(
            title="Memory, by process",
            description="Memory of shards, parameter servers and the bandit. A shard's memory increases until replay is full; then all "
            "are constant.",
            queries=(Query('herd_process_resident_memory_bytes{SCOPE, component!="actor"}', "{{pod}}"),),
            unit="bytes",
        ),
        Panel(
            title="Silence of main loops",
            description="Longest time since the last turn of a main loop, by component, as a share of the limit at which /healthz fails.",
            queries=(Query("herd:process_heartbeat_age_ratio:max{SCOPE}", "{{component}}"),),
            unit="percentunit",
            steps=((1.0, "red"),),
        ),
        Panel(
            title="Releases of the program",
            description="Number of processes by version. There are several versions only during a rolling upgrade.",
            queries=(Query("count by (component, version) (herd_process_info{SCOPE})", "{{component}} {{version}}"),),
            decimals=0,
        ),
    ),
)
