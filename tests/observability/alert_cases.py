"""For every alert, cases in which it fires, and similar cases in which it does not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.observability.healthy_run import (
    ACTORS,
    BANDIT,
    INFERENCE,
    PODS,
    POPULATION,
    REPLAY,
    REPLICA,
    ROOT,
    RUN,
    SHARDS,
    everywhere,
    gone,
    grows,
    key,
    stays,
)

LONG = 60.0
"""Length of most cases in minutes; only a few alerts must hold for longer."""
Labels = Mapping[str, str]


@dataclass(frozen=True)
class Case:
    """A healthy run with ``changes`` (None removes a series), evaluated after ``minutes``."""

    alert: str
    when: str
    changes: Mapping[str, str | None]
    fires: tuple[Labels, ...] = ()
    """Labels of the alerts that fire, without name and severity; empty if none fires."""
    minutes: float = LONG
    without: tuple[str, ...] = field(default=())
    """Names of metrics that no process exports."""


AGENT: Labels = {**RUN, "agent": "0"}
"""Labels of alerts about one agent."""


def of(component: str, **labels: str) -> Labels:
    return {**RUN, "component": component, **labels}


def on(pod: str) -> Labels:
    """Labels of an alert about one pod; a learner's has an agent."""
    return {**RUN, "component": PODS[pod], "pod": pod, **({"agent": "0"} if PODS[pod] == "learner" else {})}


def frames_of(task: str, per_second: float) -> dict[str, str]:
    return everywhere("herd_learner_task_env_frames_total", grows(per_second, LONG), task=task)


def dies_every(minutes: float, total: float) -> str:
    """Processor seconds of a process that restarts again and again."""
    return " ".join([grows(0.9, minutes, start=2)] * round(total / minutes))


def no_pods(component: str) -> dict[str, None]:
    return gone("up", component)


def silent(alert: str, counter: str, pod: str, what: str, quiet: str, unasked: Mapping[str, str], **labels: str) -> tuple[Case, ...]:
    """Cases for a counter that stops (``what``). The alert is quiet in the case ``quiet`` with the series ``unasked``, and without the
    service."""
    stands = {key(counter, pod, **labels): stays(9, LONG)}
    return (
        Case(alert, what, stands, fires=(RUN,)),
        Case(alert, "it exports nothing", {}, without=(counter,), fires=(RUN,)),
        Case(alert, quiet, {**stands, **unasked}),
        Case(alert, "the run has none", no_pods(PODS[pod]), without=(counter,)),
    )


NOBODY_TRAINS = everywhere("herd_learner_env_frames_total", stays(5, LONG))
IS_OVER = everywhere("herd_learner_run_is_over", stays(1, LONG))
"""The run has reached its stop, and is still installed."""
REMOVED = (
    everywhere("herd_learner_run_is_over", stays(1, LONG / 2))
    | everywhere("up", stays(1, LONG / 2), "learner")
    | everywhere("up", stays(1, LONG / 2), "actor")
)
"""The run has reached its stop, and halfway through the case its learners and actors are removed."""

PROCESSES = (
    Case(
        "HerdNothingScraped",
        "no learner is a target",
        no_pods("learner"),
        # In a shared Prometheus the release is unknown; the rules of the chart name their release.
        fires=({"component": "learner"},),
    ),
    Case("HerdNothingScraped", "learners are down", everywhere("up", stays(0, LONG), "learner")),
    Case("HerdComponentMissing", "no root is a target", no_pods("paramserver"), fires=(of("paramserver"),)),
    Case("HerdComponentMissing", "learners and actors are gone", no_pods("learner") | no_pods("actor"), fires=(of("learner"), of("actor"))),
    Case("HerdNothingScraped", "the run is over and its learners were removed", REMOVED),
    Case("HerdComponentMissing", "the run is over and learners and actors were removed", REMOVED),
    Case(
        "HerdComponentMissing",
        "learners and actors are gone before the end of the run",
        REMOVED | everywhere("herd_learner_run_is_over", stays(0, LONG / 2)),
        fires=(of("learner"), of("actor")),
    ),
    Case("HerdComponentMissing", "there is no bandit and no replica", no_pods("bandit") | no_pods("paramserver-replica")),
    Case("HerdComponentMissing", "actors are missing for nine minutes", no_pods("actor"), minutes=9),
    Case("HerdProcessDown", "a shard does not answer", {key("up", SHARDS[1]): stays(0, LONG)}, fires=(on(SHARDS[1]),)),
    Case("HerdProcessDown", "the bandit does not answer", {key("up", BANDIT): stays(0, LONG)}, fires=(on(BANDIT),)),
    Case("HerdProcessDown", "for four minutes", {key("up", ROOT): stays(0, 4)}, minutes=4),
    Case("HerdProcessDown", "an actor does not answer", {key("up", ACTORS[0]): stays(0, LONG)}),
    Case("HerdActorsDown", "three of ten do not answer", {key("up", actor): stays(0, LONG) for actor in ACTORS[:3]}, fires=(of("actor"),)),
    Case("HerdActorsDown", "two of ten do not answer", {key("up", actor): stays(0, LONG) for actor in ACTORS[:2]}),
    Case(
        "HerdCrashLoop",
        "a shard restarts every three minutes",
        {key("herd_process_cpu_seconds_total", SHARDS[0]): dies_every(3, LONG)},
        fires=(of("learner"),),
    ),
    Case(
        "HerdCrashLoop",
        "a server dies before its processor time says so",
        {key("up", ROOT): " ".join(["1 1 0"] * 40)},
        fires=(of("paramserver"),),
    ),
    Case("HerdCrashLoop", "a shard restarts every ten minutes", {key("herd_process_cpu_seconds_total", SHARDS[0]): dies_every(10, LONG)}),
    Case(
        "HerdProcessHangs",
        "two actors hang",
        {key("herd_process_heartbeat_age_ratio", actor): stays(1.5, LONG) for actor in ACTORS[:2]},
        fires=(of("actor"),),
    ),
    Case(
        "HerdProcessHangs", "an update takes most of a minute", everywhere("herd_process_heartbeat_age_ratio", stays(0.9, LONG), "learner")
    ),
    Case(
        "HerdMemoryGrows",
        "an actor doubles in six hours",
        {key("herd_process_resident_memory_bytes", ACTORS[3]): grows(1e9 / 21600, 600, start=5e8)},
        minutes=450,
        fires=(of("actor"),),
    ),
    Case(
        "HerdMemoryGrows",
        "a learner fills its replay in the first hour",
        {key("herd_process_resident_memory_bytes", SHARDS[0]): f"{grows(1e9 / 3600, 60, start=2e9)} {stays(3e9, 400)}"},
        minutes=450,
    ),
)

PROGRESS = (
    Case("HerdNoProgress", "the learner stands still", everywhere("herd_learner_env_frames_total", stays(5000, LONG)), fires=(AGENT,)),
    Case("HerdNoProgress", "the learner exports nothing", gone("herd_learner_env_frames_total"), fires=(AGENT,)),
    Case(
        "HerdNoProgress",
        "there is no learner, which is HerdComponentMissing",
        no_pods("learner"),
        without=("herd_learner_env_frames_total",),
    ),
    Case(
        "HerdNoProgress",
        "one member of a population stands still, while another trains and a third has finished",
        {
            **everywhere("herd_learner_env_frames_total", stays(5000, LONG), agent="1"),
            **everywhere("herd_learner_run_is_over", stays(0, LONG), agent="1"),
            **everywhere("herd_learner_env_frames_total", stays(5000, LONG), agent="2"),
            **everywhere("herd_learner_run_is_over", stays(1, LONG), agent="2"),
        },
        fires=({**RUN, "agent": "1"},),
    ),
    Case(
        "HerdNoProgress",
        "one shard stands still in the account of another",
        {key("herd_learner_env_frames_total", SHARDS[1]): stays(0, LONG)},
    ),
    Case("HerdNoProgress", "the run is over", {**everywhere("herd_learner_env_frames_total", stays(5000, LONG)), **IS_OVER}),
    Case(
        "HerdNoProgress",
        "the run is over, and a shard that was started again has trained on nothing",
        {**gone("herd_learner_env_frames_total"), **IS_OVER},
    ),
    Case("HerdNoProgress", "for nine minutes", everywhere("herd_learner_env_frames_total", stays(5000, 9)), minutes=9),
    Case(
        "HerdFramesPerSecondFell",
        "to a quarter",
        everywhere("herd_learner_env_frames_total", f"{grows(1000, 180)} {grows(250, 30, start=1000 * 180 * 60)}"),
        minutes=205,
        fires=(AGENT,),
    ),
    Case(
        "HerdFramesPerSecondFell",
        "to three quarters",
        everywhere("herd_learner_env_frames_total", f"{grows(1000, 180)} {grows(750, 30, start=1000 * 180 * 60)}"),
        minutes=205,
    ),
    Case(
        "HerdLearnerStarved",
        "it waits 70 % of its time",
        everywhere("herd_learner_starved_seconds_total", grows(0.7, LONG)),
        fires=(AGENT,),
    ),
    Case(
        "HerdLearnerStarved",
        "one of two shards waits 70 % of its time, and the other for it",
        {
            key("herd_learner_starved_seconds_total", SHARDS[0]): grows(0.7, LONG),
            key("herd_learner_starved_seconds_total", SHARDS[1]): grows(0, LONG),
        },
        fires=(AGENT,),
    ),
    Case("HerdLearnerStarved", "for ten minutes", everywhere("herd_learner_starved_seconds_total", grows(0.7, 10)), minutes=10),
    Case("HerdLearnerStarved", "the run is over", {**everywhere("herd_learner_starved_seconds_total", grows(0.7, LONG)), **IS_OVER}),
    Case("HerdLearnerStarved", "40 % of its time", everywhere("herd_learner_starved_seconds_total", grows(0.4, LONG))),
    Case(
        "HerdActorsBlocked",
        "they wait 80 % of their time for credit",
        everywhere("herd_actor_blocked_seconds_total", grows(0.8, LONG)),
        fires=(RUN,),
    ),
    Case(
        "HerdActorsBlocked",
        "the run is over, and they wait for ever",
        {**everywhere("herd_actor_blocked_seconds_total", grows(1, LONG)), **IS_OVER},
    ),
    Case("HerdActorsBlocked", "one of ten is blocked all the time", {key("herd_actor_blocked_seconds_total", ACTORS[0]): grows(1, LONG)}),
)

WEIGHTS = (
    Case(
        "HerdPolicyLagHigh",
        "a tenth of the unrolls is dozens of updates old",
        everywhere("herd_learner_policy_lag_updates_bucket", grows(9, LONG), le="4"),
        fires=(AGENT,),
    ),
    Case("HerdPolicyLagHigh", "one unroll in fifty is", everywhere("herd_learner_policy_lag_updates_bucket", grows(9.8, LONG), le="4")),
    Case(
        "HerdPolicyLagHigh",
        "nothing is trained on",
        {
            series: stays(5, LONG)
            for le in ("2", "4", "64", "+Inf")
            for series in everywhere("herd_learner_policy_lag_updates_bucket", "", le=le)
        },
    ),
    Case(
        "HerdWeightsStale",
        "two of ten actors have old ones",
        {key("herd_weights_age_seconds", actor): grows(1, LONG) for actor in ACTORS[:2]},
        fires=(RUN,),
    ),
    Case(
        "HerdWeightsStale",
        "two of ten actors never had any",
        {key("herd_weights_age_seconds", actor): stays("NaN", LONG) for actor in ACTORS[:2]},
        fires=(RUN,),
    ),
    Case("HerdWeightsStale", "the run is over", {**everywhere("herd_weights_age_seconds", grows(1, LONG), "actor"), **IS_OVER}),
    Case("HerdWeightsStale", "one of ten has", {key("herd_weights_age_seconds", ACTORS[0]): grows(1, LONG)}),
    Case(
        "HerdWeightsNotServed",
        "the replica stays at an old version",
        {key("herd_paramserver_agent_updates", REPLICA, agent="0"): stays(500, LONG)},
        fires=({**on(REPLICA), "agent": "0"},),
    ),
    Case(
        "HerdWeightsNotServed",
        "it has the weights of one agent, and old ones of another",
        {
            **everywhere("herd_weights_updates", grows(2, LONG), "learner", agent="1"),
            key("herd_paramserver_agent_updates", ROOT, agent="1"): grows(2, LONG),
            key("herd_paramserver_agent_updates", REPLICA, agent="1"): stays(500, LONG),
        },
        fires=({**on(REPLICA), "agent": "1"},),
    ),
    Case(
        "HerdWeightsNotServed",
        "a version takes long, and every server is always one behind",
        {
            series: grows(2, LONG, start=-50)
            for component in ("paramserver", "paramserver-replica")
            for series in everywhere("herd_paramserver_agent_updates", "", component, agent="0")
        },
    ),
    Case("HerdWeightsNotServed", "the root never had any", {key("herd_weights_age_seconds", ROOT): stays("NaN", LONG)}, fires=(on(ROOT),)),
    Case(
        "HerdWeightsNotServed",
        "the learner has not published for as long",
        {
            series: stays(500, LONG)
            for name, component in (("herd_weights_updates", "learner"), ("herd_paramserver_agent_updates", "paramserver"))
            for series in everywhere(name, "", component, **({} if component == "learner" else {"agent": "0"}))
        },
    ),
    Case(
        "HerdWeightsNotServed",
        "neither learner nor root ever had any",
        {
            key("herd_weights_age_seconds", ROOT): stays("NaN", LONG),
            **everywhere("herd_weights_age_seconds", stays("NaN", LONG), "learner"),
        },
    ),
    Case(
        "HerdWeightsNotPublished",
        "a slice is not confirmed, and version and age stand still everywhere",
        {
            series: grows(1, LONG)
            for component in ("learner", "paramserver", "paramserver-replica")
            for series in everywhere("herd_weights_age_seconds", "", component)
        },
        fires=(of("learner", agent="0"),),
    ),
    Case(
        "HerdWeightsNotPublished",
        "nothing is learned either",
        {**everywhere("herd_weights_age_seconds", grows(1, LONG), "learner"), **everywhere("herd_learner_updates_total", stays(900, LONG))},
    ),
    Case(
        "HerdWeightsNotPublished", "a version takes a minute and a half", everywhere("herd_weights_age_seconds", stays(90, LONG), "learner")
    ),
    Case("HerdWeightsNotPublished", "for four minutes", everywhere("herd_weights_age_seconds", stays(500, 4), "learner"), minutes=4),
    Case(
        "HerdReplicaCutOff",
        "its parent is silent",
        {key("herd_paramserver_upstream_silence_seconds", REPLICA): grows(1, LONG)},
        fires=(on(REPLICA),),
    ),
    Case(
        "HerdReplicaCutOff",
        "its parent restarts within half a minute",
        {key("herd_paramserver_upstream_silence_seconds", REPLICA): f"{stays(25, 30)} {stays(0.1, 30)}"},
    ),
)

LEARNING = (
    Case(
        "HerdLossNotFinite",
        "every shard skips an update a minute",
        everywhere("herd_learner_updates_skipped_total", grows(1 / 60, LONG)),
        fires=(AGENT,),
    ),
    Case(
        "HerdLossNotFinite", "the loss stays no number", everywhere("herd_learner_loss", stays("NaN", LONG), term="total"), fires=(AGENT,)
    ),
    Case("HerdLossNotFinite", "the loss stays infinite", everywhere("herd_learner_loss", stays("Inf", LONG), term="total"), fires=(AGENT,)),
    Case(
        "HerdLossNotFinite",
        "two shards skip the same single update",
        {
            **everywhere("herd_learner_updates_skipped_total", f"{stays(0, 50)} {stays(1, 20)}"),
            **everywhere("herd_learner_loss", f"{stays(1.5, 50)} NaN {stays(1.5, 20)}", term="total"),
        },
        minutes=51,
    ),
    Case(
        "HerdFramesDropped",
        "a tenth is stale",
        everywhere("herd_learner_env_frames_dropped_total", grows(100, LONG), reason="stale"),
        fires=({**AGENT, "reason": "stale"},),
    ),
    Case(
        "HerdFramesDropped",
        "a restart drops a queue",
        everywhere("herd_learner_env_frames_dropped_total", f"{stays(0, 40)} {stays(20000, 20)}", reason="learner_restart"),
    ),
    Case(
        "HerdTaskNeglected",
        "one task is played by nobody",
        {**frames_of("pong", 500), **frames_of("boxing", 400), **frames_of("qbert", 0)},
        fires=({**AGENT, "task": "qbert"},),
    ),
    Case(
        "HerdTaskNeglected",
        "tasks with one environment and with two, one of them slow",
        {**frames_of("pong", 500), **frames_of("boxing", 500), **frames_of("qbert", 160)},
    ),
    Case("HerdTaskNeglected", "nothing is trained at all", {**frames_of("pong", 0), **frames_of("qbert", 0)}),
)

WIRE = (
    Case("HerdUnrollsResent", "one in five", everywhere("herd_actor_unrolls_resent_total", grows(0.5, LONG)), fires=(RUN,)),
    Case(
        "HerdUnrollsResent",
        "all in flight once, after a restart",
        everywhere("herd_actor_unrolls_resent_total", f"{stays(0, 45)} {stays(64, 30)}"),
    ),
    Case(
        "HerdMessagesMalformed",
        "one actor's, twice a minute",
        {key("herd_wire_malformed_messages_total", SHARDS[0], reason="digest"): grows(2 / 60, LONG)},
        fires=(of("learner", reason="digest"),),
    ),
    Case(
        "HerdMessagesMalformed",
        "five in an upgrade",
        {key("herd_wire_malformed_messages_total", SHARDS[0], reason="digest"): f"{stays(0, 45)} {stays(5, 20)}"},
    ),
    Case(
        "HerdMessagesRefused",
        "a client of another run asks on",
        {key("herd_wire_refused_messages_total", SHARDS[0], reason="contract"): grows(0.1, LONG)},
        fires=(of("learner", reason="contract"),),
    ),
    Case(
        "HerdMessagesRefused",
        "a learner publishes impossible versions",
        {key("herd_wire_refused_messages_total", ROOT, reason="ahead"): grows(0.1, LONG)},
        fires=(of("paramserver", reason="ahead"),),
    ),
    Case(
        "HerdMessagesRefused",
        "duplicates come all the time",
        {key("herd_wire_refused_messages_total", SHARDS[0], reason="duplicate"): grows(2, LONG)},
    ),
    Case(
        "HerdAuthenticationFailures",
        "somebody tries",
        {key("herd_wire_authentication_failures_total", ROOT, reason="unknown_key"): f"{stays(0, 55)} {grows(0.1, 10)}"},
        fires=(of("paramserver", reason="unknown_key"),),
    ),
    Case(
        "HerdAuthenticationFailures",
        "a port is probed",
        {key("herd_wire_authentication_failures_total", ROOT, reason="incomplete"): grows(5, LONG)},
    ),
    Case(
        "HerdConnectionsCut",
        "a crowd came",
        {key("herd_wire_connections_cut_total", SHARDS[1], cause="too_many"): f"{stays(0, 55)} {stays(3, 10)}"},
        fires=(of("learner", cause="too_many"),),
    ),
    Case(
        "HerdConnectionsCut",
        "it was an hour ago",
        {key("herd_wire_connections_cut_total", SHARDS[1], cause="too_many"): f"{stays(0, 10)} {stays(3, 55)}"},
    ),
)

DISK = (
    Case(
        "HerdCheckpointFailing",
        "the last one failed",
        {key("herd_learner_checkpoint_failures_total", SHARDS[0]): f"{stays(0, 50)} {stays(1, 15)}"},
        fires=(AGENT,),
    ),
    Case(
        "HerdCheckpointFailing",
        "one failed, and for half an hour none",
        {key("herd_learner_checkpoint_failures_total", SHARDS[0]): f"{stays(0, 20)} {stays(1, 45)}"},
    ),
    Case(
        "HerdCheckpointOverdue",
        "none was written for hours",
        everywhere("herd_learner_checkpoints_written_total", stays(7, 120)),
        minutes=120,
        fires=(AGENT,),
    ),
    Case(
        "HerdCheckpointOverdue",
        "the learner was started 55 minutes ago",
        everywhere("herd_learner_checkpoints_written_total", stays(0, 55)),
        minutes=55,
    ),
    Case(
        "HerdCheckpointOverdue",
        "one is written every half hour",
        {
            key("herd_learner_checkpoints_written_total", SHARDS[0]): " ".join(f"{number:g}x59" for number in range(4)),
            key("herd_learner_checkpoints_written_total", SHARDS[1]): stays(0, 120),
        },
        minutes=119,
    ),
    Case(
        "HerdCheckpointOverdue",
        "shard 0 writes for all",
        {key("herd_learner_checkpoints_written_total", SHARDS[1]): stays(0, 120)},
        minutes=120,
    ),
    Case(
        "HerdCheckpointOverdue",
        "nothing was learned since",
        {
            **everywhere("herd_learner_checkpoints_written_total", stays(7, 120)),
            **everywhere("herd_learner_updates_total", stays(900, 120)),
        },
        minutes=120,
    ),
    Case(
        "HerdCopyLate",
        "every attempt fails",
        {key("herd_learner_copy_failures_total", SHARDS[0]): f"{stays(0, 20)} {grows(1 / 300, 40)}"},
        fires=(AGENT,),
    ),
    Case(
        "HerdCopyLate",
        "the storage was away for five minutes",
        {key("herd_learner_copy_failures_total", SHARDS[0]): f"{stays(0, 30)} {grows(1 / 60, 5)} {stays(5, 25)}"},
    ),
    Case(
        "HerdCopyLate",
        "an upload hangs",
        {key("herd_learner_copy_updates", SHARDS[0]): f"{grows(2, 30)} {stays(3600, 90)}"},
        minutes=120,
        fires=(AGENT,),
    ),
    Case(
        "HerdCopyLate",
        "nothing was learned since",
        {
            key("herd_learner_copy_updates", SHARDS[0]): stays(3600, 120),
            **everywhere("herd_learner_checkpoint_updates", stays(3600, 120)),
        },
        minutes=120,
    ),
    Case("HerdCopyLate", "the run has no copy", everywhere("herd_learner_copy_updates", stays(0, 120)), minutes=120),
    Case(
        "HerdRunFilesFailing",
        "the curve cannot be written",
        {key("herd_learner_write_failures_total", SHARDS[0], file="metrics.jsonl"): f"{stays(0, 50)} {grows(0.2, 15)}"},
        fires=(of("learner", file="metrics.jsonl"),),
    ),
    Case(
        "HerdRunFilesFailing",
        "the bandit's state cannot be written",
        {key("herd_bandit_file_failures_total", BANDIT, file="state.json"): f"{stays(0, 50)} {stays(1, 15)}"},
        fires=(of("bandit", file="state.json"),),
    ),
    Case(
        "HerdRunFilesFailing",
        "replay's snapshot cannot be written",
        {key("herd_replay_file_failures_total", REPLAY): f"{stays(0, 50)} {stays(1, 15)}"},
        fires=(of("replay", file="snapshot"),),
    ),
    Case(
        "HerdRunFilesFailing",
        "it was before the last quarter of an hour",
        {key("herd_learner_write_failures_total", SHARDS[0], file="metrics.jsonl"): f"{stays(0, 20)} {stays(4, 45)}"},
    ),
)

TEMPERATURES = (
    *silent(
        "HerdBanditSilent",
        "herd_bandit_requests_total",
        BANDIT,
        "nobody asks",
        "no game ends",
        everywhere("herd_actor_episodes_total", stays(5, LONG)),
        outcome="new",
    ),
    Case(
        "HerdTemperaturesReused",
        "by three games in ten",
        {key("herd_bandit_reused_temperatures_total", BANDIT): grows(0.3, LONG)},
        fires=(RUN,),
    ),
    Case("HerdTemperaturesReused", "by one game in ten", {key("herd_bandit_reused_temperatures_total", BANDIT): grows(0.1, LONG)}),
)

SHARED_REPLAY = (
    *silent("HerdReplaySilent", "herd_replay_requests_total", REPLAY, "nobody asks", "nobody trains", NOBODY_TRAINS, outcome="inserted"),
    Case(
        "HerdReplayDiscarding",
        "three episodes in ten",
        {key("herd_replay_discarded_episodes_total", REPLAY, reason="hole"): grows(0.43, LONG)},
        fires=(RUN,),
    ),
    Case(
        "HerdReplayDiscarding",
        "one episode in seven",
        {key("herd_replay_discarded_episodes_total", REPLAY, reason="hole"): grows(0.16, LONG)},
    ),
    Case(
        "HerdReplayShortOfMemory",
        "half full, and episodes go for memory",
        {
            key("herd_replay_agent_steps", REPLAY): stays(500_000, 120),
            key("herd_replay_evicted_episodes_total", REPLAY, reason="memory"): grows(1, 120),
        },
        fires=(RUN,),
        minutes=120,
    ),
    Case(
        "HerdReplayShortOfMemory", "half full, and nothing goes", {key("herd_replay_agent_steps", REPLAY): stays(500_000, 120)}, minutes=120
    ),
)

EVOLVING = (
    *silent(
        "HerdPopulationSilent",
        "herd_population_reports_total",
        POPULATION,
        "nobody reports",
        "nobody trains",
        NOBODY_TRAINS,
        outcome="noted",
    ),
    Case(
        "HerdPopulationOrdersFail",
        "two in three",
        {key("herd_population_failed_orders_total", POPULATION): grows(0.02, LONG)},
        fires=(RUN,),
    ),
    Case("HerdPopulationOrdersFail", "one in three", {key("herd_population_failed_orders_total", POPULATION): grows(0.01, LONG)}),
)

ACTING = (
    *silent(
        "HerdInferenceSilent",
        "herd_inference_agent_steps_total",
        INFERENCE,
        "actors wait",
        "nobody waits",
        everywhere("herd_actor_inference_requests_pending", stays(0, LONG)),
    ),
    Case(
        "HerdInferenceForgets",
        "every few seconds all of them",
        {key("herd_inference_evicted_environments_total", INFERENCE): grows(20, LONG)},
        fires=(RUN,),
    ),
    Case(
        "HerdInferenceForgets",
        "an actor was replaced now and then",
        {key("herd_inference_evicted_environments_total", INFERENCE): grows(0.5, LONG)},
    ),
)

CASES = PROCESSES + PROGRESS + WEIGHTS + LEARNING + WIRE + DISK + TEMPERATURES + SHARED_REPLAY + EVOLVING + ACTING
