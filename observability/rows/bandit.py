"""Requests for temperatures, answers and reports. Empty if the run has no bandit."""

from observability.panels import Panel, Query, Row, share

ROW = Row(
    title="Bandit",
    panels=(
        Panel(
            title="Requests per second",
            description="Requests by outcome. `new` follows the number of games; `repeated` and `late` follow lost answers.",
            queries=(Query("sum by (outcome) (rate(herd_bandit_requests_total{SCOPE}[$__rate_interval]))", "{{outcome}}"),),
        ),
        Panel(
            title="Games reported per second",
            description="Reported games by outcome. Only `accepted` games count. `non_finite`: a game returned NaN; `unknown` and "
            "`out_of_range`: an actor has other settings.",
            queries=(Query("sum by (outcome) (rate(herd_bandit_reports_total{SCOPE}[$__rate_interval]))", "{{outcome}}"),),
        ),
        share(
            "Games under an old temperature",
            "Share of accepted games that were played at the previous temperature because no answer came in time.",
            Query(
                "sum(rate(herd_bandit_reused_temperatures_total{SCOPE}[$__rate_interval]))\n"
                '/ sum(rate(herd_bandit_reports_total{SCOPE, outcome="accepted"}[$__rate_interval]))',
                "reused",
            ),
            steps=((0.2, "orange"),),
        ),
        Panel(
            title="1/tau drawn",
            description="Quantiles over five minutes and the chosen tasks. 0 is uniform play; large values are greedy.",
            queries=(
                Query(
                    'histogram_quantile(0.9, sum by (le) (rate(herd_bandit_inverse_temperature_bucket{SCOPE, task=~"$task"}[5m])))',
                    "90 %",
                ),
                Query(
                    'histogram_quantile(0.5, sum by (le) (rate(herd_bandit_inverse_temperature_bucket{SCOPE, task=~"$task"}[5m])))',
                    "middle",
                ),
                Query(
                    'histogram_quantile(0.1, sum by (le) (rate(herd_bandit_inverse_temperature_bucket{SCOPE, task=~"$task"}[5m])))',
                    "10 %",
                ),
            ),
        ),
        Panel(
            title="Best tiles",
            description="The five tiles of log(1 + 1/tau) with the highest values, over the chosen tasks and all agents.",
            queries=(Query('topk(5, avg by (tile) (herd_bandit_tile_value{SCOPE, task=~"$task"}))', "tile {{tile}}"),),
            kind="bars",
            base="blue",
            low=None,
            decimals=2,
        ),
        Panel(
            title="Tiles played most",
            description="Games per second, by tile. They concentrate near the best tiles when the bandit has learned them.",
            queries=(
                Query('topk(5, sum by (tile) (rate(herd_bandit_tile_reports_total{SCOPE, task=~"$task"}[5m])))', "tile {{tile}}"),
                Query('sum(rate(herd_bandit_votes_total{SCOPE, task=~"$task"}[5m]))', "votes for all tiles"),
            ),
        ),
        Panel(
            title="State on disk",
            description="Age of the state on disk, which is the loss if the process is killed. If it is far above "
            "bandit.snapshot_interval_seconds, the disk may be full.",
            queries=(
                Query("max(herd_bandit_snapshot_age_seconds{SCOPE})", "age"),
                Query("sum by (file) (increase(herd_bandit_file_failures_total{SCOPE}[1h]))", "{{file}} not written, last hour"),
            ),
            unit="s",
        ),
        Panel(
            title="States restored and written",
            description="Games in the state that this process restored, and states written.",
            queries=(
                Query("max(herd_bandit_restored_episodes{SCOPE})", "games restored"),
                Query("sum(increase(herd_bandit_snapshots_written_total{SCOPE}[1h]))", "states written, last hour"),
            ),
        ),
    ),
)
