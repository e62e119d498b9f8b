"""The dashboard: variables to choose a run, then the rows."""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard as models

from observability.expressions import in_panels
from observability.grafana import DATASOURCE, panel_builder
from observability.rows import ROWS

UID = "herd"
"""Fixed, so that links to the dashboard outlive an upgrade."""
EVERY_TASK = ".*"


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
        dashboard.with_row(builders.Row(row.title))
        for panel in row.panels:
            dashboard.with_panel(panel_builder(panel))
    return JSONEncoder(indent=1, sort_keys=True).encode(_numbered(dashboard.build())) + "\n"


def _numbered(dashboard: models.Dashboard) -> models.Dashboard:
    """Give every panel the id that links and alerts use, in order, so that differences of the file are readable."""
    for number, panel in enumerate(dashboard.panels or [], 1):
        panel.id_val = number
    return dashboard


def _variables() -> list[builders.DatasourceVariable | builders.QueryVariable | builders.TextBoxVariable]:
    return [
        builders.DatasourceVariable("datasource").label("Prometheus").type("prometheus"),
        _query("namespace", "label_values(herd_process_info, namespace)"),
        _query("release", 'label_values(herd_process_info{namespace="$namespace"}, release)'),
        _query("task", in_panels("label_values(herd_learner_task_env_frames_total{SCOPE}, task)"))
        .multi(True)
        .include_all(True)
        .all_value(EVERY_TASK)
        .current(models.VariableOption(selected=True, text="All", value="$__all")),
        builders.TextBoxVariable("target")
        .label("target")
        .description("Env frames per second that the run should reach; 0 draws no line.")
        .default_value("0"),
    ]


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
        .expr(in_panels('ALERTS{SCOPE, alertstate="firing"}'))
    )
