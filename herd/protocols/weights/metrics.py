"""Metrics of the parameter server."""

from __future__ import annotations

from herd.telemetry.metrics import Exporters

_paramserver = Exporters("paramserver")


ANSWERS = ("weights", "not_modified")
"""Answers of the parameter server to requests for weights."""
PARAMSERVER_ANSWERS = _paramserver.counter(
    "herd_paramserver_answers_total",
    "messages",
    "Answers to requests for weights, by kind.",
    labels=("answer",),
    values=ANSWERS,
    counts_work=True,
)

REQUEST_KINDS = ("get_weights", "publish_slice", "publish_heartbeat", "agent_ended", "lease_index", "release_index")
"""Requests to the parameter server."""
PARAMSERVER_REQUESTS = _paramserver.counter(
    "herd_paramserver_requests_total",
    "messages",
    "Requests received, by kind, without malformed ones.",
    labels=("kind",),
    values=REQUEST_KINDS,
)
PARAMSERVER_STALE_PUBLISHES = _paramserver.counter(
    "herd_paramserver_stale_publishes_total", "messages", "Publications refused because the server holds or is receiving a newer version."
)
PARAMSERVER_AGENT_LEASES = _paramserver.gauge(
    "herd_paramserver_agent_leased_indices",
    "indices",
    "Actor indices that live actors hold, by agent. They differ by at most one, except for agents that have ended (root).",
    labels=("agent",),
)
PARAMSERVER_MOVES = _paramserver.counter(
    "herd_paramserver_moves_total", "moves", "Actors that were moved to another agent or another index (root)."
)
PARAMSERVER_AGENT_LINEAGE = _paramserver.gauge(
    "herd_paramserver_agent_lineage", "lineage", "Lineage of the weights served, by agent.", labels=("agent",)
)
PARAMSERVER_AGENT_UPDATES = _paramserver.gauge(
    "herd_paramserver_agent_updates", "updates", "Learner updates of the weights served, by agent.", labels=("agent",)
)
PARAMSERVER_UPSTREAM_SILENCE = _paramserver.gauge(
    "herd_paramserver_upstream_silence_seconds",
    "seconds",
    "Seconds since the parent last answered, or since the start if it never did (replica). Below one second while the parent is alive.",
)
