"""Panels of the dashboard, independent of Grafana's format (``grafana.py``)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Unit = Literal["short", "percentunit", "s", "bytes", "Bps", "none", "dtdurations"]
"""Grafana's names. short: a number, with k and M; percentunit: 0..1 shown as 0..100 %; Bps: bytes per second."""
Kind = Literal["lines", "figure", "bars"]
"""Over time; the newest value, big; the newest values side by side."""
Colour = Literal["green", "yellow", "orange", "red", "blue"]
Step = tuple[float, Colour]
"""Colours from given values on."""

SELECTORS = {"SCOPE": 'namespace="$namespace", release="$release"', "AGENTS": 'agent=~"$agent"', "TASKS": 'task=~"$task"'}
"""Abbreviations in expressions: the run, the agents and the tasks that the dashboard's variables select."""


@dataclass(frozen=True, slots=True)
class Query:
    """A query with one line for each returned series."""

    expression: str
    """PromQL with the words of ``SELECTORS``."""
    legend: str
    """``{{pod}}`` stands for the value of that label."""

    @property
    def promql(self) -> str:
        """The expression as Grafana sends it."""
        return re.sub(rf"\b({'|'.join(SELECTORS)})\b", lambda found: SELECTORS[found[0]], self.expression)


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One panel; widths and heights in Grafana's grid of 24 columns."""

    title: str
    description: str
    """What is shown, what is normal, and what deviations mean."""
    queries: tuple[Query, ...]
    kind: Kind = "lines"
    unit: Unit = "short"
    decimals: int | None = None
    low: float | None = 0.0
    """Lower limit of the y axis; None: chosen by the data."""
    high: float | None = None
    base: Colour = "green"
    steps: tuple[Step, ...] = ()
    """Colours of a figure or a bar by value; dashed lines over time."""
    no_value: str = ""
    """What it says if nothing answers its queries. Empty: that of its row."""
    stacked: bool = False
    width: int = 6
    height: int = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A line of panels about one stage."""

    title: str
    panels: tuple[Panel, ...]
    without: str = ""
    """What empty panels say, for a part that not every run has. Such rows are closed until they are clicked."""


def share(
    title: str,
    description: str,
    *queries: Query,
    steps: tuple[Step, ...] = (),
    stacked: bool = False,
    no_value: str = "",
    width: int = 6,
) -> Panel:
    """Shares of time or of a whole, from 0 to 100 %."""
    return Panel(
        title=title,
        description=description,
        queries=queries,
        unit="percentunit",
        high=1.0,
        steps=steps,
        stacked=stacked,
        no_value=no_value,
        width=width,
    )


def quantiles(metric: str, selector: str = "SCOPE") -> tuple[Query, ...]:
    """The 90th percentile and the median of a histogram over five minutes."""
    return tuple(
        Query(f"histogram_quantile({quantile}, sum by (le) (rate({metric}_bucket{{{selector}}}[5m])))", legend)
        for quantile, legend in ((0.9, "90 %"), (0.5, "median"))
    )
