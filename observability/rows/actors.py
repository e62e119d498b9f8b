"""Where actors' time goes, and whether some are slower than others. Thousands of them: sums and quantiles, never a line each."""

from observability.panels import Panel, Query, Row, share

ROW = Row(
    title="Actors",
    panels=(
        share(
            "Where an actor's time goes",
            "Mean over all actors. Healthy: environments and policy fill it. Credit: the learner is the bottleneck. Weights: the "
            "parameter server or the network is. What is missing to 100 % is packing, sending and waiting for the processor.",
            Query("herd:actor_env_step:ratio_rate1m{SCOPE}", "steps environments"),
            Query("herd:actor_inference:ratio_rate1m{SCOPE}", "policy"),
            Query("herd:actor_blocked:ratio_rate1m{SCOPE}", "waits for credit"),
            Query("herd:actor_weights_wait:ratio_rate1m{SCOPE}", "waits for weights"),
            stacked=True,
        ),
        Panel(
            title="Frames per second of an actor",
            description="Quantiles over all actors, five minutes. A wide gap: some run on slower or busier nodes.",
            queries=(
                Query("herd:actor_rate_env_frames:p95_5m{SCOPE}", "fast (95 %)"),
                Query("herd:actor_rate_env_frames:p50_5m{SCOPE}", "middle"),
                Query("herd:actor_rate_env_frames:p05_5m{SCOPE}", "slow (5 %)"),
            ),
        ),
        Panel(
            title="Slowest actors",
            description="The five that play fewest env frames per second now; the first names for a look at nodes and logs.",
            queries=(Query("sort(bottomk(5, rate(herd_actor_env_frames_total{SCOPE}[5m])))", "{{pod}}"),),
            kind="bars",
            base="blue",
        ),
        Panel(
            title="Actors",
            description="Those that Prometheus knows of, those that answer, and connections that shards count as alive: an actor may "
            "hold several. Known above answering: pods start, hang or die.",
            queries=(
                Query('herd:processes:count{SCOPE, component="actor"}', "known"),
                Query('herd:processes_up:sum{SCOPE, component="actor"}', "answer"),
                Query("sum(herd_learner_connected_actors{SCOPE})", "connected to shards"),
            ),
            decimals=0,
        ),
        Panel(
            title="Credit and unacknowledged unrolls",
            description="Over all actors. Credit at 0: they wait for the learner. Unacknowledged rising: its answers do not come.",
            queries=(
                Query("herd:actor_credit_unrolls:sum{SCOPE}", "credit left"),
                Query("herd:actor_unacknowledged_unrolls:sum{SCOPE}", "not acknowledged"),
            ),
        ),
        Panel(
            title="Unrolls per second",
            description="Sent by actors, sent again after a broken connection, and refused by the learner for good. The last two are 0.",
            queries=(
                Query("herd:actor_unrolls_sent:rate5m{SCOPE}", "sent"),
                Query("herd:actor_unrolls_resent:rate5m{SCOPE}", "sent again"),
                Query("herd:actor_unrolls_rejected:rate5m{SCOPE}", "rejected"),
            ),
        ),
        Panel(
            title="Cores in use by actors",
            description="All actors together. Below their requests while nobody waits: the cgroup throttles them.",
            queries=(Query('herd:process_cpu_seconds:rate1m{SCOPE, component="actor"}', "cores"),),
        ),
        Panel(
            title="Memory of actors",
            description="Of the largest actor; flat after the first minutes.",
            queries=(Query('herd:process_resident_memory_bytes:max{SCOPE, component="actor"}', "largest actor"),),
            unit="bytes",
        ),
    ),
)
