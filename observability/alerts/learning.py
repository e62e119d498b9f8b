"""Problems of learning that no healthy run has. Scores are left to the researcher."""

from observability.rules import Alert

ALERTS = (
    Alert(
        name="HerdLossNotFinite",
        # Every shard counts every skipped update. 2.5 stands for three, because increase() extrapolates. NaN is not equal to itself.
        expression="""
            max by (RUN) (increase(herd_learner_updates_skipped_total{SCOPE}[15m])) > 2.5
            or
            count by (RUN) (
              herd_learner_loss{SCOPE, term="total"} != herd_learner_loss{SCOPE, term="total"}
              or abs(herd_learner_loss{SCOPE, term="total"}) == Inf
            )
            """,
        lasting="1m",  # one skipped update that a scrape happened to meet is over by the next
        severity="critical",
        summary="Losses of {{ $labels.release }} are not finite.",
        description="Updates are skipped: the parameters do not change, and the run does not learn from them.",
    ),
    Alert(
        name="HerdFramesDropped",
        expression="""
            sum by (RUN, reason) (rate(herd_learner_env_frames_dropped_total{SCOPE}[10m]))
              / on (RUN) group_left () sum by (RUN) (rate(herd_learner_env_frames_generated_total{SCOPE}[10m]))
            > 0.05
            """,
        lasting="10m",  # a restart drops what was in flight, once
        severity="warning",
        summary="{{ $labels.release }} drops {{ $value | humanizePercentage }} of its frames as {{ $labels.reason }}.",
        description="Actors play these frames, but the learner does not train on them.",
    ),
    Alert(
        name="HerdTaskNeglected",
        # Tasks differ by at most one environment: the least has at least half of the most, so more than half of the mean.
        expression="""
            herd:task_env_frames:rate5m{SCOPE}
              < on (RUN) group_left () (avg by (RUN) (herd:task_env_frames:rate5m{SCOPE}) / 4)
            """,
        lasting="30m",  # actors that come, go or move leave a task for minutes
        severity="warning",
        summary="{{ $labels.release }} hardly trains on {{ $labels.task }}.",
        description="The task has less than a quarter of the mean number of frames per task.",
    ),
)
