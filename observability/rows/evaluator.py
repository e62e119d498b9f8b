"""Evaluation of frozen weights while the run learns. Empty if the run has no evaluator."""

from observability.panels import Panel, Query, Row

ROW = Row(
    title="Evaluation",
    panels=(
        Panel(
            title="Score",
            description="Mean raw return over whole games of the last evaluation, by task. If it is below the returns of training, the "
            "environments differ, or there were too few games.",
            queries=(Query('max by (task) (herd_evaluator_score{SCOPE, task=~"$task"})', "{{task}}"),),
            low=None,
            width=12,
        ),
        Panel(
            title="Normalised score",
            description="Score over all tasks: human-normalised (1: human) and record-normalised (saber_...). Empty if a task has no "
            "reference scores.",
            queries=(Query("max by (statistic) (herd_evaluator_normalised_score{SCOPE})", "{{statistic}}"),),
            unit="percentunit",
            low=None,
            width=12,
        ),
        Panel(
            title="Version evaluated",
            description="Learner updates of the last evaluated version and of the newest published version.",
            queries=(
                Query("max(herd_evaluator_evaluated_updates{SCOPE})", "evaluated"),
                Query('max(herd_weights_updates{SCOPE, component="learner"})', "learner"),
            ),
            width=8,
        ),
        Panel(
            title="Length of an evaluation",
            description="Duration of the last evaluation. Above evaluation.interval_seconds, evaluations follow each other without a "
            "break.",
            queries=(Query("max(herd_evaluator_last_evaluation_seconds{SCOPE})", "last"),),
            unit="s",
            width=8,
        ),
        Panel(
            title="Games and evaluations",
            description="Games per second, evaluations per hour, and failed writes of points per hour.",
            queries=(
                Query("sum(rate(herd_evaluator_episodes_total{SCOPE}[$__rate_interval]))", "games/s"),
                Query("3600 * sum(rate(herd_evaluator_evaluations_total{SCOPE}[1h]))", "evaluations/h"),
                Query("3600 * sum(rate(herd_evaluator_file_failures_total{SCOPE}[1h]))", "points lost/h"),
            ),
            width=8,
        ),
    ),
)
