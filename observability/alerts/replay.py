"""Whether shared replay gets what is played. Runs without it have none of these series, and none of these alerts."""

from observability.rules import Alert

ALERTS = (
    Alert(
        name="HerdReplaySilent",
        # Where a learner trains and asks for nothing; or where a replica is scraped that exports nothing of the kind.
        expression="""
            (
              sum by (RUN) (rate(herd_replay_requests_total{SCOPE}[10m])) == 0
              and on (RUN) sum by (RUN) (rate(herd_learner_env_frames_total{SCOPE}[10m])) > 0
            )
            or
            (group by (RUN) (up{SCOPE, component="replay"}) unless on (RUN) sum by (RUN) (rate(herd_replay_requests_total{SCOPE}[10m])))
            """,
        lasting="5m",  # with the window: a quarter of an hour
        severity="warning",
        summary="No learner of {{ $labels.release }} sends requests to replay.",
        description="Batches contain online unrolls only. Replay is down, or learners cannot reach it.",
    ),
    Alert(
        name="HerdReplayDiscarding",
        expression="""
            sum by (RUN) (rate(herd_replay_discarded_episodes_total{SCOPE}[30m]))
              / (
                sum by (RUN) (rate(herd_replay_discarded_episodes_total{SCOPE}[30m]))
                + sum by (RUN) (rate(herd_replay_inserted_episodes_total{SCOPE}[30m]))
              )
            > 0.2
            """,
        lasting="15m",  # a restart of a learner costs every environment one game
        severity="warning",
        summary="Replay of {{ $labels.release }} discards {{ $value | humanizePercentage }} of the episodes.",
        description="Unrolls of them are missing, most often since they were stale: replay holds less than is played, and the short "
        "games of it.",
    ),
    Alert(
        name="HerdReplayShortOfMemory",
        expression="""
            sum by (RUN) (rate(herd_replay_evicted_episodes_total{SCOPE, reason="memory"}[30m])) > 0
            and on (RUN) sum by (RUN) (herd_replay_agent_steps{SCOPE}) < 0.9 * sum by (RUN) (herd_replay_capacity_agent_steps{SCOPE})
            """,
        lasting="30m",
        severity="info",
        summary="Replay of {{ $labels.release }} is full before it holds replay.capacity_agent_steps.",
        description="The oldest episodes are dropped because of replay_service.memory_bytes, so the run replays fewer "
        "episodes than its settings say.",
    ),
)
