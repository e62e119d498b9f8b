"""Whether a population evolves. Runs without one have none of these series, and none of these alerts."""

from observability.rules import Alert

ALERTS = (
    Alert(
        name="HerdPopulationSilent",
        # Learners train but do not report, or a scraped controller does not export these series.
        expression="""
            (
              sum by (RUN) (rate(herd_population_reports_total{SCOPE}[10m])) == 0
              and on (RUN) sum by (RUN) (rate(herd_learner_env_frames_total{SCOPE}[10m])) > 0
            )
            or
            (
              group by (RUN) (up{SCOPE, component="population"})
              unless on (RUN) sum by (RUN) (rate(herd_population_reports_total{SCOPE}[10m]))
            )
            """,
        lasting="5m",  # with the window: a quarter of an hour
        severity="warning",
        summary="No member of {{ $labels.release }} reports to the population.",
        description="Members continue to train with their present settings, without copies. The controller is down, or learners "
        "cannot reach it.",
    ),
    Alert(
        name="HerdPopulationOrdersFail",
        expression="""
            sum by (RUN) (increase(herd_population_failed_orders_total{SCOPE}[6h]))
              > 0.5 * sum by (RUN) (increase(herd_population_decisions_total{SCOPE, outcome!="unchanged"}[6h]))
            """,
        lasting="15m",
        severity="warning",
        summary="Members of {{ $labels.release }} cannot carry out most orders of the population.",
        description="They cannot read each other's checkpoints or write their own. Learners of a population must share a volume.",
    ),
)
