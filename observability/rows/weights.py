"""From the learner through the parameter servers to actors: whether everybody has the newest version, and how old data is."""

from observability.panels import Panel, Query, Row

ROW = Row(
    title="Weights",
    panels=(
        Panel(
            title="Updates behind the learner",
            description="Of the oldest weights of each component. Read it from the root to the actors: the first that stays behind "
            "is cut off from the one before it. Behind what the learner published: where it publishes nothing all stay at 0, and the "
            "panel Age of weights shows it.",
            queries=(Query("herd:weights_behind_updates:max{SCOPE}", "{{component}}"),),
        ),
        Panel(
            title="Age of weights",
            description="Since the weights held arrived; learner: since they were published. Actors: the length of an unroll and some. "
            "All rise together: a shard's slice is not confirmed, and nobody publishes.",
            queries=(
                Query("herd:weights_age_seconds:max{SCOPE}", "{{component}} oldest"),
                Query("herd:weights_age_seconds:p50{SCOPE}", "{{component}} middle"),
            ),
            unit="s",
            steps=((300.0, "red"),),
        ),
        Panel(
            title="Policy lag",
            description="Learner updates between the policy that began an unroll and the one that trained on it.",
            queries=(
                Query("herd:policy_lag_updates:p95_5m{SCOPE}", "95 %"),
                Query("herd:policy_lag_updates:p50_5m{SCOPE}", "middle"),
                Query("herd:policy_lag_updates:mean_5m{SCOPE}", "mean"),
            ),
            steps=((32.0, "red"),),
        ),
        Panel(
            title="Lineage",
            description="A restored checkpoint opens a new one, which everybody follows. Components apart for long: cut off.",
            queries=(Query("herd:weights_lineage:min{SCOPE}", "{{component}}"),),
            low=None,
            decimals=0,
        ),
        Panel(
            title="Versions per second",
            description="Complete versions taken, by parameter server. The root takes what the learner publishes; a replica the "
            "newest at each question.",
            queries=(Query("sum by (pod) (rate(herd_paramserver_versions_total{SCOPE}[$__rate_interval]))", "{{pod}}"),),
        ),
        Panel(
            title="Answers per second",
            description="To actors and replicas. Mostly `not_modified`: they ask more often than there are versions.",
            queries=(
                Query(
                    "sum by (component, answer) (rate(herd_paramserver_answers_total{SCOPE}[$__rate_interval]))",
                    "{{component}}: {{answer}}",
                ),
            ),
        ),
        Panel(
            title="Requests per second",
            description="By kind; the learner publishes slices, actors ask for weights and lease an index.",
            queries=(
                Query(
                    "sum by (component, kind) (rate(herd_paramserver_requests_total{SCOPE}[$__rate_interval]))", "{{component}}: {{kind}}"
                ),
                Query("sum(rate(herd_paramserver_stale_publishes_total{SCOPE}[$__rate_interval]))", "refused as stale"),
            ),
        ),
        Panel(
            title="Version held",
            description="Bytes of the version that each server holds; the network carries it once per actor and version.",
            queries=(Query("max by (pod) (herd_paramserver_weights_bytes{SCOPE})", "{{pod}}"),),
            unit="bytes",
        ),
        Panel(
            title="Replicas: silence of the parent",
            description="Part of a second while the parent lives.",
            queries=(Query("max by (pod) (herd_paramserver_upstream_silence_seconds{SCOPE})", "{{pod}}"),),
            unit="s",
            steps=((30.0, "red"),),
            width=8,
        ),
        Panel(
            title="Replicas: answers of the parent",
            description="Per second, by kind; and index requests passed on and not answered yet.",
            queries=(
                Query("sum by (answer) (rate(herd_paramserver_upstream_answers_total{SCOPE}[$__rate_interval]))", "{{answer}}"),
                Query("sum(herd_paramserver_relayed_requests{SCOPE})", "index requests waiting"),
            ),
            width=8,
        ),
        Panel(
            title="Indices leased",
            description="Actor indices held by living actors: as many as there are actors.",
            queries=(Query("max(herd_paramserver_leased_indices{SCOPE})", "leased"),),
            decimals=0,
            width=8,
        ),
        Panel(
            title="Actors by agent",
            description="As many for each, give or take one; none for an agent whose run is over. And actors moved per minute.",
            queries=(
                Query("max by (agent) (herd_paramserver_agent_leased_indices{SCOPE})", "agent {{agent}}"),
                Query("60 * sum(rate(herd_paramserver_moves_total{SCOPE}[$__rate_interval]))", "moved per minute"),
            ),
            width=8,
        ),
        Panel(
            title="Updates by agent",
            description="Of the weights that parameter servers serve: the one furthest behind. One that stands still: its learner has.",
            queries=(Query("min by (agent) (herd_paramserver_agent_updates{SCOPE})", "agent {{agent}}"),),
            decimals=0,
            width=8,
        ),
        Panel(
            title="Lineage by agent",
            description="Opened anew by a learner that restored a checkpoint.",
            queries=(Query("min by (agent) (herd_paramserver_agent_lineage{SCOPE})", "agent {{agent}}"),),
            low=None,
            decimals=0,
            width=8,
        ),
    ),
)
