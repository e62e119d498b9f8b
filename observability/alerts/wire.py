"""Messages that do not arrive or should not have been sent.

All of these counters are exported from the start, at 0: a counter that appears with its first event hides that event from rate().
"""

from observability.rules import Alert

ALERTS = (
    Alert(
        name="HerdUnrollsResent",
        expression="herd:actor_unrolls_resent:rate5m{SCOPE} / herd:actor_unrolls_sent:rate5m{SCOPE} > 0.1",
        lasting="15m",  # all senders repeat messages after a restart of the learner
        severity="warning",
        summary="The actors of {{ $labels.release }} send {{ $value | humanizePercentage }} of their unrolls again.",
        description="Connections between actors and learner break, or acknowledgements are late. Nothing is counted twice.",
    ),
    Alert(
        name="HerdMessagesMalformed",
        expression="sum by (RUN, component, reason) (increase(herd_wire_malformed_messages_total{SCOPE}[10m])) > 10",
        lasting="5m",  # a rolling upgrade may leave a few
        severity="warning",
        summary="{{ $labels.component }} of {{ $labels.release }} dropped {{ $value | humanize }} messages as malformed ({{ "
        "$labels.reason }}).",
        description="Possible causes: two releases of the program in one run, a network that damages data, or a foreign program "
        "that sends to this port.",
    ),
    Alert(
        name="HerdMessagesRefused",
        # The other reasons are normal after a restart: session, sequence, credit, duplicate.
        expression="""
            sum by (RUN, component, reason) (
              increase(herd_wire_refused_messages_total{SCOPE, reason=~"protocol|run|contract|size|full|other"}[10m])
            ) > 10
            """,
        lasting="5m",  # as above
        severity="warning",
        summary="{{ $labels.component }} of {{ $labels.release }} refused {{ $value | humanize }} messages ({{ $labels.reason }}).",
        description="A client has another release, run or settings, or there are too many clients. The client's log gives the reason.",
    ),
    Alert(
        name="HerdAuthenticationFailures",
        # `incomplete` is what a TCP probe or a port scan leaves.
        expression="""
            sum by (RUN, component, reason) (
              increase(herd_wire_authentication_failures_total{SCOPE, reason!="incomplete"}[10m])
            ) > 5
            """,
        lasting="0m",  # frequent attempts should be looked at soon
        severity="warning",
        summary="{{ $value | humanize }} handshakes with {{ $labels.component }} of {{ $labels.release }} failed ({{ $labels.reason }}).",
        description="A process of the run has no key, keys of two runs are mixed, or a foreign client tries to connect. The server's "
        "log names the address.",
    ),
    Alert(
        name="HerdConnectionsCut",
        expression="sum by (RUN, component, cause) (increase(herd_wire_connections_cut_total{SCOPE}[10m])) > 0",
        lasting="0m",  # Herd's clients never cause this
        severity="warning",
        summary="{{ $labels.component }} of {{ $labels.release }} cut off connections ({{ $labels.cause }}).",
        description="A client opens too many connections, or sends data faster than the server reads it. Herd's own clients do neither.",
    ),
)
