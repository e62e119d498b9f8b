"""Whether actors play what the learner has learned."""

from observability.rules import Alert

ALERTS = (
    Alert(
        name="HerdPolicyLagHigh",
        # V-trace corrects for data that is a little old; docs/runbook.md calls tens of updates old.
        expression="herd:policy_lag_updates:p95_5m{SCOPE} > 32",
        lasting="15m",  # a restart of the learner leaves a few minutes of older unrolls
        severity="warning",
        summary="One unroll in twenty of {{ $labels.release }} is {{ $value | humanize }} updates old or older.",
        description="The older the policy of an unroll, the less V-trace can correct for it: learning slows down and finally fails.",
    ),
    Alert(
        name="HerdWeightsStale",
        # NaN, which is not equal to itself, is an actor that never had any.
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
        description="Their weights arrived more than five minutes ago. They go on with what they have. Follow the version along "
        "learner, root, replicas, actors in the dashboard's row Weights: the first that stands still is cut off from the one before "
        "it.",
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
        # NaN, not equal to itself: it never had any, and the learner has published some.
        lasting="5m",  # a version is on its way for seconds
        severity="critical",
        summary="{{ $labels.pod }} of {{ $labels.release }} serves no weights, or old ones.",
        description="The learner has published since, and the {{ $labels.component }} {{ $labels.pod }} does not have it: every "
        "actor that asks it falls behind.",
    ),
    Alert(
        name="HerdWeightsNotPublished",
        # Where one shard's slice is not confirmed, all stop publishing: the learner's version and age then stand still with the root's,
        # and no comparison of the two shows it. One shard alone publishes on, and is HerdWeightsNotServed.
        expression="""
            herd:weights_age_seconds:max{SCOPE, component="learner"} > 120
            and on (RUN) herd:learner_updates:rate5m{SCOPE} > 0
            """,
        lasting="5m",  # a restart of the parameter server is over in seconds
        severity="critical",
        summary="The learner of {{ $labels.release }} trains, and published its last weights {{ $value | humanizeDuration }} ago.",
        description="Every actor plays an old policy, and none looks as if it were behind. A slice of the last version is not confirmed: "
        "the connection of one shard to the root is broken, or the root does not take what it sends.",
    ),
    Alert(
        name="HerdReplicaCutOff",
        # A healthy parent answers a hundred times a second.
        expression="herd_paramserver_upstream_silence_seconds{SCOPE} > 30",
        lasting="2m",  # a replica finds a restarted parent within 15 s
        severity="warning",
        summary="{{ $labels.pod }} of {{ $labels.release }} gets no answers from its parent.",
        description="The replica continues to serve its weights, which grow older. The parent is down or hangs.",
    ),
)
