"""What moves between processes, and what is dropped on the way."""

from observability.panels import Panel, Query, Row

ROW = Row(
    title="Wire",
    panels=(
        Panel(
            title="Received",
            description="By component and stream. The learner receives unrolls; actors receive weights, and far more than they send.",
            queries=(
                Query("herd:wire_received_bytes:rate1m{SCOPE}", "{{component}}: {{stream}}"),
                Query("sum(rate(herd_bandit_received_bytes_total{SCOPE}[$__rate_interval]))", "bandit"),
                Query("sum(rate(herd_replay_received_bytes_total{SCOPE}[$__rate_interval]))", "replay"),
                Query("sum(rate(herd_population_received_bytes_total{SCOPE}[$__rate_interval]))", "population"),
                Query("sum(rate(herd_inference_received_bytes_total{SCOPE}[$__rate_interval]))", "inference"),
            ),
            unit="Bps",
            width=8,
        ),
        Panel(
            title="Sent",
            description="By component and stream. Parameter servers send weights: bytes of a version x actors x versions per second.",
            queries=(
                Query("herd:wire_sent_bytes:rate1m{SCOPE}", "{{component}}: {{stream}}"),
                Query("sum(rate(herd_bandit_sent_bytes_total{SCOPE}[$__rate_interval]))", "bandit"),
                Query("sum(rate(herd_replay_sent_bytes_total{SCOPE}[$__rate_interval]))", "replay"),
                Query("sum(rate(herd_population_sent_bytes_total{SCOPE}[$__rate_interval]))", "population"),
                Query("sum(rate(herd_inference_sent_bytes_total{SCOPE}[$__rate_interval]))", "inference"),
            ),
            unit="Bps",
            width=8,
        ),
        Panel(
            title="Connections",
            description="To each server, half-open ones among them. Far above the number of its clients: somebody else opens them.",
            queries=(Query("sum by (pod) (herd_wire_connections{SCOPE})", "{{pod}}"),),
            decimals=0,
            width=8,
        ),
        Panel(
            title="Malformed messages",
            description="Dropped since they could not be read. 0; anything else is another release, a damaged path, or a stranger.",
            queries=(Query("herd:wire_malformed_messages:rate5m{SCOPE}", "{{component}}: {{reason}}"),),
        ),
        Panel(
            title="Refused messages",
            description="Understood and not taken. `session`, `sequence`, `credit` and `duplicate` after a restart are ordinary; "
            "`run`, `contract` and `protocol` are a client of another run or release.",
            queries=(
                Query(
                    "sum by (component, reason) (rate(herd_wire_refused_messages_total{SCOPE}[$__rate_interval]))",
                    "{{component}}: {{reason}}",
                ),
            ),
        ),
        Panel(
            title="Authentication failures",
            description="Handshakes that failed, where the run has keys. `incomplete` is what TCP probes leave.",
            queries=(
                Query(
                    "sum by (component, reason) (rate(herd_wire_authentication_failures_total{SCOPE}[$__rate_interval]))",
                    "{{component}}: {{reason}}",
                ),
            ),
        ),
        Panel(
            title="Connections cut and bytes unread",
            description="Connections that a server ended, per second, and bytes that its clients sent and it has not read yet. Both "
            "near 0.",
            queries=(
                Query(
                    "sum by (component, cause) (rate(herd_wire_connections_cut_total{SCOPE}[$__rate_interval]))",
                    "{{component}} cut: {{cause}}",
                ),
                Query("sum by (pod) (herd_wire_unread_bytes{SCOPE})", "{{pod}} unread bytes"),
            ),
        ),
    ),
)
