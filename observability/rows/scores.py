"""Returns, and the numbers of updates that matter to researchers."""

from observability.panels import Panel, Query, Row, share

SCORES = Row(
    title="Scores",
    panels=(
        Panel(
            title="Return",
            description="Mean raw return of the last 100 episodes, by agent and task. With several shards: the mean over shards.",
            queries=(Query("herd:episode_return:mean_100{SCOPE, AGENTS, TASKS}", "{{task}}, agent {{agent}}"),),
            low=None,
            width=16,
            height=9,
        ),
        Panel(
            title="Length of episodes",
            description="Mean agent steps of the last 100 episodes, by task. At the limit, episodes end by the time limit and not by their "
            "rules.",
            queries=(
                Query(
                    "avg by (task) (herd_learner_episode_length_mean_100{SCOPE, AGENTS, TASKS}"
                    " and herd_learner_episodes_total{SCOPE, AGENTS, TASKS} > 0)",
                    "{{task}}",
                ),
            ),
            height=9,
            width=8,
        ),
        Panel(
            title="Frames per second, by task",
            description="Env frames trained on for the first time, per second and task. All tasks should get about the same number.",
            queries=(Query("sum by (task) (herd:task_env_frames:rate5m{SCOPE, AGENTS, TASKS})", "{{task}}"),),
            stacked=True,
        ),
        Panel(
            title="Human-normalised return",
            description="Mean over tasks of (return - random) / (human - random), each at most 1: the fitness of IMPALA's Table G.1. "
            "Needs an episode of each task.",
            queries=(Query("max by (agent) (herd_learner_human_normalised_mean_capped{SCOPE, AGENTS})", "agent {{agent}}"),),
            unit="percentunit",
            low=None,
            no_value="no human scores, or no episode yet",
        ),
        Panel(
            title="Entropy",
            description="Entropy of the trained policy in nats. At log(number of actions) nothing is learned yet; at 0 the policy is "
            "deterministic.",
            queries=(Query('avg by (agent) (herd_learner_metric{SCOPE, AGENTS, name="entropy"})', "agent {{agent}}"),),
        ),
        Panel(
            title="Loss, by term",
            description="Loss terms of the last update, each times its cost. If `value` is far larger than the others, rewards are not "
            "scaled.",
            queries=(Query("avg by (term) (herd_learner_loss{SCOPE, AGENTS})", "{{term}}"),),
            low=None,
        ),
        Panel(
            title="Gradient norm",
            description="Global norm of the last gradient before clipping.",
            queries=(Query("max by (agent) (herd_learner_gradient_norm{SCOPE, AGENTS})", "agent {{agent}}"),),
        ),
        Panel(
            title="Explained variance, effective samples",
            description="Explained variance of the values: 1 is perfect, 0 is no better than a constant. Effective samples: the share that "
            "remains after importance sampling. Both are measured on one batch in several hundred "
            "(`learner.health_interval_updates`). Importance ratio: mean of the last update, clipped at rho-bar; far below 1, "
            "the data is far off-policy.",
            queries=(
                Query("avg(herd_learner_explained_variance_ratio{SCOPE, AGENTS})", "explained variance"),
                Query("avg(herd_learner_effective_sample_size_ratio{SCOPE, AGENTS})", "effective samples"),
                Query('avg(herd_learner_metric{SCOPE, AGENTS, name="mean_rho"})', "mean importance ratio"),
            ),
            low=None,
        ),
        Panel(
            title="Size of an update",
            description="KL divergence between the policies before and after an update, in nats.",
            queries=(Query("max by (agent) (herd_learner_update_kl_nats{SCOPE, AGENTS})", "agent {{agent}}"),),
        ),
        share(
            "Dead and always-on units, by layer",
            "Share of a layer's units or filters that were 0 on a whole batch, and of those that were above 0 on all of it, which "
            "makes them linear. Dead units of the first layer do not recover.",
            Query("max by (layer) (herd_learner_layer_dead_ratio{SCOPE, AGENTS})", "layer {{layer}} dead"),
            Query("max by (layer) (herd_learner_layer_always_on_ratio{SCOPE, AGENTS})", "layer {{layer}} always on"),
            width=6,
        ),
        Panel(
            title="What the loss measures",
            description="All numbers that the loss returned in the last update, without their costs. Those of your own loss appear here "
            "too.",
            queries=(Query("avg by (name) (herd_learner_metric{SCOPE, AGENTS})", "{{name}}"),),
            low=None,
            width=24,
        ),
    ),
)
