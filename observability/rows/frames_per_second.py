"""The first row: speed, progress, returns and the bottleneck."""

from observability.panels import Panel, Query, Row

ROW = Row(
    title="Frames per second",
    panels=(
        Panel(
            title="Frames per second",
            description="Env frames that all learner shards trained on for the first time over the last minute. Red: none.",
            queries=(Query("herd:env_frames:rate1m{SCOPE}", "env frames/s"),),
            kind="figure",
            base="red",
            steps=((1.0, "green"),),
            width=7,
            height=9,
        ),
        Panel(
            title="Frames per second over time",
            description="Env frames trained on, env frames played by actors, and the trend over an hour. If more is played than trained "
            "on, frames are dropped or wait in the queue. The target is the dashboard variable; it is not drawn if it is 0.",
            queries=(
                Query("herd:env_frames:rate1m{SCOPE}", "trained on (1 min)"),
                Query("herd:env_frames:rate1h{SCOPE}", "trend (1 h)"),
                Query("herd:actor_env_frames:rate1m{SCOPE}", "played by actors (1 min)"),
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
                Query("herd:learner_starved:ratio_rate1m{SCOPE}", "learner waits for batches"),
                Query("herd:actor_blocked:ratio_rate1m{SCOPE}", "actors wait for credit"),
                Query("herd:actor_weights_wait:ratio_rate1m{SCOPE}", "actors wait for weights"),
                Query("herd:learner_queue:ratio{SCOPE}", "queue filled"),
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
            description="Env frames trained on since the run began, including earlier sessions.",
            queries=(Query("herd:run_env_frames:max{SCOPE}", "env frames"),),
            kind="figure",
            base="blue",
            width=4,
            height=4,
        ),
        Panel(
            title="Of the target",
            description="Frames per second as a share of the variable `target`. Empty if it is 0.",
            queries=(Query("herd:env_frames:rate1m{SCOPE} / on () group_left () (vector($target) > 0)", "of the target"),),
            kind="figure",
            unit="percentunit",
            base="red",
            steps=((0.5, "yellow"), (0.9, "green")),
            width=3,
            height=4,
        ),
        Panel(
            title="Return",
            description="Mean raw return of the last 100 games, averaged over the chosen tasks.",
            queries=(Query('avg(herd:episode_return:mean_100{SCOPE, task=~"$task"})', "return"),),
            kind="figure",
            low=None,
            base="blue",
            decimals=2,
            width=3,
            height=4,
        ),
        Panel(
            title="Policy lag",
            description="Learner updates between the policy that began an unroll and the one that trained on it: 95th percentile. Normal: "
            "below 16.",
            queries=(Query("herd:policy_lag_updates:p95_5m{SCOPE}", "updates"),),
            kind="figure",
            decimals=1,
            steps=((16.0, "yellow"), (32.0, "red")),
            width=3,
            height=4,
        ),
        Panel(
            title="Updates per second",
            description="Optimizer steps per second over the last minute.",
            queries=(Query("herd:learner_updates:rate1m{SCOPE}", "updates/s"),),
            kind="figure",
            base="blue",
            decimals=2,
            width=3,
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
            width=5,
            height=4,
        ),
        Panel(
            title="Alerts",
            description="Active alerts of this run. The runbook has a section for each.",
            queries=(Query('count(ALERTS{SCOPE, alertstate="firing"}) or vector(0)', "firing"),),
            kind="figure",
            decimals=0,
            steps=((1.0, "red"),),
            width=3,
            height=4,
        ),
    ),
)
