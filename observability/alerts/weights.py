"""Whether actors play with the learner's newest weights."""

from observability.rules import Alert

ALERTS = (
    Alert(
        name="HerdPolicyLagHigh",
        # V-trace corrects for slightly old data; docs/runbook.md considers tens of updates old.
        expression="herd:policy_lag_updates:p95_5m{SCOPE} > 32",
        lasting="15m",  # a restart of the learner leaves a few minutes of older unrolls
        severity="warning",
        summary="One unroll in twenty of {{ $labels.release }} is {{ $value | humanize }} updates old or older.",
        description="V-trace can correct less for unrolls of older policies: learning slows down and finally fails.",
    ),
    Alert(
        name="HerdWeightsStale",
        # NaN, which is not equal to itself, means an actor that never had weights.
        expression="""
            count by (RUN) (
              herd_weights_age_seconds{SCOPE, component="actor"} > 300
              or herd_weights_age_seconds{SCOPE, component="actor"} != herd_weights_age_seconds{SCOPE, component="actor"}
            )
            / count by (RUN) (herd_weights_age_seconds{SCOPE, component="actor"})
            > 0.1
            NOT_OVER
            """,
        lasting="5m",  # with the age: ten minutes behind
        severity="warning",
        summary="{{ $value | humanizePercentage }} of the actors of {{ $labels.release }} play old weights, or have none.",
        description="Their weights arrived more than five minutes ago, and they continue with them. Compare the versions of learner, "
        "root, replicas and actors in the dashboard's row Weights: the first component with an old version is cut off "
        "from the previous one.",
    ),
    Alert(
        name="HerdWeightsNotServed",
        expression="""
            max by (RUN, component, pod) (herd_weights_age_seconds{SCOPE, component=~"paramserver|paramserver-replica"})
              - on (RUN) group_left () min by (RUN) (herd_weights_age_seconds{SCOPE, component="learner"})
            > 120
            or
            group by (RUN, component, pod) (
              herd_weights_age_seconds{SCOPE, component=~"paramserver|paramserver-replica"}
                != herd_weights_age_seconds{SCOPE, component=~"paramserver|paramserver-replica"}
            )
              and on (RUN) herd_weights_age_seconds{SCOPE, component="learner"} >= 0
            """,
        # NaN, which is not equal to itself, means that it never had weights although the learner has published.
        lasting="5m",  # a version is on its way for seconds
        severity="critical",
        summary="{{ $labels.pod }} of {{ $labels.release }} serves no weights, or old ones.",
        description="The learner has published newer weights, but the {{ $labels.component }} {{ $labels.pod }} does not have them. "
        "All actors that ask it fall behind.",
    ),
    Alert(
        name="HerdWeightsNotPublished",
        # If a shard's slice is not confirmed, all shards stop publishing. The versions of learner and root then stay equal, so comparing
        # them does not show it. A single shard continues to publish, which is HerdWeightsNotServed.
        expression="""
            herd:weights_age_seconds:max{SCOPE, component="learner"} > 120
            and on (RUN) herd:learner_updates:rate5m{SCOPE} > 0
            """,
        lasting="5m",  # a restart of the parameter server is over in seconds
        severity="critical",
        summary="The learner of {{ $labels.release }} trains, but published its last weights {{ $value | humanizeDuration }} ago.",
        description="All actors play an old policy, although none seems to lag. A slice of the last version is not confirmed: the "
        "connection of a shard to the root is broken, or the root refuses its slices.",
    ),
    Alert(
        name="HerdReplicaCutOff",
        # A healthy parent answers a hundred times per second.
        expression="herd_paramserver_upstream_silence_seconds{SCOPE} > 30",
        lasting="2m",  # a replica finds a restarted parent within 15 s
        severity="warning",
        summary="{{ $labels.pod }} of {{ $labels.release }} gets no answers from its parent.",
        description="The replica continues to serve its weights, which grow older. The parent is down or hangs.",
    ),
)
