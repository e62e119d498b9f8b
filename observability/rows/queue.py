"""The row between actors and updates: the queue of every shard, and the ledger of frames."""

from observability.panels import Panel, Query, Row, share

ROW = Row(
    title="Queue",
    panels=(
        share(
            "Queue filled",
            "Filled share of each shard's queue. Always full: the learner is the bottleneck. Always empty: the actors are. If "
            "only one shard differs, its connections are.",
            Query("herd_learner_queue_unrolls{SCOPE} / herd_learner_queue_capacity_unrolls{SCOPE}", "{{pod}}"),
            steps=((0.9, "orange"),),
        ),
        Panel(
            title="Unrolls in and out",
            description="Unrolls per second, by shard. Credit keeps both rates equal over time. If both are 0, no unrolls arrive.",
            queries=(
                Query("sum by (pod) (rate(herd_learner_unrolls_received_total{SCOPE}[$__rate_interval]))", "{{pod}} in"),
                Query("sum by (pod) (rate(herd_learner_unrolls_consumed_total{SCOPE}[$__rate_interval]))", "{{pod}} out"),
            ),
        ),
        Panel(
            title="Credit given and not used",
            description="Unrolls that actors may send but have not sent, by shard. If the queue is empty, actors or their network are "
            "slow.",
            queries=(Query("herd_learner_credit_outstanding_unrolls{SCOPE}", "{{pod}}"),),
        ),
        Panel(
            title="Actors connected",
            description="Actors that sent a message within the expiry time of credit, by shard. Each actor is connected to a few shards.",
            queries=(Query("herd_learner_connected_actors{SCOPE}", "{{pod}}"),),
            decimals=0,
        ),
        Panel(
            title="Frames dropped",
            description="Env frames per second that are never trained on. `stale`: older than learner.max_policy_lag; `learner_restart`: "
            "lost with a learner that died; `malformed`: see the row Wire.",
            queries=(Query("herd:env_frames_dropped:rate5m{SCOPE}", "{{reason}}"),),
        ),
        Panel(
            title="Frames in flight",
            description="Env frames that were reported by actors but neither trained on nor dropped yet, by shard. Queue and credit bound "
            "them.",
            queries=(Query("herd_learner_env_frames_in_flight{SCOPE}", "{{pod}}"),),
        ),
        Panel(
            title="Frames played and their fate",
            description="Env frames per second that actors reported and that were trained on. The lines differ only by dropped frames.",
            queries=(
                Query("sum(rate(herd_learner_env_frames_generated_total{SCOPE}[$__rate_interval]))", "reported"),
                Query("sum(rate(herd_learner_env_frames_total{SCOPE}[$__rate_interval]))", "trained on"),
                Query("sum by (reason) (rate(herd_learner_unrolls_dropped_total{SCOPE}[$__rate_interval]))", "unrolls dropped: {{reason}}"),
            ),
        ),
        Panel(
            title="Replay",
            description="Unrolls stored by each shard (replay.kind uniform), and replayed unrolls trained on per second.",
            queries=(
                Query("herd_learner_replay_unrolls{SCOPE}", "{{pod}} held"),
                Query("sum(rate(herd_learner_unrolls_replayed_total{SCOPE}[$__rate_interval]))", "trained on again, per second"),
            ),
        ),
    ),
)
