"""The first row: how fast, how far, how well, and who waits for whom."""

from observability.panels import Panel, Query, Row

ROW = Row(
    title="Frames per second",
    panels=(
        Panel(
            title="Frames per second",
            description="Env frames that the learner trains on for the first time, all shards together, over the last minute. "
            "Red: none.",
            queries=(Query("herd:env_frames:rate1m{SCOPE}", "env frames/s"),),
            kind="figure",
            base="red",
            steps=((1.0, "green"),),
            width=7,
            height=9,
        ),
        Panel(
            title="Frames per second over time",
            description="Trained on, played by actors, and the trend of an hour. Played above trained on: frames are dropped or wait in the queue. "
            "The target is the variable above; it is not drawn where that is 0.",
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
            title="Who waits for whom",
            description="Shares of time over the last minute. The longest bar is the bottleneck. Learner waits for batches: the actors are. "
            "Actors wait for credit: the learner is. Actors wait for weights: the parameter server or the network is. "
            "All short: everybody works, and more of everything makes it faster.",
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
            description="Env frames trained on since the run began, restarts of the learner included.",
            queries=(Query("herd:run_env_frames:max{SCOPE}", "env frames"),),
            kind="figure",
            base="blue",
            width=4,
            height=4,
        ),
        Panel(
            title="Of the target",
            description="Frames per second against the variable `target`; empty where that is 0.",
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
            description="Learner updates between the policy that began an unroll and the one that trained on it: one unroll in twenty is older. "
            "Below 16 is ordinary.",
            queries=(Query("herd:policy_lag_updates:p95_5m{SCOPE}", "updates"),),
            kind="figure",
            decimals=1,
            steps=((16.0, "yellow"), (32.0, "red")),
            width=3,
            height=4,
        ),
        Panel(
            title="Updates per second",
            description="Steps of the optimizer, over the last minute.",
            queries=(Query("herd:learner_updates:rate1m{SCOPE}", "updates/s"),),
            kind="figure",
            base="blue",
            decimals=2,
            width=3,
            height=4,
        ),
        Panel(
            title="Processes that answer",
            description="By component, as Prometheus sees them.",
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
            description="Alerts of this run that fire now. Each has its section in the runbook, under its name.",
            queries=(Query('count(ALERTS{SCOPE, alertstate="firing"}) or vector(0)', "firing"),),
            kind="figure",
            decimals=0,
            steps=((1.0, "red"),),
            width=3,
            height=4,
        ),
    ),
)
