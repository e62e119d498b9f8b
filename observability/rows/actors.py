"""How actors spend their time, and whether some are slower. There may be thousands, so there are only sums and quantiles."""

from observability.panels import Panel, Query, Row, share

ROW = Row(
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
                Query("herd:actor_rate_env_frames:p50_5m{SCOPE}", "middle"),
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
            decimals=0,
        ),
        Panel(
            title="Credit and unacknowledged unrolls",
            description="Sums over all actors. If credit is 0, actors wait for the learner. If unacknowledged unrolls increase, the "
            "learner's answers do not arrive.",
            queries=(
                Query("herd:actor_credit_unrolls:sum{SCOPE}", "credit left"),
                Query("herd:actor_unacknowledged_unrolls:sum{SCOPE}", "not acknowledged"),
            ),
        ),
        Panel(
            title="Unrolls per second",
            description="Unrolls sent by actors, sent again after a broken connection, and refused by the learner. Normal: the last two "
            "are 0.",
            queries=(
                Query("herd:actor_unrolls_sent:rate5m{SCOPE}", "sent"),
                Query("herd:actor_unrolls_resent:rate5m{SCOPE}", "sent again"),
                Query("herd:actor_unrolls_rejected:rate5m{SCOPE}", "rejected"),
            ),
        ),
        Panel(
            title="Cores in use by actors",
            description="Sum over all actors. If it is below their requests although they do not wait, the cgroup throttles them.",
            queries=(Query('herd:process_cpu_seconds:rate1m{SCOPE, component="actor"}', "cores"),),
        ),
        Panel(
            title="Memory of actors",
            description="Memory of the largest actor. Normal: constant after the first minutes.",
            queries=(Query('herd:process_resident_memory_bytes:max{SCOPE, component="actor"}', "largest actor"),),
            unit="bytes",
        ),
    ),
)
