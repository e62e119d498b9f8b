"""Central inference: how large batches are, and how long actors wait. Empty where actors choose actions themselves."""

from observability.panels import Panel, Query, Row, share

ROW = Row(
    title="Inference",
    panels=(
        Panel(
            title="Round trip of an action",
            description="From an actor's question to its answer. Shorter than a step of half of its environments, it costs nothing.",
            queries=(
                Query("histogram_quantile(0.99, sum by (le) (rate(herd_actor_inference_round_trip_seconds_bucket{SCOPE}[5m])))", "99 %"),
                Query("histogram_quantile(0.5, sum by (le) (rate(herd_actor_inference_round_trip_seconds_bucket{SCOPE}[5m])))", "middle"),
                Query(
                    "sum(rate(herd_actor_inference_round_trip_seconds_sum{SCOPE}[5m]))"
                    " / sum(rate(herd_actor_inference_round_trip_seconds_count{SCOPE}[5m]))",
                    "mean",
                ),
            ),
            unit="s",
            decimals=4,
        ),
        Panel(
            title="Wait for a batch",
            description="From a request's arrival until its batch began: inference.deadline_milliseconds, and the batches before it.",
            queries=(
                Query("histogram_quantile(0.99, sum by (le) (rate(herd_inference_wait_seconds_bucket{SCOPE}[5m])))", "99 %"),
                Query("histogram_quantile(0.5, sum by (le) (rate(herd_inference_wait_seconds_bucket{SCOPE}[5m])))", "middle"),
                Query(
                    "sum(rate(herd_inference_wait_seconds_sum{SCOPE}[5m])) / sum(rate(herd_inference_wait_seconds_count{SCOPE}[5m]))",
                    "mean",
                ),
            ),
            unit="s",
            decimals=4,
        ),
        Panel(
            title="Environments in a batch",
            description="Up to inference.batch_size. Small batches on a GPU: too few actors, or too short a deadline.",
            queries=(
                Query("histogram_quantile(0.9, sum by (le) (rate(herd_inference_batch_environments_bucket{SCOPE}[5m])))", "90 %"),
                Query(
                    "sum(rate(herd_inference_batch_environments_sum{SCOPE}[5m]))"
                    " / sum(rate(herd_inference_batch_environments_count{SCOPE}[5m]))",
                    "mean",
                ),
            ),
        ),
        Panel(
            title="Actions",
            description="Agent steps acted for, per second and process.",
            queries=(Query("rate(herd_inference_agent_steps_total{SCOPE}[$__rate_interval])", "{{pod}}"),),
        ),
        share(
            "Busy",
            "By process: share of its time that it computes. Near 100 % it is the bottleneck: more replicas, or a GPU.",
            Query("rate(herd_inference_compute_seconds_total{SCOPE}[$__rate_interval])", "{{pod}}"),
        ),
        Panel(
            title="Requests",
            description="Per second, by what became of them. `repeated`: sent again after silence; `state_wanted`: of environments that "
            "were not known.",
            queries=(Query("sum by (outcome) (rate(herd_inference_requests_total{SCOPE}[$__rate_interval]))", "{{outcome}}"),),
        ),
        Panel(
            title="Under way",
            description="Rows that actors wait for, and requests that wait for a batch.",
            queries=(
                Query("sum(herd_actor_inference_requests_pending{SCOPE})", "at actors"),
                Query("sum(herd_inference_pending_requests{SCOPE})", "at the service"),
            ),
        ),
        Panel(
            title="Environments known",
            description="Whose stacks and recurrent states are kept, of inference.max_environments; beyond it the longest silent go.",
            queries=(
                Query("sum(herd_inference_environments{SCOPE})", "known"),
                Query("sum(herd_inference_capacity_environments{SCOPE})", "most"),
                Query("sum(increase(herd_inference_evicted_environments_total{SCOPE}[1h]))", "made room, last hour"),
            ),
        ),
        Panel(
            title="Acted on by actors themselves",
            description="Rows per second of halves of environments, while the service was away (actor.inference_fallback local).",
            queries=(Query("sum(rate(herd_actor_inference_substituted_rows_total{SCOPE}[$__rate_interval]))", "rows"),),
        ),
    ),
)
