"""Whether games get their temperatures. Runs without a bandit have none of these series, and none of these alerts."""

from observability.rules import Alert

ALERTS = (
    Alert(
        name="HerdBanditSilent",
        # Games end but no requests arrive, or a scraped bandit does not export these series.
        expression="""
            (
              sum by (RUN) (rate(herd_bandit_requests_total{SCOPE}[10m])) == 0
              and on (RUN) sum by (RUN) (rate(herd_actor_episodes_total{SCOPE}[10m])) > 0
            )
            or
            (group by (RUN) (up{SCOPE, component="bandit"}) unless on (RUN) sum by (RUN) (rate(herd_bandit_requests_total{SCOPE}[10m])))
            """,
        lasting="5m",  # with the window: a quarter of an hour
        severity="warning",
        summary="No actor of {{ $labels.release }} asks the bandit for temperatures.",
        description="Games continue at their last temperatures. The bandit is down, or actors cannot reach it.",
    ),
    Alert(
        name="HerdTemperaturesReused",
        expression="""
            sum by (RUN) (rate(herd_bandit_reused_temperatures_total{SCOPE}[10m]))
              / sum by (RUN) (rate(herd_bandit_reports_total{SCOPE, outcome="accepted"}[10m]))
            > 0.2
            """,
        lasting="15m",  # a restart of the bandit costs every environment one game
        severity="warning",
        summary="{{ $value | humanizePercentage }} of the games of {{ $labels.release }} are played at an old temperature.",
        description="The bandit's answers come later than actor.bandit_timeout_seconds: its processor is busy, or the network is slow.",
    ),
)
