"""Whether the run goes on, how fast, and who waits for whom."""

from observability.rules import Alert

ALERTS = (
    Alert(
        name="HerdNoProgress",
        # A rate without series is no 0: the second half speaks for a learner that exports nothing.
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
        summary="{{ $labels.release }} trains on nothing.",
        description="The learner of {{ $labels.namespace }}/{{ $labels.release }} has consumed no env frame for a quarter of an "
        "hour, or is not there. The dashboard's rows, from the actors on, show where frames stop.",
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
        description="Usual is the mean of the last six hours. Fewer actors, slower nodes, or a new bottleneck: the row of the "
        "dashboard that changed first says which.",
    ),
    Alert(
        name="HerdLearnerStarved",
        # Recorded from a counter that every learner exports from its start; a learner that is gone is HerdNoProgress. Of the shard that
        # waits most: the others wait for it in the phase `agree`, which is no starvation of theirs.
        expression="herd:learner_starved:ratio_rate5m{SCOPE} > 0.5 NOT_OVER",
        lasting="15m",  # as long as an autoscaler needs to add actors
        severity="warning",
        summary="A learner shard of {{ $labels.release }} waits {{ $value | humanizePercentage }} of its time for batches.",
        description="Actors are the bottleneck: the learner's accelerators are idle for most of the time, since all shards wait for the "
        "one that starves. More actors, or faster ones; where the other shards have enough, more links to this one.",
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
