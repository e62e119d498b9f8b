"""Between actors and updates: the queue of every shard, and the account of frames."""

from observability.panels import Panel, Query, Row, share

ROW = Row(
    title="Queue",
    panels=(
        share(
            "Queue filled",
            "By shard. Always full: the learner is the bottleneck. Always empty: the actors are. One shard apart from the others: "
            "its connections are.",
            Query("herd_learner_queue_unrolls{SCOPE} / herd_learner_queue_capacity_unrolls{SCOPE}", "{{pod}}"),
            steps=((0.9, "orange"),),
        ),
        Panel(
            title="Unrolls in and out",
            description="By shard, per second. In above out for long cannot be: credit bounds it. Both at 0: nothing arrives.",
            queries=(
                Query("sum by (pod) (rate(herd_learner_unrolls_received_total{SCOPE}[$__rate_interval]))", "{{pod}} in"),
                Query("sum by (pod) (rate(herd_learner_unrolls_consumed_total{SCOPE}[$__rate_interval]))", "{{pod}} out"),
            ),
        ),
        Panel(
            title="Credit given and not used",
            description="By shard: unrolls that actors may send and have not sent. With an empty queue: actors are slow, or their "
            "network is.",
            queries=(Query("herd_learner_credit_outstanding_unrolls{SCOPE}", "{{pod}}"),),
        ),
        Panel(
            title="Actors connected",
            description="By shard: heard from within the credit's expiry. Each actor holds connections to a few shards.",
            queries=(Query("herd_learner_connected_actors{SCOPE}", "{{pod}}"),),
            decimals=0,
        ),
        Panel(
            title="Frames dropped",
            description="Env frames per second that nobody will train on. `stale`: older than learner.max_policy_lag; "
            "`learner_restart`: lost with a learner that died; `malformed`: see the row Wire.",
            queries=(Query("herd:env_frames_dropped:rate5m{SCOPE}", "{{reason}}"),),
        ),
        Panel(
            title="Frames in flight",
            description="By shard: reported by actors, neither trained on nor dropped yet. Bounded by queue and credit.",
            queries=(Query("herd_learner_env_frames_in_flight{SCOPE}", "{{pod}}"),),
        ),
        Panel(
            title="Frames played and their fate",
            description="Env frames per second that actors reported, and what became of them: both lines lie on each other but for drops.",
            queries=(
                Query("sum(rate(herd_learner_env_frames_generated_total{SCOPE}[$__rate_interval]))", "reported"),
                Query("sum(rate(herd_learner_env_frames_total{SCOPE}[$__rate_interval]))", "trained on"),
                Query("sum by (reason) (rate(herd_learner_unrolls_dropped_total{SCOPE}[$__rate_interval]))", "unrolls dropped: {{reason}}"),
            ),
        ),
        Panel(
            title="Replay",
            description="Unrolls held by each shard itself (replay.kind uniform), and trained on again per second.",
            queries=(
                Query("herd_learner_replay_unrolls{SCOPE}", "{{pod}} held"),
                Query("sum(rate(herd_learner_unrolls_replayed_total{SCOPE}[$__rate_interval]))", "trained on again, per second"),
            ),
        ),
    ),
)
