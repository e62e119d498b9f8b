"""Progress, speed and bottlenecks of the run."""

from observability.rules import Alert

ALERTS = (
    Alert(
        name="HerdNoProgress",
        # A rate without series is not 0: the second half covers a learner that exports nothing.
        expression="""
            (
              herd:env_frames:rate5m{SCOPE} == 0
              or
              (herd:processes:sum{SCOPE} unless on (RUN) herd:env_frames:rate5m{SCOPE})
            )
            NOT_OVER
            """,
        lasting="10m",  # with the window of the rate: fifteen minutes without a frame
        severity="critical",
        summary="{{ $labels.release }} trains on no frames.",
        description="The learner of {{ $labels.namespace }}/{{ $labels.release }} has consumed no env frame for a quarter of an hour, "
        "or is missing. The rows of the dashboard, from Actors on, show where frames stop.",
    ),
    Alert(
        name="HerdFramesPerSecondFell",
        expression="""
            herd:env_frames:rate5m{SCOPE} < 0.5 * avg_over_time(herd:env_frames:rate5m{SCOPE}[6h])
            and herd:env_frames:rate5m{SCOPE} > 0
            """,
        lasting="15m",  # longer than a rolling upgrade
        severity="warning",
        summary="{{ $labels.release }} trains at {{ $value | humanize }} env frames per second, half of its usual speed or less.",
        description="The usual speed is the mean of the last six hours. There are fewer actors, slower nodes, or a new bottleneck; "
        "the row of the dashboard that changed first shows the cause.",
    ),
    Alert(
        name="HerdLearnerStarved",
        # Recorded from a counter that every learner exports from its start; a missing learner is HerdNoProgress. It is the shard that waits
        # most: the others wait for it in the phase `agree`, which does not count as starvation.
        expression="herd:learner_starved:ratio_rate5m{SCOPE} > 0.5 NOT_OVER",
        lasting="15m",  # as long as an autoscaler needs to add actors
        severity="warning",
        summary="A learner shard of {{ $labels.release }} waits {{ $value | humanizePercentage }} of its time for batches.",
        description="Actors are the bottleneck: the learner's accelerators are idle most of the time, because all shards wait for "
        "this one. Add actors or make them faster. If the other shards have enough unrolls, add links to this one.",
    ),
    Alert(
        name="HerdActorsBlocked",
        expression="herd:actor_blocked:ratio_rate5m{SCOPE} > 0.5 NOT_OVER",
        lasting="30m",  # nothing is lost, only paid for
        severity="info",
        summary="The actors of {{ $labels.release }} wait {{ $value | humanizePercentage }} of their time for credit.",
        description="The learner is the bottleneck: half of the actors would be enough.",
    ),
)
