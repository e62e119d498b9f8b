"""Files that should be on disk but are not."""

from observability.rules import Alert

ALERTS = (
    Alert(
        name="HerdCheckpointFailing",
        # Shard 0 writes; the others' counters stay at 0.
        expression="sum by (RUN) (increase(herd_learner_checkpoint_failures_total{SCOPE}[30m])) > 0",
        lasting="0m",  # the next try is an interval away
        severity="critical",
        summary="The learner of {{ $labels.release }} cannot write checkpoints.",
        description="The previous checkpoint is kept and the run continues, but a restart would lose the training since then. The "
        "most frequent cause is a full volume.",
    ),
    Alert(
        name="HerdCheckpointOverdue",
        expression="""
            sum by (RUN) (increase(herd_learner_checkpoints_written_total{SCOPE}[5m])) == 0
            and on (RUN) herd:learner_updates:rate5m{SCOPE} > 0
            """,
        # Twelve default intervals of learner.checkpoint_interval_seconds. The hour is in the duration of the condition, not in the window,
        # because a window that extends before the start is shorter than stated.
        lasting="1h",
        severity="warning",
        summary="{{ $labels.release }} has written no checkpoint for an hour.",
        description="The learner trains, but a restart would lose at least an hour of training.",
    ),
    Alert(
        name="HerdRunFilesFailing",
        expression="""
            sum by (RUN, component, file) (
              increase(herd_learner_write_failures_total{SCOPE}[15m])
              or increase(herd_bandit_file_failures_total{SCOPE}[15m])
              or label_replace(increase(herd_replay_file_failures_total{SCOPE}[15m]), "file", "snapshot", "", "")
              or label_replace(increase(herd_population_file_failures_total{SCOPE}[15m]), "file", "journal", "", "")
            ) > 0
            """,
        lasting="0m",  # every failure is final for what it should have written
        severity="warning",
        summary="{{ $labels.component }} of {{ $labels.release }} cannot write {{ $labels.file }}.",
        description="The run continues without this file. The volume is full, read-only or failing, and the next checkpoint will fail too.",
    ),
)
