"""Parts that not every run has. Their rows are folded, and their panels say which setting adds the part."""

from observability.panels import Panel, Query, Row, quantiles, share

INFERENCE = Row(
    title="Central inference",
    without="no inference service (actor.inference: remote)",
    panels=(
        Panel(
            title="Round trip of an action",
            description="Time from an actor's request to the answer. It costs nothing if it is shorter than a step of half of the actor's "
            "environments.",
            queries=quantiles("herd_actor_inference_round_trip_seconds"),
            unit="s",
            decimals=4,
        ),
        Panel(
            title="Environments in a batch, and wait for it",
            description="Environments: at most inference.batch_size. If batches on a GPU are small, there are too few actors or the "
            "deadline is too short. Wait: from the arrival of a request to the start of its batch.",
            queries=(
                Query(
                    "sum(rate(herd_inference_batch_environments_sum{SCOPE}[5m]))"
                    " / sum(rate(herd_inference_batch_environments_count{SCOPE}[5m]))",
                    "environments (mean)",
                ),
                Query(
                    "1000 * sum(rate(herd_inference_wait_seconds_sum{SCOPE}[5m]))"
                    " / sum(rate(herd_inference_wait_seconds_count{SCOPE}[5m]))",
                    "wait (mean, ms)",
                ),
            ),
        ),
        share(
            "Busy",
            "Share of time that each process computes. Near 100 % it is the bottleneck: use more replicas or a GPU.",
            Query("rate(herd_inference_compute_seconds_total{SCOPE}[$__rate_interval])", "{{pod}}"),
        ),
        Panel(
            title="Requests per second, by outcome",
            description="`repeated`: sent again without an answer; `state_wanted`: for environments whose state the service did not have. "
            "`forgotten`: environments whose state was dropped for others, per hour (inference.max_environments).",
            queries=(
                Query("sum by (outcome) (rate(herd_inference_requests_total{SCOPE}[$__rate_interval]))", "{{outcome}}"),
                Query("sum(increase(herd_inference_evicted_environments_total{SCOPE}[1h]))", "forgotten, last hour"),
            ),
        ),
    ),
)

REPLAY = Row(
    title="Replay",
    without="no shared replay (replay.kind: shared)",
    panels=(
        Panel(
            title="Agent steps in and out",
            description="Agent steps per second of stored episodes and of samples. replay.fraction determines their ratio.",
            queries=(
                Query("sum(rate(herd_replay_inserted_agent_steps_total{SCOPE}[$__rate_interval]))", "in"),
                Query("sum(rate(herd_replay_sampled_agent_steps_total{SCOPE}[$__rate_interval]))", "out"),
            ),
        ),
        share(
            "Replay filled",
            "Stored agent steps as a share of replay.capacity_agent_steps, and memory as a share of replay_service.memory_bytes, by "
            "replica. If memory is full first, it is the limit.",
            Query("herd_replay_agent_steps{SCOPE} / herd_replay_capacity_agent_steps{SCOPE}", "{{pod}} steps"),
            Query("herd_replay_bytes{SCOPE} / herd_replay_max_bytes{SCOPE}", "{{pod}} memory"),
        ),
        Panel(
            title="Episodes per second",
            description="Episodes that were stored, discarded and evicted. `hole`: an unroll was stale or lost; `open`: see the runbook.",
            queries=(
                Query("sum(rate(herd_replay_inserted_episodes_total{SCOPE}[$__rate_interval]))", "stored"),
                Query("sum by (reason) (rate(herd_replay_discarded_episodes_total{SCOPE}[$__rate_interval]))", "discarded: {{reason}}"),
                Query("sum by (reason) (rate(herd_replay_evicted_episodes_total{SCOPE}[$__rate_interval]))", "evicted: {{reason}}"),
            ),
        ),
        Panel(
            title="Age of samples",
            description="Agent steps inserted since a sampled episode was, over five minutes. Normal median: half of the capacity.",
            queries=quantiles("herd_replay_sample_age_agent_steps"),
        ),
        Panel(
            title="Staleness in learners",
            description="Learner updates since the policy that began a replayed unroll of the same agent, over five minutes.",
            queries=quantiles("herd_learner_replay_staleness_updates"),
            width=8,
        ),
        Panel(
            title="Replayed, missing and lost",
            description="Per second: replayed unrolls trained on; batches without replayed unrolls after the timeout; unrolls that never "
            "reached replay (backlog) or came back damaged.",
            queries=(
                Query("sum(rate(herd_learner_unrolls_replayed_total{SCOPE}[$__rate_interval]))", "trained on"),
                Query("sum(rate(herd_learner_replay_timeouts_total{SCOPE}[$__rate_interval]))", "batches without"),
                Query("sum by (reason) (rate(herd_learner_replay_lost_unrolls_total{SCOPE}[$__rate_interval]))", "lost: {{reason}}"),
            ),
            width=8,
        ),
        Panel(
            title="Snapshots",
            description="Age of the oldest snapshot, which is the loss if a process is killed, and failed writes. If the age is far above "
            "replay_service.snapshot_interval_seconds, the disk may be full.",
            queries=(
                Query("max(herd_replay_snapshot_age_seconds{SCOPE})", "age"),
                Query("sum(increase(herd_replay_file_failures_total{SCOPE}[1h]))", "not written, last hour"),
            ),
            unit="s",
            width=8,
        ),
    ),
)

BANDIT = Row(
    title="Bandit",
    without="no bandit (loss.kind: dice)",
    panels=(
        Panel(
            title="Requests and reports per second",
            description="Requests for temperatures by outcome (`new` follows the number of episodes; `repeated` and `late` follow lost "
            "answers), and reported episodes. Only `accepted` ones count. `non_finite`: a return was NaN; `unknown` and "
            "`out_of_range`: an actor has other settings.",
            queries=(
                Query("sum by (outcome) (rate(herd_bandit_requests_total{SCOPE}[$__rate_interval]))", "request {{outcome}}"),
                Query("sum by (outcome) (rate(herd_bandit_reports_total{SCOPE}[$__rate_interval]))", "report {{outcome}}"),
            ),
            width=8,
        ),
        share(
            "Episodes under an old temperature",
            "Share of accepted episodes that were played at the previous temperature because no answer came in time.",
            Query(
                "sum(rate(herd_bandit_reused_temperatures_total{SCOPE}[$__rate_interval]))\n"
                '/ sum(rate(herd_bandit_reports_total{SCOPE, outcome="accepted"}[$__rate_interval]))',
                "reused",
            ),
            steps=((0.2, "orange"),),
            width=8,
        ),
        Panel(
            title="State on disk",
            description="Age of the state on disk, which is the loss if the process is killed, and failed writes. If the age is far above "
            "bandit.snapshot_interval_seconds, the disk may be full.",
            queries=(
                Query("max(herd_bandit_snapshot_age_seconds{SCOPE})", "age"),
                Query("sum by (file) (increase(herd_bandit_file_failures_total{SCOPE}[1h]))", "{{file}} not written, last hour"),
            ),
            unit="s",
            width=8,
        ),
        Panel(
            title="1/tau drawn",
            description="Over five minutes and the chosen tasks. 0 is uniform play; large values are greedy.",
            queries=quantiles("herd_bandit_inverse_temperature", "SCOPE, AGENTS, TASKS"),
            width=12,
        ),
        Panel(
            title="Best tiles",
            description="The five tiles of log(1 + 1/tau) with the highest values, over the chosen agents and tasks.",
            queries=(Query("topk(5, avg by (tile) (herd_bandit_tile_value{SCOPE, AGENTS, TASKS}))", "tile {{tile}}"),),
            kind="bars",
            base="blue",
            low=None,
            decimals=2,
            width=12,
        ),
    ),
)

POPULATION = Row(
    title="Population",
    without="no population (population.strategy: pbt)",
    panels=(
        Panel(
            title="Fitness by member",
            description="Fitness as last reported by each member. If a line is constant, the member's learner does not report.",
            queries=(Query("max by (agent) (herd_population_fitness{SCOPE, AGENTS})", "member {{agent}}"),),
            low=None,
            decimals=2,
            width=8,
        ),
        Panel(
            title="Settings by member",
            description="Numeric settings of each member.",
            queries=(Query("max by (agent, setting) (herd_population_setting{SCOPE, AGENTS})", "{{setting}}, member {{agent}}"),),
            low=None,
            width=8,
        ),
        Panel(
            title="Decisions and frames",
            description="Decisions in the last hour. `copied`: the member copied a better one; `perturbed`: only its settings changed. "
            "Frames: millions of env frames by member; decisions about members with fewer frames come later.",
            queries=(
                Query("sum by (outcome) (increase(herd_population_decisions_total{SCOPE}[1h]))", "{{outcome}}"),
                Query("sum(increase(herd_population_failed_orders_total{SCOPE}[1h]))", "not carried out"),
                Query("max by (agent) (herd:run_env_frames:max{SCOPE, AGENTS}) / 1e6", "M frames, member {{agent}}"),
            ),
            width=8,
        ),
    ),
)

EVALUATION = Row(
    title="Evaluation",
    without="no evaluator, or no evaluation yet (evaluation.interval_seconds)",
    panels=(
        Panel(
            title="Score",
            description="Mean raw return over whole episodes of the last evaluation, by task. If it is below the returns of training, the "
            "environments differ, or there were too few episodes.",
            queries=(Query("max by (agent, task) (herd_evaluator_score{SCOPE, AGENTS, TASKS})", "{{task}}, agent {{agent}}"),),
            low=None,
            width=8,
        ),
        Panel(
            title="Normalised score",
            description="Score over all tasks: human-normalised (1: human) and record-normalised (saber_...). Empty if a task has no "
            "reference scores.",
            queries=(
                Query("max by (agent, statistic) (herd_evaluator_normalised_score{SCOPE, AGENTS})", "{{statistic}}, agent {{agent}}"),
            ),
            no_value="no evaluation yet, or a task without reference scores",
            unit="percentunit",
            low=None,
            width=8,
        ),
        Panel(
            title="Progress of evaluation",
            description="Updates by which the last evaluated version is behind the learner, evaluations per hour, and points that could "
            "not be written. If evaluations take longer than evaluation.interval_seconds, they follow each other without a break.",
            queries=(
                Query(
                    'max by (agent) (herd_weights_updates{SCOPE, AGENTS, component="learner"})'
                    " - max by (agent) (herd_evaluator_evaluated_updates{SCOPE, AGENTS})",
                    "updates behind, agent {{agent}}",
                ),
                Query("3600 * sum(rate(herd_evaluator_evaluations_total{SCOPE}[1h]))", "evaluations/h"),
                Query("3600 * sum(rate(herd_evaluator_file_failures_total{SCOPE}[1h]))", "points lost/h"),
            ),
            width=8,
        ),
    ),
)

ROWS = (INFERENCE, REPLAY, BANDIT, POPULATION, EVALUATION)
