"""Processes that are missing, down, hanging, dying or growing.

``up`` is Prometheus' own metric: 1 if a scrape succeeded, 0 if it failed, and no series without a scrape configuration. These cases have
separate alerts, because each has a different remedy.
"""

from observability.rules import Alert

ALERTS = (
    Alert(
        name="HerdNothingScraped",
        # absent() takes its labels from the matchers, which name the release in the chart's rules.
        expression='absent(up{SCOPE, component="learner"})',
        lasting="10m",  # a pull of a large image on a new node
        severity="warning",
        summary="Prometheus scrapes no learner{{ with $labels.release }} of {{ . }}{{ end }}.",
        description="No target has the labels component=learner and release. Either no run is installed, this Prometheus does not "
        "select the PodMonitor, or its relabelling is missing. No other alert can fire in this state.",
    ),
    Alert(
        name="HerdComponentMissing",
        expression="""
            label_replace(herd:processes:sum{SCOPE} unless on (RUN) up{SCOPE, component="learner"}, "component", "learner", "", "")
            or
            label_replace(herd:processes:sum{SCOPE} unless on (RUN) up{SCOPE, component="paramserver"}, "component", "paramserver", "", "")
            or
            label_replace(herd:processes:sum{SCOPE} unless on (RUN) up{SCOPE, component="actor"}, "component", "actor", "", "")
            """,
        lasting="10m",  # as above
        severity="critical",
        summary="{{ $labels.release }} has no {{ $labels.component }}.",
        description="Other processes of {{ $labels.namespace }}/{{ $labels.release }} are scraped, but no pod of {{ $labels.component "
        "}}. It was scaled to zero, cannot be scheduled, or is not scraped.",
    ),
    Alert(
        name="HerdProcessDown",
        expression='up{SCOPE, component=~"learner|paramserver|paramserver-replica|bandit|replay"} == 0',
        lasting="5m",  # twice what a pod with torch needs to start
        severity="critical",
        summary="{{ $labels.pod }} of {{ $labels.release }} does not answer.",
        description="The {{ $labels.component }} {{ $labels.pod }} has not answered a scrape for five minutes. It is dead, does not "
        "become ready, or is cut off from Prometheus.",
    ),
    Alert(
        name="HerdActorsDown",
        expression='1 - herd:processes_up:sum{SCOPE, component="actor"} / herd:processes:count{SCOPE, component="actor"} > 0.2',
        lasting="10m",  # a wave of reclaimed spot machines is over sooner
        severity="warning",
        summary="{{ $value | humanizePercentage }} of the actors of {{ $labels.release }} do not answer.",
        description="Single actors may come and go, but more than one in five has been missing for ten minutes.",
    ),
    Alert(
        name="HerdCrashLoop",
        # Processor time restarts with the process. A process that dies before its first scrape makes `up` change repeatedly instead.
        expression="""
            count by (RUN, component) (
              resets(herd_process_cpu_seconds_total{SCOPE}[15m]) >= 3 or changes(up{SCOPE, ANY_COMPONENT}[15m]) >= 6
            )
            """,
        lasting="0m",  # three times is enough
        severity="critical",
        summary="{{ $value }} {{ $labels.component }} processes of {{ $labels.release }} are in a crash loop.",
        description="Each of them restarted at least three times within fifteen minutes. The last line in the log of the previous "
        "container gives the reason.",
    ),
    Alert(
        name="HerdProcessHangs",
        expression="count by (RUN, component) (herd_process_heartbeat_age_ratio{SCOPE} > 1)",
        lasting="1m",  # the liveness probe should have ended it by then
        severity="critical",
        summary="{{ $value }} {{ $labels.component }} processes of {{ $labels.release }} hang.",
        description="Their main loop has been blocked for too long, but they still answer scrapes. /healthz fails, so a liveness probe "
        "should restart them.",
    ),
    Alert(
        name="HerdMemoryGrows",
        # Only the largest process of each component, so that thousands of actors need one series.
        expression="herd:process_resident_memory_bytes:max{SCOPE} / (herd:process_resident_memory_bytes:max{SCOPE} offset 6h) > 1.5",
        lasting="1h",  # six hours after the start even replay is full
        severity="warning",
        summary="{{ $labels.component }} of {{ $labels.release }} needs {{ $value | humanize }} times the memory of six hours ago.",
        description="The memory of every process should be constant after its first minutes. A learner's memory increases until "
        "replay is full.",
    ),
)
