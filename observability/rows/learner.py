"""Where the learner's time goes, shard by shard, and whether its work is safe on disk."""

from observability.panels import Panel, Query, Row, share

ROW = Row(
    title="Learner",
    panels=(
        share(
            "Where the learner's time goes",
            "Mean over shards, by phase of the update. `wait`: for batches of their own, starved. `agree`: for other shards, most often "
            "one that starves. `replay`: for replayed unrolls. `assemble`: copying a batch together. `host_to_device`: the way to the "
            "accelerator. `publish`: weights go out too often for their size. Healthy: forward_backward fills it.",
            Query("herd:learner_phase:ratio_rate1m{SCOPE}", "{{phase}}"),
            stacked=True,
        ),
        share(
            "Waiting, by shard",
            "Share of its time that a shard waits for a batch of its own. The one that waits most is the one that all wait for: "
            "meanwhile the others are in the phase `agree`, and hardly wait here.",
            Query("sum by (pod) (rate(herd_learner_starved_seconds_total{SCOPE}[$__rate_interval]))", "{{pod}}"),
            steps=((0.5, "orange"),),
        ),
        Panel(
            title="Frames per second, by shard",
            description="Shards train on equal parts of each batch; their lines lie on each other.",
            queries=(Query("sum by (pod) (rate(herd_learner_env_frames_total{SCOPE}[$__rate_interval]))", "{{pod}}"),),
        ),
        Panel(
            title="Seconds per update, by phase",
            description="Mean of a shard.",
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
            description="Updates that each unroll takes part in; learner.sample_reuse says how many it should be.",
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
            description="In five minutes, since the gradient was not finite; the parameters were kept. 0, or one in days.",
            queries=(Query("max(increase(herd_learner_updates_skipped_total{SCOPE}[5m]))", "skipped"),),
            decimals=0,
        ),
        Panel(
            title="Updates since the last checkpoint",
            description="What a restart now would cost. A saw tooth; one that only rises: checkpoints fail.",
            queries=(
                Query(
                    'herd:weights_updates:max{SCOPE, component="learner"} - on () max(herd_learner_checkpoint_updates{SCOPE})',
                    "updates at stake",
                ),
            ),
        ),
        Panel(
            title="Checkpoints and files",
            description="Per hour: checkpoints written, checkpoints that failed, and other files of the run that could not be written.",
            queries=(
                Query("sum(increase(herd_learner_checkpoints_written_total{SCOPE}[1h]))", "checkpoints written"),
                Query("sum(increase(herd_learner_checkpoint_failures_total{SCOPE}[1h]))", "checkpoints failed"),
                Query("sum by (file) (increase(herd_learner_write_failures_total{SCOPE}[1h]))", "{{file}} not written"),
            ),
            decimals=0,
        ),
        Panel(
            title="Cores in use, by shard",
            description="Processor time per second. With an accelerator: one or two cores.",
            queries=(
                Query('sum by (pod) (rate(herd_process_cpu_seconds_total{SCOPE, component="learner"}[$__rate_interval]))', "{{pod}}"),
            ),
        ),
        Panel(
            title="Memory, by process",
            description="Of shards, parameter servers and the bandit. A shard's rises until replay is full; then all are flat.",
            queries=(Query('herd_process_resident_memory_bytes{SCOPE, component!="actor"}', "{{pod}}"),),
            unit="bytes",
        ),
        Panel(
            title="Silence of main loops",
            description="The longest of each component. /healthz fails at 60 s.",
            queries=(Query("herd:process_heartbeat_age_seconds:max{SCOPE}", "{{component}}"),),
            unit="s",
            steps=((60.0, "red"),),
        ),
        Panel(
            title="Releases of the program",
            description="Processes by version. More than one during a rolling upgrade, one otherwise.",
            queries=(Query("count by (component, version) (herd_process_info{SCOPE})", "{{component}} {{version}}"),),
            decimals=0,
        ),
    ),
)
