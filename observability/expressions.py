"""Abbreviations for writing expressions.

``SCOPE`` says which runs an expression is about. A rule watches every run that its Prometheus scrapes, a panel the run that was
chosen above it. ``RUN`` are the labels that name a run, as in ``sum by (RUN)``; ``ANY_COMPONENT`` keeps ``up`` to our processes.
``NOT_OVER`` goes behind a condition that a finished run, which the chart keeps up until it is uninstalled, would meet as well.
"""

from __future__ import annotations

import re
import textwrap

from herd.topology import COMPONENT_NAMES

ALL_RUNS = 'release!=""'
"""Selects every run. The chart replaces it by its own namespace and release, so that two releases do not record the same series."""
CHOSEN_RUN = 'namespace="$namespace", release="$release"'
"""The run that the dashboard's variables name."""
ANY_COMPONENT = f'component=~"{"|".join(COMPONENT_NAMES)}"'
NOT_OVER = "unless on (RUN) herd:run_is_over:max{SCOPE} == 1"
"""Binds tighter than ``or``: put the expression before it into parentheses."""


def in_rules(expression: str) -> str:
    """Expand ``expression`` for a rule file."""
    return _filled(expression, ALL_RUNS)


def in_panels(expression: str) -> str:
    """Expand ``expression`` for the dashboard."""
    return _filled(expression, CHOSEN_RUN)


def _filled(expression: str, scope: str) -> str:
    words = {"SCOPE": scope, "RUN": "namespace, release", "ANY_COMPONENT": ANY_COMPONENT}
    expression = textwrap.dedent(expression).strip().replace("NOT_OVER", NOT_OVER)
    return re.sub(rf"\b({'|'.join(words)})\b", lambda found: words[found[0]], expression)
