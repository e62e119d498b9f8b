"""Population based training: the members' fitness and the decisions about them. Empty if the run has no population."""

from observability.panels import Panel, Query, Row

ROW = Row(
    title="Population",
    panels=(
        Panel(
            title="Fitness by member",
            description="Fitness as last reported by each member. If a line is constant, the member's learner does not report.",
            queries=(Query("max by (agent) (herd_population_fitness{SCOPE})", "member {{agent}}"),),
            low=None,
            decimals=2,
        ),
        Panel(
            title="Settings by member",
            description="Numeric settings of each member.",
            queries=(Query("max by (agent, setting) (herd_population_setting{SCOPE})", "{{setting}} {{agent}}"),),
            low=None,
            decimals=2,
        ),
        Panel(
            title="Decisions",
            description="Decisions in the last hour. `copied`: the member copied a better one; `perturbed`: only its settings changed.",
            queries=(
                Query("sum by (outcome) (increase(herd_population_decisions_total{SCOPE}[1h]))", "{{outcome}}"),
                Query("sum(increase(herd_population_failed_orders_total{SCOPE}[1h]))", "not carried out"),
            ),
        ),
        Panel(
            title="Frames by member",
            description="Env frames that each member has trained on. Decisions about members with fewer frames come later.",
            queries=(Query("max by (agent) (herd_population_env_frames{SCOPE})", "member {{agent}}"),),
        ),
    ),
)
