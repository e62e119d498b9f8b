"""Converts panels to Grafana's format. Only this module uses Grafana's builders."""

from __future__ import annotations

from typing import TYPE_CHECKING

from grafana_foundation_sdk.builders import bargauge, common, prometheus, stat, timeseries
from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.models import common as options
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models.prometheus import QueryEditorMode

if TYPE_CHECKING:
    from observability.panels import Panel, Query

DATASOURCE = models.DataSourceRef(type_val="prometheus", uid="${datasource}")
"""Whichever Prometheus is chosen above the dashboard."""
REF_IDS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
MANY_LINES = 4
"""Number of series from which on a legend is a table, with the largest values first."""

PanelBuilder = stat.Panel | bargauge.Panel | timeseries.Panel


def panel_builder(panel: Panel, no_value: str) -> PanelBuilder:
    """The builder of one panel, with its queries. ``no_value``: what it says if they are empty and it has no words of its own."""
    builder = {"lines": _lines, "figure": _figure, "bars": _bars}[panel.kind](panel)
    builder.title(panel.title).description(panel.description).datasource(DATASOURCE)
    builder.span(panel.width).height(panel.height).unit(panel.unit).thresholds(_thresholds(panel))
    builder.no_value(panel.no_value or no_value)
    for ref_id, query in zip(REF_IDS, panel.queries, strict=False):
        builder.with_target(_target(query, ref_id, instant=panel.kind != "lines"))
    if panel.decimals is not None:
        builder.decimals(panel.decimals)
    if panel.low is not None:
        builder.min(panel.low)
    if panel.high is not None:
        builder.max(panel.high)
    return builder


def _target(query: Query, ref_id: str, *, instant: bool) -> prometheus.Dataquery:
    target = prometheus.Dataquery().expr(query.promql).legend_format(query.legend).ref_id(ref_id)
    target.datasource(DATASOURCE).editor_mode(QueryEditorMode.CODE)
    return target.instant() if instant else target.range()


def _thresholds(panel: Panel) -> builders.ThresholdsConfig:
    steps = [
        models.Threshold(value=None, color=panel.base),
        *(models.Threshold(value=value, color=colour) for value, colour in panel.steps),
    ]
    return builders.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(steps)


def _last() -> common.ReduceDataOptions:
    return common.ReduceDataOptions().calcs(["lastNotNull"])


def _by_value() -> builders.FieldColor:
    return builders.FieldColor().mode(models.FieldColorModeId.THRESHOLDS)


def _figure(panel: Panel) -> PanelBuilder:
    several = len(panel.queries) > 1 or "{{" in panel.queries[0].legend
    return (
        stat.Panel()
        .color_scheme(_by_value())
        .color_mode(options.BigValueColorMode.VALUE)
        # Only the present value is asked for: a graph of the last hours would go on showing the last value of a dead run.
        .graph_mode(options.BigValueGraphMode.NONE)
        .text_mode(options.BigValueTextMode.VALUE_AND_NAME if several else options.BigValueTextMode.VALUE)
        .reduce_options(_last())
    )


def _bars(_: Panel) -> PanelBuilder:
    return (
        bargauge.Panel()
        .color_scheme(_by_value())
        .display_mode(options.BarGaugeDisplayMode.BASIC)
        .orientation(options.VizOrientation.HORIZONTAL)
        .reduce_options(_last())
    )


def _lines(panel: Panel) -> PanelBuilder:
    several = len(panel.queries) >= MANY_LINES or any("{{" in query.legend for query in panel.queries)
    legend = common.VizLegendOptions().show_legend(True).placement(options.LegendPlacement.BOTTOM)
    legend.display_mode(options.LegendDisplayMode.TABLE if several else options.LegendDisplayMode.LIST)
    if several:
        legend.sort_by("Max").sort_desc(True)  # what was never above 0 comes last, such as most reasons for dropping a message
    builder = (
        timeseries.Panel()
        .color_scheme(builders.FieldColor().mode(models.FieldColorModeId.PALETTE_CLASSIC))
        .legend(legend.calcs(["lastNotNull", "max"] if several else ["lastNotNull"]))
        .tooltip(common.VizTooltipOptions().mode(options.TooltipDisplayMode.MULTI).sort(options.SortOrder.DESCENDING))
        .line_width(1)
        .fill_opacity(30 if panel.stacked else 5)
        .show_points(options.VisibilityMode.NEVER)
    )
    if panel.stacked:
        builder.stacking(common.StackingConfig().mode(options.StackingMode.NORMAL))
    if panel.steps:
        builder.thresholds_style(common.GraphThresholdsStyleConfig().mode(options.GraphTresholdsStyleMode.DASHED))
    return builder
