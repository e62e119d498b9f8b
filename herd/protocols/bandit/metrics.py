"""Metrics of the bandit.

One series per agent, task and tile, and 17 more per agent and task: 57 games x (39 + 17) = 3,192 series, about 0.25 MB and 20 ms of
processor time a scrape of that one process.
"""

from __future__ import annotations

from herd.telemetry.metrics import Exporters

_bandit = Exporters("bandit")


REQUEST_OUTCOMES = ("new", "repeated", "late", "evaluation")
"""Outcomes of requests to the bandit: answered, answered again, older than an answered one, best temperatures."""
BANDIT_REQUESTS = _bandit.counter(
    "herd_bandit_requests_total",
    "messages",
    "Requests for temperatures, by outcome, without malformed ones.",
    labels=("outcome",),
    values=REQUEST_OUTCOMES,
    counts_work=True,
)

REPORT_OUTCOMES = ("accepted", "duplicate", "late", "unknown", "non_finite", "out_of_range")
"""Outcomes of reported games at the bandit."""
BANDIT_REPORTS = _bandit.counter(
    "herd_bandit_reports_total",
    "episodes",
    "Finished games that actors reported, by outcome. Only accepted reports change the bandits.",
    labels=("outcome",),
    values=REPORT_OUTCOMES,
)
BANDIT_REUSED = _bandit.counter(
    "herd_bandit_reused_temperatures_total",
    "episodes",
    "Accepted games that an actor played under its previous temperature because no answer came in time.",
)
BANDIT_TEMPERATURE = _bandit.histogram(
    "herd_bandit_inverse_temperature",
    "1",
    "Inverse temperatures (1/tau) drawn for training since this process started.",
    labels=("agent", "task"),
    buckets=(0, 0.25, 0.5, 1, 1.5, 2, 3, 5, 8, 12, 18, 25, 35, 50),  # about two tiles each, in the middle of the row
)
BANDIT_TILE_VALUE = _bandit.gauge(
    "herd_bandit_tile_value",
    "return",
    "Value of a tile, averaged over the bandits. Tile i starts at log(1 + 1/tau) = lower bound + i x tile_accuracy.",
    labels=("agent", "task", "tile"),
)
BANDIT_RESTORED = _bandit.gauge(
    "herd_bandit_restored_episodes", "episodes", "Games counted in the state that this process restored; 0 if it started fresh."
)
BANDIT_SNAPSHOTS = _bandit.counter("herd_bandit_snapshots_written_total", "snapshots", "States written completely to disk.")
BANDIT_FILE_FAILURES = _bandit.counter(
    "herd_bandit_file_failures_total",
    "failures",
    "Failed writes of the state or the history. The service continues.",
    labels=("file",),
    values=("state.json", "history.jsonl"),
)
BANDIT_SNAPSHOT_AGE = _bandit.gauge(
    "herd_bandit_snapshot_age_seconds",
    "seconds",
    "Seconds since the state was last written or restored: what a kill now would lose. NaN before either.",
)
