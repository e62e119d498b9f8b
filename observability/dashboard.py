"""The dashboard: variables to choose a run, then the rows."""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard as models

from observability.grafana import DATASOURCE, panel_builder
from observability.panels import Query
from observability.rows import ROWS

UID = "herd"
"""Fixed, so that links to the dashboard outlive an upgrade."""
EVERYTHING = ".*"
NO_VALUE = "no data"
"""What an empty panel says about a part that every run has: nothing is scraped."""


def dashboard_json() -> str:
    """Return what Grafana imports."""
    dashboard = (
        builders.Dashboard("Herd")
        .uid(UID)
        .description("Speed and bottleneck of one run. docs/observability.md explains the rows.")
        .tags(["herd", "reinforcement-learning"])
        .timezone("browser")
        .time("now-3h", "now")
        .refresh("30s")
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .readonly()
        .annotation(_alerts())
    )
    for variable in _variables():
        dashboard.with_variable(variable)
    for row in ROWS:
        header = builders.Row(row.title)
        panels = [panel_builder(panel, row.without or NO_VALUE) for panel in row.panels]
        if row.without:
            # Grafana keeps the panels of a folded row inside the row.
            for panel in panels:
                header.with_panel(panel)
        dashboard.with_row(header)
        if not row.without:
            for panel in panels:
                dashboard.with_panel(panel)
    return JSONEncoder(indent=1, sort_keys=True).encode(_numbered(dashboard.build())) + "\n"


def _numbered(dashboard: models.Dashboard) -> models.Dashboard:
    """Give every panel the id that links and alerts use, in order, so that differences of the file are readable."""
    panels = [one for panel in dashboard.panels or [] for one in (panel, *(getattr(panel, "panels", None) or []))]
    for number, panel in enumerate(panels, 1):
        panel.id_val = number
    return dashboard


def _variables() -> list[builders.DatasourceVariable | builders.QueryVariable | builders.TextBoxVariable]:
    return [
        builders.DatasourceVariable("datasource").label("Prometheus").type("prometheus"),
        _query("namespace", "label_values(herd_process_info, namespace)"),
        _query("release", 'label_values(herd_process_info{namespace="$namespace"}, release)'),
        _choice("agent", "herd_learner_env_frames_total"),
        _choice("task", "herd_learner_task_env_frames_total"),
        builders.TextBoxVariable("target")
        .label("target")
        .description("Env frames per second that the run should reach; 0 draws no line.")
        .default_value("0"),
    ]


def _choice(label: str, metric: str) -> builders.QueryVariable:
    """A variable with the values of ``label``; several can be chosen, and all are at first."""
    return (
        _query(label, f"label_values({Query(metric + '{SCOPE}', '').promql}, {label})")
        .multi(True)
        .include_all(True)
        .all_value(EVERYTHING)
        .current(models.VariableOption(selected=True, text="All", value="$__all"))
    )


def _query(name: str, query: str) -> builders.QueryVariable:
    return (
        builders.QueryVariable(name)
        .label(name)
        .query({"query": query, "refId": name})
        .datasource(DATASOURCE)
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(models.VariableSort.ALPHABETICAL_ASC)
    )


def _alerts() -> builders.AnnotationQuery:
    return (
        builders.AnnotationQuery()
        .name("Alerts")
        .datasource(DATASOURCE)
        .enable(True)
        .icon_color("red")
        .expr(Query('ALERTS{SCOPE, alertstate="firing"}', "").promql)
    )
