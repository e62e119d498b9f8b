"""Metrics of the population."""

from __future__ import annotations

from herd.telemetry.metrics import Exporters

_population = Exporters("population")


REPORT_ANSWERS = ("noted", "ordered")
"""Answers to a member's report: nothing to do, an order."""
POPULATION_REPORTS = _population.counter(
    "herd_population_reports_total",
    "messages",
    "Reports from members, by the answer.",
    labels=("outcome",),
    values=REPORT_ANSWERS,
    counts_work=True,
)

DECISIONS = ("copied", "perturbed", "unchanged")
"""Decisions about a member with enough games: a copy of another member, only other settings, nothing."""
POPULATION_DECISIONS = _population.counter(
    "herd_population_decisions_total",
    "decisions",
    "Decisions about members that had played enough games, by outcome.",
    labels=("outcome",),
    values=DECISIONS,
)
POPULATION_FAILED_ORDERS = _population.counter(
    "herd_population_failed_orders_total", "orders", "Orders that a member could not carry out. Nothing of such an order takes effect."
)
POPULATION_FILE_FAILURES = _population.counter(
    "herd_population_file_failures_total", "failures", "Events that could not be written to the journal and therefore did not take effect."
)
POPULATION_FITNESS = _population.gauge(
    "herd_population_fitness", "population.fitness", "Fitness of a member, as last reported.", labels=("agent",)
)
POPULATION_SETTING = _population.gauge(
    "herd_population_setting", "1", "Value of a numeric setting of a member.", labels=("agent", "setting")
)
