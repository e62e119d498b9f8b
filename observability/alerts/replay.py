"""Whether shared replay receives the episodes. Runs without it have none of these series, and none of these alerts."""

from observability.rules import Alert

ALERTS = (
    Alert(
        name="HerdReplaySilent",
        # A learner trains but sends no requests, or a scraped replica does not export these series.
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
        description="Unrolls of these episodes are missing, usually because they were stale. Replay then contains fewer games than "
        "are played, and mostly short ones.",
    ),
    Alert(
        name="HerdReplayShortOfMemory",
        expression="""
            sum by (RUN) (rate(herd_replay_evicted_episodes_total{SCOPE, reason="memory"}[30m])) > 0
            and on (RUN) sum by (RUN) (herd_replay_agent_steps{SCOPE}) < 0.9 * sum by (RUN) (herd_replay_capacity_agent_steps{SCOPE})
            """,
        lasting="30m",
        severity="info",
        summary="Replay of {{ $labels.release }} is full before it contains replay.capacity_agent_steps.",
        description="The oldest episodes are dropped because of replay_service.memory_bytes, so the run replays fewer "
        "episodes than its settings say.",
    ),
)
