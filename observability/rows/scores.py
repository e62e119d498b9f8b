"""What it is all for: returns, and the numbers of the update that researchers look at."""

from observability.panels import Panel, Query, Row

ROW = Row(
    title="Scores",
    panels=(
        Panel(
            title="Return",
            description="Mean raw return of the last 100 games, by task. Several shards: the mean of theirs.",
            queries=(Query('herd:episode_return:mean_100{SCOPE, task=~"$task"}', "{{task}}"),),
            low=None,
            width=12,
            height=9,
        ),
        Panel(
            title="Return now",
            description="The same, newest value.",
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
            description="Mean agent steps of the last 100 games, by task. At its limit: games end by the clock, not by their rules.",
            queries=(Query('herd:episode_length:mean_100{SCOPE, task=~"$task"}', "{{task}}"),),
            height=9,
        ),
        Panel(
            title="Games finished per second",
            description="By task. One at 0 while its frames go on: its games do not end.",
            queries=(Query('herd:episodes:rate5m{SCOPE, task=~"$task"}', "{{task}}"),),
        ),
        Panel(
            title="Frames per second, by task",
            description="Trained on for the first time.",
            queries=(Query('herd:task_env_frames:rate5m{SCOPE, task=~"$task"}', "{{task}}"),),
            stacked=True,
        ),
        Panel(
            title="Evenness of tasks",
            description="Frames of the least and the most trained task over five minutes, against the mean of all. 1: tasks are even.",
            queries=(
                Query("min(herd:task_env_frames:rate5m{SCOPE}) / avg(herd:task_env_frames:rate5m{SCOPE})", "least"),
                Query("max(herd:task_env_frames:rate5m{SCOPE}) / avg(herd:task_env_frames:rate5m{SCOPE})", "most"),
            ),
        ),
        Panel(
            title="Human-normalised",
            description="Mean over tasks of (return - random) / (human - random), each at most 1: the fitness of IMPALA's Table G.1. Empty "
            "before each task with human scores has finished a game.",
            queries=(Query("max(herd_learner_human_normalised_mean_capped{SCOPE})", "mean capped"),),
            unit="percentunit",
            low=None,
        ),
        Panel(
            title="Entropy",
            description="Of the trained policy, nats. log(number of actions): nothing learned yet; 0: the policy has collapsed.",
            queries=(Query('avg(herd_learner_metric{SCOPE, name="entropy"})', "entropy"),),
            width=8,
        ),
        Panel(
            title="Loss, by term",
            description="Of the last update, each with its cost: they add up to total. `value` dwarfing the others: rewards are not "
            "shaped.",
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
            description="Of one batch in some hundred (`learner.health_interval_updates`). Values: 1 perfect, 0 no better than a constant. "
            "Samples: the share that importance ratios leave.",
            queries=(
                Query("avg(herd_learner_explained_variance_ratio{SCOPE})", "explained variance"),
                Query("avg(herd_learner_effective_sample_size_ratio{SCOPE})", "effective sample size"),
            ),
            low=None,
        ),
        Panel(
            title="Step of an update",
            description="KL(policy before || after), nats, and the share of updates whose gradient was clipped.",
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
            description="Share of a layer's units or filters that gave 0 on all of a batch. The first layer's never come back.",
            queries=(Query("max by (layer) (herd_learner_layer_dead_ratio{SCOPE})", "layer {{layer}}"),),
        ),
        Panel(
            title="Units always on, by layer",
            description="Share that gave more than 0 on all of a batch: these are linear.",
            queries=(Query("max by (layer) (herd_learner_layer_always_on_ratio{SCOPE})", "layer {{layer}}"),),
        ),
        Panel(
            title="Importance ratio",
            description="Mean of the last update, clipped at rho-bar. Far below 1: far off-policy.",
            queries=(Query('avg(herd_learner_metric{SCOPE, name="mean_rho"})', "mean rho"),),
            width=12,
        ),
        Panel(
            title="Learning rate",
            description="Of the last update.",
            queries=(Query("max(herd_learner_learning_rate{SCOPE})", "learning rate"),),
            width=12,
        ),
        Panel(
            title="What the loss measures",
            description="Every number that the loss names, of the last update and without its cost. A loss of your own appears here with "
            "its names.",
            queries=(Query("avg by (name) (herd_learner_metric{SCOPE})", "{{name}}"),),
            low=None,
            width=24,
        ),
    ),
)
