"""Whether the inference service acts for the actors. Runs without one have none of these series, and none of these alerts."""

from observability.rules import Alert

ALERTS = (
    Alert(
        name="HerdInferenceSilent",
        # Actors wait for it or act themselves, or a scraped process does not export these series.
        expression="""
            (
              sum by (RUN) (rate(herd_inference_agent_steps_total{SCOPE}[10m])) == 0
              and on (RUN) sum by (RUN) (herd_actor_inference_requests_pending{SCOPE}) > 0
            )
            or
            (
              group by (RUN) (up{SCOPE, component="inference"})
              unless on (RUN) sum by (RUN) (rate(herd_inference_agent_steps_total{SCOPE}[10m]))
            )
            """,
        lasting="5m",  # with the window: a quarter of an hour
        severity="critical",
        summary="The inference service of {{ $labels.release }} answers no actor.",
        description="Actors wait, or choose actions themselves if actor.inference_fallback is local. The service has no weights, is "
        "down, or cannot be reached.",
    ),
    Alert(
        name="HerdInferenceForgets",
        expression="""
            sum by (RUN) (rate(herd_inference_evicted_environments_total{SCOPE}[10m])) > 1
            """,
        lasting="15m",
        severity="warning",
        summary="The inference service of {{ $labels.release }} has no room for the states of all environments.",
        description="Actors send whole stacks repeatedly. Increase inference.max_environments above the number of environments of all "
        "actors of a process.",
    ),
)
