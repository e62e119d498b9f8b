"""Central inference: sizes of batches and waits of actors. Empty if actors choose actions themselves."""

from observability.panels import Panel, Query, Row, share

ROW = Row(
    title="Inference",
    panels=(
        Panel(
            title="Round trip of an action",
            description="Time from an actor's request to the answer. It costs nothing if it is shorter than a step of half of the actor's "
            "environments.",
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
            description="Time from the arrival of a request to the start of its batch: inference.deadline_milliseconds plus the batches "
            "before it.",
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
            description="At most inference.batch_size. If batches on a GPU are small, there are too few actors or the deadline is too "
            "short.",
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
            description="Agent steps per second for which each process chose actions.",
            queries=(Query("rate(herd_inference_agent_steps_total{SCOPE}[$__rate_interval])", "{{pod}}"),),
        ),
        share(
            "Busy",
            "Share of time that each process computes. Near 100 % it is the bottleneck: use more replicas or a GPU.",
            Query("rate(herd_inference_compute_seconds_total{SCOPE}[$__rate_interval])", "{{pod}}"),
        ),
        Panel(
            title="Requests",
            description="Requests per second, by outcome. `repeated`: sent again without an answer; `state_wanted`: for environments "
            "whose state the service did not have.",
            queries=(Query("sum by (outcome) (rate(herd_inference_requests_total{SCOPE}[$__rate_interval]))", "{{outcome}}"),),
        ),
        Panel(
            title="Under way",
            description="Rows without an answer at actors, and requests that wait for a batch.",
            queries=(
                Query("sum(herd_actor_inference_requests_pending{SCOPE})", "at actors"),
                Query("sum(herd_inference_pending_requests{SCOPE})", "at the service"),
            ),
        ),
        Panel(
            title="Environments known",
            description="Environments whose states are stored, and inference.max_environments. Beyond this limit, the environments that "
            "were silent longest are dropped.",
            queries=(
                Query("sum(herd_inference_environments{SCOPE})", "known"),
                Query("sum(herd_inference_capacity_environments{SCOPE})", "most"),
                Query("sum(increase(herd_inference_evicted_environments_total{SCOPE}[1h]))", "made room, last hour"),
            ),
        ),
        Panel(
            title="Acted on by actors themselves",
            description="Rows per second for which actors chose actions themselves while the service did not answer "
            "(actor.inference_fallback local).",
            queries=(Query("sum(rate(herd_actor_inference_substituted_rows_total{SCOPE}[$__rate_interval]))", "rows"),),
        ),
    ),
)
