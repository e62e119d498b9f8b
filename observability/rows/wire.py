"""Traffic between processes, and dropped messages."""

from observability.panels import Panel, Query, Row

ROW = Row(
    title="Wire",
    panels=(
        Panel(
            title="Received",
            description="Bytes per second, by component and stream. The learner receives unrolls. Actors receive weights, far more than "
            "they send.",
            queries=(
                Query("herd:wire_received_bytes:rate1m{SCOPE}", "{{component}}: {{stream}}"),
                Query("sum by (component) (rate(herd_wire_request_bytes_total{SCOPE}[$__rate_interval]))", "{{component}}: requests"),
            ),
            unit="Bps",
            width=8,
        ),
        Panel(
            title="Sent",
            description="Bytes per second, by component and stream. Parameter servers send weights: bytes of a version x actors x "
            "versions per second.",
            queries=(
                Query("herd:wire_sent_bytes:rate1m{SCOPE}", "{{component}}: {{stream}}"),
                Query("sum by (component) (rate(herd_wire_answer_bytes_total{SCOPE}[$__rate_interval]))", "{{component}}: answers"),
            ),
            unit="Bps",
            width=8,
        ),
        Panel(
            title="Connections",
            description="Connections to each server, including half-open ones. If there are far more than clients, a foreign program "
            "opens connections.",
            queries=(Query("sum by (pod) (herd_wire_connections{SCOPE})", "{{pod}}"),),
            decimals=0,
            width=8,
        ),
        Panel(
            title="Malformed messages",
            description="Messages that were dropped because they could not be read. Normal: 0. Otherwise there is another release, a "
            "network that damages data, or a foreign client.",
            queries=(Query("herd:wire_malformed_messages:rate5m{SCOPE}", "{{component}}: {{reason}}"),),
        ),
        Panel(
            title="Refused messages",
            description="Readable messages that were refused. `session`, `sequence`, `credit` and `duplicate` are normal after a restart. "
            "`run`, `contract` and `protocol` mean a client of another run or release.",
            queries=(
                Query(
                    "sum by (component, reason) (rate(herd_wire_refused_messages_total{SCOPE}[$__rate_interval]))",
                    "{{component}}: {{reason}}",
                ),
            ),
        ),
        Panel(
            title="Authentication failures",
            description="Failed handshakes of a run with keys. TCP probes cause `incomplete`.",
            queries=(
                Query(
                    "sum by (component, reason) (rate(herd_wire_authentication_failures_total{SCOPE}[$__rate_interval]))",
                    "{{component}}: {{reason}}",
                ),
            ),
        ),
        Panel(
            title="Connections cut and bytes unread",
            description="Connections closed by a server per second, and bytes that it has received but not read. Normal: both near 0.",
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
