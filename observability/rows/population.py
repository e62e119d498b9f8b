"""Population based training: how members fare, and what is decided for them. Empty where the run has no population."""

from observability.panels import Panel, Query, Row

ROW = Row(
    title="Population",
    panels=(
        Panel(
            title="Fitness by member",
            description="As each member reported last. A line that stands still: its learner is gone, and keeps its place.",
            queries=(Query("max by (agent) (herd_population_fitness{SCOPE})", "member {{agent}}"),),
            low=None,
            decimals=2,
        ),
        Panel(
            title="Settings by member",
            description="The numbers that members have of their own.",
            queries=(Query("max by (agent, setting) (herd_population_setting{SCOPE})", "{{setting}} {{agent}}"),),
            low=None,
            decimals=2,
        ),
        Panel(
            title="Decisions",
            description="In the last hour. `copied`: a better member's weights; `perturbed`: other settings alone.",
            queries=(
                Query("sum by (outcome) (increase(herd_population_decisions_total{SCOPE}[1h]))", "{{outcome}}"),
                Query("sum(increase(herd_population_failed_orders_total{SCOPE}[1h]))", "not carried out"),
            ),
        ),
        Panel(
            title="Frames by member",
            description="Env frames that each has trained on. Members far behind the others decide later.",
            queries=(Query("max by (agent) (herd_population_env_frames{SCOPE})", "member {{agent}}"),),
        ),
    ),
)
