"""The run as a whole, its actors, and the traffic between its processes."""

from observability.panels import Panel, Query, Row, share

RUN = Row(
    title="Run",
    panels=(
        Panel(
            title="Frames per second",
            description="Env frames that all learners trained on for the first time over the last minute. Red: none.",
            queries=(Query("sum(herd:env_frames:rate1m{SCOPE})", "env frames/s"),),
            kind="figure",
            base="red",
            steps=((1.0, "green"),),
            width=7,
            height=9,
        ),
        Panel(
            title="Frames per second over time",
            description="Env frames trained on, and env frames played by actors. If more is played than trained on, frames are dropped or "
            "wait in the queue. The target is the dashboard variable; it is not drawn if it is 0.",
            queries=(
                Query("sum(herd:env_frames:rate1m{SCOPE})", "trained on"),
                Query("herd:actor_env_frames:rate1m{SCOPE}", "played by actors"),
                Query("vector($target) > 0", "target"),
            ),
            width=11,
            height=9,
        ),
        Panel(
            title="Bottleneck: time spent waiting",
            description="Shares of time over the last minute. The longest bar shows the bottleneck. Learner waits for batches (the shard "
            "that waits most): the actors are the bottleneck. Actors wait for credit: the learner is. Actors wait for "
            "weights: the parameter server or the network is. If all bars are short, the run is balanced, and only more "
            "resources of every kind make it faster.",
            queries=(
                Query("max(herd:learner_starved:ratio_rate1m{SCOPE})", "learner waits for batches"),
                Query("herd:actor_blocked:ratio_rate1m{SCOPE}", "actors wait for credit"),
                Query("herd:actor_weights_wait:ratio_rate1m{SCOPE}", "actors wait for weights"),
                Query("max(herd:learner_queue:ratio{SCOPE})", "queue filled"),
            ),
            kind="bars",
            unit="percentunit",
            high=1.0,
            steps=((0.25, "yellow"), (0.5, "red")),
            width=6,
            height=9,
        ),
        Panel(
            title="Frames in total",
            description="Env frames trained on since the run began, by all agents, including earlier sessions.",
            queries=(Query("sum(herd:run_env_frames:max{SCOPE})", "env frames"),),
            kind="figure",
            base="blue",
            width=5,
            height=4,
        ),
        Panel(
            title="Return",
            description="Mean raw return of the last 100 episodes, averaged over the chosen agents and tasks.",
            queries=(Query("avg(herd:episode_return:mean_100{SCOPE, AGENTS, TASKS})", "return"),),
            kind="figure",
            low=None,
            base="blue",
            no_value="no episode",
            decimals=2,
            width=4,
            height=4,
        ),
        Panel(
            title="Policy lag",
            description="Learner updates between the policy that began an unroll and the one that trained on it: 95th percentile, of the "
            "agent where it is largest. Normal: below 16.",
            queries=(Query("max(herd:policy_lag_updates:p95_5m{SCOPE})", "updates"),),
            kind="figure",
            decimals=1,
            steps=((16.0, "yellow"), (32.0, "red")),
            width=4,
            height=4,
        ),
        Panel(
            title="Processes that answer",
            description="Number of processes that Prometheus can scrape, by component.",
            queries=(Query("herd:processes_up:sum{SCOPE}", "{{component}}"),),
            kind="figure",
            decimals=0,
            base="red",
            steps=((1.0, "green"),),
            width=7,
            height=4,
        ),
        Panel(
            title="Alerts",
            description="Firing alerts of this run. The runbook has a section for each.",
            queries=(Query('count(ALERTS{SCOPE, alertstate="firing"}) or vector(0)', "firing"),),
            kind="figure",
            decimals=0,
            steps=((1.0, "red"),),
            width=4,
            height=4,
        ),
    ),
)

# There may be thousands of actors, so there are only sums, quantiles and the slowest.
ACTORS = Row(
    title="Actors",
    panels=(
        share(
            "Where an actor's time goes",
            "Mean over all actors. Normal: environments and policy take most of the time. Credit: the learner is the "
            "bottleneck. Weights: the parameter server or the network is. The rest up to 100 % is packing, sending and "
            "waiting for the processor.",
            Query("herd:actor_env_step:ratio_rate1m{SCOPE}", "steps environments"),
            Query("herd:actor_inference:ratio_rate1m{SCOPE}", "policy"),
            Query("herd:actor_blocked:ratio_rate1m{SCOPE}", "waits for credit"),
            Query("herd:actor_weights_wait:ratio_rate1m{SCOPE}", "waits for weights"),
            stacked=True,
        ),
        Panel(
            title="Frames per second of an actor",
            description="Quantiles over all actors and five minutes. If they differ widely, some actors run on slower or busier nodes.",
            queries=(
                Query("herd:actor_rate_env_frames:p95_5m{SCOPE}", "fast (95 %)"),
                Query("herd:actor_rate_env_frames:p50_5m{SCOPE}", "median"),
                Query("herd:actor_rate_env_frames:p05_5m{SCOPE}", "slow (5 %)"),
            ),
        ),
        Panel(
            title="Slowest actors",
            description="The five actors with the fewest env frames per second. Check their nodes and logs first.",
            queries=(Query("sort(bottomk(5, rate(herd_actor_env_frames_total{SCOPE}[5m])))", "{{pod}}"),),
            kind="bars",
            base="blue",
        ),
        Panel(
            title="Actors",
            description="Actors known to Prometheus, actors that answer, and live connections to shards (an actor may have several). If "
            "fewer answer than are known, pods are starting, hanging or dying.",
            queries=(
                Query('herd:processes:count{SCOPE, component="actor"}', "known"),
                Query('herd:processes_up:sum{SCOPE, component="actor"}', "answer"),
                Query("sum(herd_learner_connected_actors{SCOPE})", "connected to shards"),
            ),
        ),
        Panel(
            title="Unrolls per second",
            description="Unrolls sent by actors, sent again after a broken connection, and refused by the learner. Normal: the last two "
            "are 0.",
            queries=(
                Query("herd:actor_unrolls_sent:rate5m{SCOPE}", "sent"),
                Query("herd:actor_unrolls_resent:rate5m{SCOPE}", "sent again"),
                Query("herd:actor_unrolls_rejected:rate5m{SCOPE}", "refused"),
            ),
            width=8,
        ),
        Panel(
            title="Cores in use, by component",
            description="Processor time per second, summed over pods. If actors use less than they requested although they do not wait, "
            "their cgroup throttles them. Normal for a learner with a GPU: one or two cores.",
            queries=(Query("herd:process_cpu_seconds:rate1m{SCOPE}", "{{component}}"),),
            width=8,
        ),
        Panel(
            title="Memory, by component",
            description="Resident memory of the largest process of each component. Normal: constant after the first minutes, or once "
            "replay is full.",
            queries=(Query("herd:process_resident_memory_bytes:max{SCOPE}", "{{component}}"),),
            unit="bytes",
            width=8,
        ),
    ),
)

WIRE = Row(
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
        ),
        Panel(
            title="Messages dropped",
            description="Per second: messages that could not be read (normal: 0), and readable messages that were refused. `session`, "
            "`sequence`, `credit` and `duplicate` are normal after a restart. `run`, `contract` and `protocol` mean a client "
            "of another run or release.",
            queries=(
                Query("herd:wire_malformed_messages:rate5m{SCOPE}", "{{component}} malformed: {{reason}}"),
                Query(
                    "sum by (component, reason) (rate(herd_wire_refused_messages_total{SCOPE}[$__rate_interval]))",
                    "{{component}} refused: {{reason}}",
                ),
            ),
        ),
        Panel(
            title="Connections",
            description="Connections to each server, including half-open ones; connections that a server closed, and failed handshakes, "
            "per second. If there are far more connections than clients, a foreign program opens them. TCP probes cause the "
            "reason `incomplete`.",
            queries=(
                Query("sum by (pod) (herd_wire_connections{SCOPE})", "{{pod}}"),
                Query(
                    "sum by (component, cause) (rate(herd_wire_connections_cut_total{SCOPE}[$__rate_interval]))",
                    "{{component}} closed: {{cause}}",
                ),
                Query(
                    "sum by (component, reason) (rate(herd_wire_authentication_failures_total{SCOPE}[$__rate_interval]))",
                    "{{component}} handshake: {{reason}}",
                ),
            ),
        ),
    ),
)
