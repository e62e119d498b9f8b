"""Returns, and the numbers of updates that matter to researchers."""

from observability.panels import Panel, Query, Row

ROW = Row(
    title="Scores",
    panels=(
        Panel(
            title="Return",
            description="Mean raw return of the last 100 games, by task. With several shards: the mean over shards.",
            queries=(Query('herd:episode_return:mean_100{SCOPE, task=~"$task"}', "{{task}}"),),
            low=None,
            width=12,
            height=9,
        ),
        Panel(
            title="Return now",
            description="Newest value of the mean return, by task.",
            queries=(Query('sort_desc(herd:episode_return:mean_100{SCOPE, task=~"$task"})', "{{task}}"),),
            kind="bars",
            low=None,
            base="blue",
            decimals=2,
            width=6,
            height=9,
        ),
        Panel(
            title="Length of games",
            description="Mean agent steps of the last 100 games, by task. At the limit, games end by the time limit and not by their "
            "rules.",
            queries=(Query('herd:episode_length:mean_100{SCOPE, task=~"$task"}', "{{task}}"),),
            height=9,
        ),
        Panel(
            title="Games finished per second",
            description="Finished games per second, by task. If a task has frames but no finished games, its games do not end.",
            queries=(Query('herd:episodes:rate5m{SCOPE, task=~"$task"}', "{{task}}"),),
        ),
        Panel(
            title="Frames per second, by task",
            description="Env frames trained on for the first time, per second and task.",
            queries=(Query('herd:task_env_frames:rate5m{SCOPE, task=~"$task"}', "{{task}}"),),
            stacked=True,
        ),
        Panel(
            title="Evenness of tasks",
            description="Frames of the least and the most trained task over five minutes, relative to the mean. 1: all tasks are equal.",
            queries=(
                Query("min(herd:task_env_frames:rate5m{SCOPE}) / avg(herd:task_env_frames:rate5m{SCOPE})", "least"),
                Query("max(herd:task_env_frames:rate5m{SCOPE}) / avg(herd:task_env_frames:rate5m{SCOPE})", "most"),
            ),
        ),
        Panel(
            title="Human-normalised",
            description="Mean over tasks of (return - random) / (human - random), each at most 1: the fitness of IMPALA's Table G.1. "
            "Empty until each task with human scores has finished a game.",
            queries=(Query("max(herd_learner_human_normalised_mean_capped{SCOPE})", "mean capped"),),
            unit="percentunit",
            low=None,
        ),
        Panel(
            title="Entropy",
            description="Entropy of the trained policy in nats. At log(number of actions) nothing is learned yet; at 0 the policy is "
            "deterministic.",
            queries=(Query('avg(herd_learner_metric{SCOPE, name="entropy"})', "entropy"),),
            width=8,
        ),
        Panel(
            title="Loss, by term",
            description="Loss terms of the last update, each times its cost. They add up to total. If `value` is far larger than the "
            "others, rewards are not shaped.",
            queries=(Query("avg by (term) (herd_learner_loss{SCOPE})", "{{term}}"),),
            low=None,
            width=8,
        ),
        Panel(
            title="Gradient norm",
            description="Global norm of the last gradient before clipping.",
            queries=(Query("max(herd_learner_gradient_norm{SCOPE})", "norm"),),
            width=8,
        ),
        Panel(
            title="Explained variance and effective sample size",
            description="Measured on one batch in several hundred (`learner.health_interval_updates`). Explained variance: 1 is perfect, "
            "0 is no better than a constant. Effective samples: the share that remains after importance sampling.",
            queries=(
                Query("avg(herd_learner_explained_variance_ratio{SCOPE})", "explained variance"),
                Query("avg(herd_learner_effective_sample_size_ratio{SCOPE})", "effective sample size"),
            ),
            low=None,
        ),
        Panel(
            title="Step of an update",
            description="KL divergence between the policies before and after an update, in nats, and the share of updates with a clipped "
            "gradient.",
            queries=(
                Query("avg(herd_learner_update_kl_nats{SCOPE})", "KL, nats"),
                Query(
                    "max(rate(herd_learner_updates_clipped_total{SCOPE}[5m])) / max(rate(herd_learner_updates_total{SCOPE}[5m]))",
                    "share clipped",
                ),
            ),
        ),
        Panel(
            title="Dead units, by layer",
            description="Share of a layer's units or filters that were 0 on a whole batch. Those of the first layer do not recover.",
            queries=(Query("max by (layer) (herd_learner_layer_dead_ratio{SCOPE})", "layer {{layer}}"),),
        ),
        Panel(
            title="Units always on, by layer",
            description="Share of a layer's units or filters that were above 0 on a whole batch, which makes them linear.",
            queries=(Query("max by (layer) (herd_learner_layer_always_on_ratio{SCOPE})", "layer {{layer}}"),),
        ),
        Panel(
            title="Importance ratio",
            description="Mean importance ratio of the last update, clipped at rho-bar. Far below 1, the data is far off-policy.",
            queries=(Query('avg(herd_learner_metric{SCOPE, name="mean_rho"})', "mean rho"),),
            width=12,
        ),
        Panel(
            title="Learning rate",
            description="Learning rate of the last update.",
            queries=(Query("max(herd_learner_learning_rate{SCOPE})", "learning rate"),),
            width=12,
        ),
        Panel(
            title="What the loss measures",
            description="All numbers that the loss returned in the last update, without their costs. Those of your own loss appear here "
            "too.",
            queries=(Query("avg by (name) (herd_learner_metric{SCOPE})", "{{name}}"),),
            low=None,
            width=24,
        ),
    ),
)
