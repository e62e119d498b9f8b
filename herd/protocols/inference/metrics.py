"""Metrics of the inference service, and of the actor as its client."""

from __future__ import annotations

from herd.telemetry.metrics import Exporters

_actor = Exporters("actor")
_inference = Exporters("inference")

ACTOR_ROUND_TRIP = _actor.histogram(
    "herd_actor_inference_round_trip_seconds",
    "seconds",
    "Time from the request for a row to the answer of the inference service. Part of it overlaps with steps of other environments.",
    buckets=(0.003, 0.009, 0.03, 0.1),
)
ACTOR_REQUESTS_PENDING = _actor.gauge(
    "herd_actor_inference_requests_pending", "rows", "Rows sent to the inference service and not answered yet."
)

ACTING_OUTCOMES = ("new", "repeated", "late", "state_wanted")
"""What the inference service made of a request: acted on, answered as before or still being acted on, older than one answered since;
without the state of environments that it does not know."""
INFERENCE_REQUESTS = _inference.counter(
    "herd_inference_requests_total", "messages", "Requests from actors, by outcome.", labels=("outcome",), values=ACTING_OUTCOMES
)
INFERENCE_STEPS = _inference.counter(
    "herd_inference_agent_steps_total", "agent_steps", "Agent steps for which the service chose actions.", counts_work=True
)
INFERENCE_BATCH = _inference.histogram(
    "herd_inference_batch_environments",
    "environments",
    "Number of environments in a batch.",
    buckets=(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024),
)
INFERENCE_WAIT = _inference.histogram(
    "herd_inference_wait_seconds",
    "seconds",
    "Time from the arrival of a request to the start of its batch: inference.deadline_milliseconds, and the batches before it.",
    buckets=(0.0002, 0.0005, 0.001, 0.002, 0.003, 0.005, 0.009, 0.02, 0.05, 0.2),
)
INFERENCE_COMPUTE = _inference.counter(
    "herd_inference_compute_seconds_total", "seconds", "Time spent on batches, from their first copy to their answers."
)
INFERENCE_PENDING = _inference.gauge(
    "herd_inference_pending_requests", "messages", "Requests accepted and not answered yet. Each client has at most one."
)
INFERENCE_EVICTED = _inference.counter(
    "herd_inference_evicted_environments_total",
    "environments",
    "Environments whose state was dropped for others, those silent longest first. Their actors send it again.",
)
