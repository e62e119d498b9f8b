"""For every alert: what makes it fire, and what comes close and does not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.observability.healthy_run import ACTORS, BANDIT, PODS, REPLICA, ROOT, RUN, SHARDS, everywhere, gone, grows, key, stays

LONG = 60.0
"""Minutes of most cases: longer than any alert must hold, but for a few."""
Labels = Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Case:
    """A healthy run with ``changes`` (None takes a series away), looked at after ``minutes``."""

    alert: str
    when: str
    changes: Mapping[str, str | None]
    fires: tuple[Labels, ...] = ()
    """Labels of the alerts that fire, but for name and severity; none: it is quiet."""
    minutes: float = LONG
    without: tuple[str, ...] = field(default=())
    """Names of metrics that no process exports."""


def of(component: str, **labels: str) -> Labels:
    return {**RUN, "component": component, **labels}


def on(pod: str) -> Labels:
    return {**RUN, "component": PODS[pod], "pod": pod}


def dies_every(minutes: float, total: float) -> str:
    """Processor seconds of a process that begins anew again and again."""
    return " ".join([grows(0.9, minutes, start=2)] * round(total / minutes))


def no_pods(component: str) -> dict[str, None]:
    return gone("up", component)


IS_OVER = everywhere("herd_learner_run_is_over", "learner", stays(1, LONG))
"""The run has reached its stop, and is still installed."""

PROCESSES = (
    Case(
        alert="HerdNothingScraped",
        when="no learner is a target",
        changes=no_pods("learner"),
        # A shared Prometheus cannot know which release is meant; the chart's rules name theirs.
        fires=({"component": "learner"},),
    ),
    Case(alert="HerdNothingScraped", when="learners are down", changes=everywhere("up", "learner", stays(0, LONG))),
    Case(alert="HerdComponentMissing", when="no actor is a target", changes=no_pods("actor"), fires=(of("actor"),)),
    Case(alert="HerdComponentMissing", when="no root is a target", changes=no_pods("paramserver"), fires=(of("paramserver"),)),
    Case(
        alert="HerdComponentMissing",
        when="learners and actors are gone",
        changes=no_pods("learner") | no_pods("actor"),
        fires=(of("learner"), of("actor")),
    ),
    Case(
        alert="HerdComponentMissing", when="there is no bandit and no replica", changes=no_pods("bandit") | no_pods("paramserver-replica")
    ),
    Case(alert="HerdComponentMissing", when="actors are missing for nine minutes", changes=no_pods("actor"), minutes=9),
    Case(alert="HerdProcessDown", when="a shard does not answer", changes={key("up", SHARDS[1]): stays(0, LONG)}, fires=(on(SHARDS[1]),)),
    Case(alert="HerdProcessDown", when="the bandit does not answer", changes={key("up", BANDIT): stays(0, LONG)}, fires=(on(BANDIT),)),
    Case(alert="HerdProcessDown", when="for four minutes", changes={key("up", ROOT): stays(0, 4)}, minutes=4),
    Case(alert="HerdProcessDown", when="an actor does not answer", changes={key("up", ACTORS[0]): stays(0, LONG)}),
    Case(
        alert="HerdActorsDown",
        when="three of ten do not answer",
        changes={key("up", actor): stays(0, LONG) for actor in ACTORS[:3]},
        fires=(of("actor"),),
    ),
    Case(alert="HerdActorsDown", when="two of ten do not answer", changes={key("up", actor): stays(0, LONG) for actor in ACTORS[:2]}),
    Case(
        alert="HerdCrashLoop",
        when="a shard restarts every three minutes",
        changes={key("herd_process_cpu_seconds_total", SHARDS[0]): dies_every(3, LONG)},
        fires=(of("learner"),),
    ),
    Case(
        alert="HerdCrashLoop",
        when="a server dies before its processor time says so",
        changes={key("up", ROOT): " ".join(["1 1 0"] * 40)},
        fires=(of("paramserver"),),
    ),
    Case(
        alert="HerdCrashLoop",
        when="a shard restarts every ten minutes",
        changes={key("herd_process_cpu_seconds_total", SHARDS[0]): dies_every(10, LONG)},
    ),
    Case(
        alert="HerdProcessHangs",
        when="two actors hang",
        changes={key("herd_process_heartbeat_age_seconds", actor): stays(90, LONG) for actor in ACTORS[:2]},
        fires=(of("actor"),),
    ),
    Case(
        alert="HerdProcessHangs",
        when="an update takes most of a minute",
        changes=everywhere("herd_process_heartbeat_age_seconds", "learner", stays(55, LONG)),
    ),
    Case(
        alert="HerdMemoryGrows",
        when="an actor doubles in six hours",
        changes={key("herd_process_resident_memory_bytes", ACTORS[3]): grows(1e9 / 21600, 600, start=5e8)},
        minutes=450,
        fires=(of("actor"),),
    ),
    Case(
        alert="HerdMemoryGrows",
        when="a learner fills its replay in the first hour",
        changes={key("herd_process_resident_memory_bytes", SHARDS[0]): f"{grows(1e9 / 3600, 60, start=2e9)} {stays(3e9, 400)}"},
        minutes=450,
    ),
)

PROGRESS = (
    Case(
        alert="HerdNoProgress",
        when="the learner stands still",
        changes=everywhere("herd_learner_env_frames_total", "learner", stays(5000, LONG)),
        fires=(RUN,),
    ),
    Case(
        alert="HerdNoProgress",
        when="the learner exports nothing",
        changes=gone("herd_learner_env_frames_total", "learner"),
        fires=(RUN,),
    ),
    Case(
        alert="HerdNoProgress",
        when="there is no learner",
        changes=no_pods("learner"),
        without=("herd_learner_env_frames_total",),
        fires=(RUN,),
    ),
    Case(
        alert="HerdNoProgress",
        when="one shard stands still in the account of another",
        changes={key("herd_learner_env_frames_total", SHARDS[1]): stays(0, LONG)},
    ),
    Case(
        alert="HerdNoProgress",
        when="the run is over",
        changes={**everywhere("herd_learner_env_frames_total", "learner", stays(5000, LONG)), **IS_OVER},
    ),
    Case(
        alert="HerdNoProgress",
        when="the run is over, and a shard that was started again has trained on nothing",
        changes={**gone("herd_learner_env_frames_total", "learner"), **IS_OVER},
    ),
    Case(
        alert="HerdNoProgress",
        when="for nine minutes",
        changes=everywhere("herd_learner_env_frames_total", "learner", stays(5000, 9)),
        minutes=9,
    ),
    Case(
        alert="HerdFramesPerSecondFell",
        when="to a quarter",
        changes=everywhere("herd_learner_env_frames_total", "learner", f"{grows(1000, 180)} {grows(250, 30, start=1000 * 180 * 60)}"),
        minutes=205,
        fires=(RUN,),
    ),
    Case(
        alert="HerdFramesPerSecondFell",
        when="to three quarters",
        changes=everywhere("herd_learner_env_frames_total", "learner", f"{grows(1000, 180)} {grows(750, 30, start=1000 * 180 * 60)}"),
        minutes=205,
    ),
    Case(
        alert="HerdLearnerStarved",
        when="it waits 70 % of its time",
        changes=everywhere("herd_learner_starved_seconds_total", "learner", grows(0.7, LONG)),
        fires=(RUN,),
    ),
    Case(
        alert="HerdLearnerStarved",
        when="one of two shards waits 70 % of its time, and the other for it",
        changes={
            key("herd_learner_starved_seconds_total", SHARDS[0]): grows(0.7, LONG),
            key("herd_learner_starved_seconds_total", SHARDS[1]): grows(0, LONG),
        },
        fires=(RUN,),
    ),
    Case(
        alert="HerdLearnerStarved",
        when="for ten minutes",
        changes=everywhere("herd_learner_starved_seconds_total", "learner", grows(0.7, 10)),
        minutes=10,
    ),
    Case(
        alert="HerdLearnerStarved",
        when="the run is over",
        changes={**everywhere("herd_learner_starved_seconds_total", "learner", grows(0.7, LONG)), **IS_OVER},
    ),
    Case(
        alert="HerdLearnerStarved",
        when="40 % of its time",
        changes=everywhere("herd_learner_starved_seconds_total", "learner", grows(0.4, LONG)),
    ),
    Case(
        alert="HerdActorsBlocked",
        when="they wait 80 % of their time for credit",
        changes=everywhere("herd_actor_blocked_seconds_total", "actor", grows(0.8, LONG)),
        fires=(RUN,),
    ),
    Case(
        alert="HerdActorsBlocked",
        when="the run is over, and they wait for ever",
        changes={**everywhere("herd_actor_blocked_seconds_total", "actor", grows(1, LONG)), **IS_OVER},
    ),
    Case(
        alert="HerdActorsBlocked",
        when="one of ten is blocked all the time",
        changes={key("herd_actor_blocked_seconds_total", ACTORS[0]): grows(1, LONG)},
    ),
)

WEIGHTS = (
    Case(
        alert="HerdPolicyLagHigh",
        when="a tenth of the unrolls is dozens of updates old",
        changes=everywhere("herd_learner_policy_lag_updates_bucket", "learner", grows(9, LONG), le="4"),
        fires=(RUN,),
    ),
    Case(
        alert="HerdPolicyLagHigh",
        when="one unroll in fifty is",
        changes=everywhere("herd_learner_policy_lag_updates_bucket", "learner", grows(9.8, LONG), le="4"),
    ),
    Case(
        alert="HerdPolicyLagHigh",
        when="nothing is trained on",
        changes={
            series: stays(5, LONG)
            for le in ("2", "4", "64", "+Inf")
            for series in everywhere("herd_learner_policy_lag_updates_bucket", "learner", "", le=le)
        },
    ),
    Case(
        alert="HerdWeightsStale",
        when="two of ten actors have old ones",
        changes={key("herd_weights_age_seconds", actor): grows(1, LONG) for actor in ACTORS[:2]},
        fires=(RUN,),
    ),
    Case(
        alert="HerdWeightsStale",
        when="two of ten actors never had any",
        changes={key("herd_weights_age_seconds", actor): stays("NaN", LONG) for actor in ACTORS[:2]},
        fires=(RUN,),
    ),
    Case(
        alert="HerdWeightsStale",
        when="the run is over",
        changes={**everywhere("herd_weights_age_seconds", "actor", grows(1, LONG)), **IS_OVER},
    ),
    Case(alert="HerdWeightsStale", when="one of ten has", changes={key("herd_weights_age_seconds", ACTORS[0]): grows(1, LONG)}),
    Case(
        alert="HerdWeightsNotServed",
        when="the replica is behind",
        changes={key("herd_weights_age_seconds", REPLICA): grows(1, LONG)},
        fires=(on(REPLICA),),
    ),
    Case(
        alert="HerdWeightsNotServed",
        when="the root never had any",
        changes={key("herd_weights_age_seconds", ROOT): stays("NaN", LONG)},
        fires=(on(ROOT),),
    ),
    Case(
        alert="HerdWeightsNotServed",
        when="the learner has not published for as long",
        changes={
            key("herd_weights_age_seconds", ROOT): grows(1, LONG),
            **everywhere("herd_weights_age_seconds", "learner", grows(1, LONG)),
        },
    ),
    Case(
        alert="HerdWeightsNotServed",
        when="neither learner nor root ever had any",
        changes={
            key("herd_weights_age_seconds", ROOT): stays("NaN", LONG),
            **everywhere("herd_weights_age_seconds", "learner", stays("NaN", LONG)),
        },
    ),
    Case(
        alert="HerdWeightsNotPublished",
        when="a slice is not confirmed, and version and age stand still everywhere",
        changes={
            series: grows(1, LONG)
            for component in ("learner", "paramserver", "paramserver-replica")
            for series in everywhere("herd_weights_age_seconds", component, "")
        },
        fires=(of("learner"),),
    ),
    Case(
        alert="HerdWeightsNotPublished",
        when="nothing is learned either",
        changes={
            **everywhere("herd_weights_age_seconds", "learner", grows(1, LONG)),
            **everywhere("herd_learner_updates_total", "learner", stays(900, LONG)),
        },
    ),
    Case(
        alert="HerdWeightsNotPublished",
        when="a version takes a minute and a half",
        changes=everywhere("herd_weights_age_seconds", "learner", stays(90, LONG)),
    ),
    Case(
        alert="HerdWeightsNotPublished",
        when="for four minutes",
        changes=everywhere("herd_weights_age_seconds", "learner", stays(500, 4)),
        minutes=4,
    ),
    Case(
        alert="HerdReplicaCutOff",
        when="its parent is silent",
        changes={key("herd_paramserver_upstream_silence_seconds", REPLICA): grows(1, LONG)},
        fires=(on(REPLICA),),
    ),
    Case(
        alert="HerdReplicaCutOff",
        when="its parent restarts within half a minute",
        changes={key("herd_paramserver_upstream_silence_seconds", REPLICA): f"{stays(25, 30)} {stays(0.1, 30)}"},
    ),
)

LEARNING = (
    Case(
        alert="HerdLossNotFinite",
        when="every shard skips an update a minute",
        changes=everywhere("herd_learner_updates_skipped_total", "learner", grows(1 / 60, LONG)),
        fires=(RUN,),
    ),
    Case(
        alert="HerdLossNotFinite",
        when="the loss stays no number",
        changes=everywhere("herd_learner_loss", "learner", stays("NaN", LONG), term="total"),
        fires=(RUN,),
    ),
    Case(
        alert="HerdLossNotFinite",
        when="the loss stays infinite",
        changes=everywhere("herd_learner_loss", "learner", stays("Inf", LONG), term="total"),
        fires=(RUN,),
    ),
    Case(
        alert="HerdLossNotFinite",
        when="two shards skip the same single update",
        changes={
            **everywhere("herd_learner_updates_skipped_total", "learner", f"{stays(0, 50)} {stays(1, 20)}"),
            **everywhere("herd_learner_loss", "learner", f"{stays(1.5, 50)} NaN {stays(1.5, 20)}", term="total"),
        },
        minutes=51,
    ),
    Case(
        alert="HerdFramesDropped",
        when="a tenth is stale",
        changes=everywhere("herd_learner_env_frames_dropped_total", "learner", grows(100, LONG), reason="stale"),
        fires=({**RUN, "reason": "stale"},),
    ),
    Case(
        alert="HerdFramesDropped",
        when="a restart drops a queue",
        changes=everywhere(
            "herd_learner_env_frames_dropped_total", "learner", f"{stays(0, 40)} {stays(20000, 20)}", reason="learner_restart"
        ),
    ),
)

WIRE = (
    Case(
        alert="HerdUnrollsResent",
        when="one in five",
        changes=everywhere("herd_actor_unrolls_resent_total", "actor", grows(0.5, LONG)),
        fires=(RUN,),
    ),
    Case(
        alert="HerdUnrollsResent",
        when="all in flight once, after a restart",
        changes=everywhere("herd_actor_unrolls_resent_total", "actor", f"{stays(0, 45)} {stays(64, 30)}"),
    ),
    Case(
        alert="HerdMessagesMalformed",
        when="one actor's, twice a minute",
        changes={key("herd_wire_malformed_messages_total", SHARDS[0], reason="digest"): grows(2 / 60, LONG)},
        fires=(of("learner", reason="digest"),),
    ),
    Case(
        alert="HerdMessagesMalformed",
        when="five in an upgrade",
        changes={key("herd_wire_malformed_messages_total", SHARDS[0], reason="digest"): f"{stays(0, 45)} {stays(5, 20)}"},
    ),
    Case(
        alert="HerdMessagesRefused",
        when="a client of another run asks on",
        changes={key("herd_wire_refused_messages_total", SHARDS[0], reason="contract"): grows(0.1, LONG)},
        fires=(of("learner", reason="contract"),),
    ),
    Case(
        alert="HerdMessagesRefused",
        when="duplicates come all the time",
        changes={key("herd_wire_refused_messages_total", SHARDS[0], reason="duplicate"): grows(2, LONG)},
    ),
    Case(
        alert="HerdAuthenticationFailures",
        when="somebody tries",
        changes={key("herd_wire_authentication_failures_total", ROOT, reason="unknown_key"): f"{stays(0, 55)} {grows(0.1, 10)}"},
        fires=(of("paramserver", reason="unknown_key"),),
    ),
    Case(
        alert="HerdAuthenticationFailures",
        when="a port is probed",
        changes={key("herd_wire_authentication_failures_total", ROOT, reason="incomplete"): grows(5, LONG)},
    ),
    Case(
        alert="HerdConnectionsCut",
        when="a crowd came",
        changes={key("herd_wire_connections_cut_total", SHARDS[1], cause="crowd"): f"{stays(0, 55)} {stays(3, 10)}"},
        fires=(of("learner", cause="crowd"),),
    ),
    Case(
        alert="HerdConnectionsCut",
        when="it was an hour ago",
        changes={key("herd_wire_connections_cut_total", SHARDS[1], cause="crowd"): f"{stays(0, 10)} {stays(3, 55)}"},
    ),
)

DISK = (
    Case(
        alert="HerdCheckpointFailing",
        when="the last one failed",
        changes={key("herd_learner_checkpoint_failures_total", SHARDS[0]): f"{stays(0, 50)} {stays(1, 15)}"},
        fires=(RUN,),
    ),
    Case(
        alert="HerdCheckpointFailing",
        when="one failed, and for half an hour none",
        changes={key("herd_learner_checkpoint_failures_total", SHARDS[0]): f"{stays(0, 20)} {stays(1, 45)}"},
    ),
    Case(
        alert="HerdCheckpointOverdue",
        when="none was written for hours",
        changes=everywhere("herd_learner_checkpoints_written_total", "learner", stays(7, 120)),
        minutes=120,
        fires=(RUN,),
    ),
    Case(
        alert="HerdCheckpointOverdue",
        when="the learner was started 55 minutes ago",
        changes=everywhere("herd_learner_checkpoints_written_total", "learner", stays(0, 55)),
        minutes=55,
    ),
    Case(
        alert="HerdCheckpointOverdue",
        when="one is written every half hour",
        changes={
            key("herd_learner_checkpoints_written_total", SHARDS[0]): " ".join(f"{number:g}x59" for number in range(4)),
            key("herd_learner_checkpoints_written_total", SHARDS[1]): stays(0, 120),
        },
        minutes=119,
    ),
    Case(
        alert="HerdCheckpointOverdue",
        when="shard 0 writes for all",
        changes={key("herd_learner_checkpoints_written_total", SHARDS[1]): stays(0, 120)},
        minutes=120,
    ),
    Case(
        alert="HerdCheckpointOverdue",
        when="nothing was learned since",
        changes={
            **everywhere("herd_learner_checkpoints_written_total", "learner", stays(7, 120)),
            **everywhere("herd_learner_updates_total", "learner", stays(900, 120)),
        },
        minutes=120,
    ),
    Case(
        alert="HerdRunFilesFailing",
        when="the curve cannot be written",
        changes={key("herd_learner_write_failures_total", SHARDS[0], file="metrics.jsonl"): f"{stays(0, 50)} {grows(0.2, 15)}"},
        fires=(of("learner", file="metrics.jsonl"),),
    ),
    Case(
        alert="HerdRunFilesFailing",
        when="the bandit's state cannot be written",
        changes={key("herd_bandit_file_failures_total", BANDIT, file="state.json"): f"{stays(0, 50)} {stays(1, 15)}"},
        fires=(of("bandit", file="state.json"),),
    ),
    Case(
        alert="HerdRunFilesFailing",
        when="it was before the last quarter of an hour",
        changes={key("herd_learner_write_failures_total", SHARDS[0], file="metrics.jsonl"): f"{stays(0, 20)} {stays(4, 45)}"},
    ),
)

TEMPERATURES = (
    Case(
        alert="HerdBanditSilent",
        when="nobody asks",
        changes={key("herd_bandit_requests_total", BANDIT, outcome="new"): stays(100, LONG)},
        fires=(RUN,),
    ),
    Case(alert="HerdBanditSilent", when="it exports nothing", changes={}, without=("herd_bandit_requests_total",), fires=(RUN,)),
    Case(
        alert="HerdBanditSilent",
        when="no game ends",
        changes={
            key("herd_bandit_requests_total", BANDIT, outcome="new"): stays(100, LONG),
            **everywhere("herd_actor_episodes_total", "actor", stays(5, LONG)),
        },
    ),
    Case(alert="HerdBanditSilent", when="the run has none", changes=no_pods("bandit"), without=("herd_bandit_requests_total",)),
    Case(
        alert="HerdTemperaturesReused",
        when="by three games in ten",
        changes={key("herd_bandit_reused_temperatures_total", BANDIT): grows(0.3, LONG)},
        fires=(RUN,),
    ),
    Case(
        alert="HerdTemperaturesReused",
        when="by one game in ten",
        changes={key("herd_bandit_reused_temperatures_total", BANDIT): grows(0.1, LONG)},
    ),
)

CASES = PROCESSES + PROGRESS + WEIGHTS + LEARNING + WIRE + DISK + TEMPERATURES
