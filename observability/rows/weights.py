"""The path of weights from the learner through parameter servers to actors: their versions, and the age of data."""

from observability.panels import Panel, Query, Row

ROW = Row(
    title="Weights",
    panels=(
        Panel(
            title="Updates behind the learner",
            description="Lag of the oldest weights of each component behind the published version. Read it from the root to the actors: "
            "the first component that lags is cut off from the previous one. If the learner publishes nothing, all stay at 0; "
            "the panel Age of weights shows this case.",
            queries=(Query("herd:weights_behind_updates:max{SCOPE}", "{{component}}"),),
        ),
        Panel(
            title="Age of weights",
            description="Time since the current weights arrived (learner: since they were published). Normal for actors: a little more "
            "than the duration of an unroll. If all increase together, a shard's slice is not confirmed and publication has "
            "stopped.",
            queries=(
                Query("herd:weights_age_seconds:max{SCOPE}", "{{component}} oldest"),
                Query("herd:weights_age_seconds:p50{SCOPE}", "{{component}} middle"),
            ),
            unit="s",
            steps=((300.0, "red"),),
        ),
        Panel(
            title="Policy lag",
            description="Learner updates between the policy that began an unroll and the update that trained on it.",
            queries=(
                Query("herd:policy_lag_updates:p95_5m{SCOPE}", "95 %"),
                Query("herd:policy_lag_updates:p50_5m{SCOPE}", "middle"),
                Query("herd:policy_lag_updates:mean_5m{SCOPE}", "mean"),
            ),
            steps=((32.0, "red"),),
        ),
        Panel(
            title="Lineage",
            description="A restored checkpoint opens a new lineage, which all components follow. A component that stays on another "
            "lineage is cut off.",
            queries=(Query("herd:weights_lineage:min{SCOPE}", "{{component}}"),),
            low=None,
            decimals=0,
        ),
        Panel(
            title="Versions per second",
            description="Complete versions accepted by each parameter server. The root accepts all published versions, a replica the "
            "newest one at each request.",
            queries=(Query("sum by (pod) (rate(herd_paramserver_versions_total{SCOPE}[$__rate_interval]))", "{{pod}}"),),
        ),
        Panel(
            title="Answers per second",
            description="Answers to actors and replicas. Most are `not_modified`, because clients ask more often than versions are "
            "published.",
            queries=(
                Query(
                    "sum by (component, answer) (rate(herd_paramserver_answers_total{SCOPE}[$__rate_interval]))",
                    "{{component}}: {{answer}}",
                ),
            ),
        ),
        Panel(
            title="Requests per second",
            description="Requests by kind. The learner publishes slices; actors request weights and lease an index.",
            queries=(
                Query(
                    "sum by (component, kind) (rate(herd_paramserver_requests_total{SCOPE}[$__rate_interval]))", "{{component}}: {{kind}}"
                ),
                Query("sum(rate(herd_paramserver_stale_publishes_total{SCOPE}[$__rate_interval]))", "refused as stale"),
            ),
        ),
        Panel(
            title="Version held",
            description="Size of the stored weights of each server. They are sent once per actor and version.",
            queries=(Query("max by (pod) (herd_paramserver_weights_bytes{SCOPE})", "{{pod}}"),),
            unit="bytes",
        ),
        Panel(
            title="Replicas: silence of the parent",
            description="Seconds since the last answer of the parent. Normal: less than one.",
            queries=(Query("max by (pod) (herd_paramserver_upstream_silence_seconds{SCOPE})", "{{pod}}"),),
            unit="s",
            steps=((30.0, "red"),),
            width=8,
        ),
        Panel(
            title="Replicas: answers of the parent",
            description="Answers per second, by kind, and forwarded index requests without an answer.",
            queries=(
                Query("sum by (answer) (rate(herd_paramserver_upstream_answers_total{SCOPE}[$__rate_interval]))", "{{answer}}"),
                Query("sum(herd_paramserver_relayed_requests{SCOPE})", "index requests waiting"),
            ),
            width=8,
        ),
        Panel(
            title="Actors by agent",
            description="Leased actor indices by agent, and moved actors per minute. The numbers differ by at most one, except for agents "
            "whose run is over, which have none.",
            queries=(
                Query("max by (agent) (herd_paramserver_agent_leased_indices{SCOPE})", "agent {{agent}}"),
                Query("60 * sum(rate(herd_paramserver_moves_total{SCOPE}[$__rate_interval]))", "moved per minute"),
            ),
            width=8,
        ),
        Panel(
            title="Updates by agent",
            description="Learner updates of the weights that parameter servers serve, by agent (the lowest of all servers). If a line is "
            "constant, the agent's learner has stopped.",
            queries=(Query("min by (agent) (herd_paramserver_agent_updates{SCOPE})", "agent {{agent}}"),),
            decimals=0,
            width=8,
        ),
        Panel(
            title="Lineage by agent",
            description="A learner that restores a checkpoint opens a new lineage.",
            queries=(Query("min by (agent) (herd_paramserver_agent_lineage{SCOPE})", "agent {{agent}}"),),
            low=None,
            decimals=0,
            width=8,
        ),
    ),
)
