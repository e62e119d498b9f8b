"""The arithmetic of ``herd plan`` against numbers worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from herd.bench.plan import Plan, PlanOptions, make_plan
from herd.bench.plan_figures import (
    BanditFigures,
    CompressionFigures,
    Figures,
    FiguresError,
    InferenceFigures,
    IngestFigures,
    LearnerFigures,
    MemoryFigures,
    ReplayFigures,
    StageFigures,
    WeightsFigures,
    package_figures,
)
from herd.bench.weights_size import num_parameters
from herd.config.evaluation import EvaluationSettings
from herd.config.losses import DiceSettings
from herd.config.population import PopulationSettings
from herd.config.replay import SharedReplay, UniformReplay
from herd.config.replay_service import ReplayServiceSettings
from herd.config.settings import (
    ActorSettings,
    LearnerSettings,
    NetworkSettings,
    RunSettings,
)
from herd.envs.suites.catch.settings import CatchSettings

# Round numbers, all different, so that one cannot stand in for another.
STAGE = StageFigures(
    suite="atari",
    torso="shallow",
    width_multiplier=1,
    core="none",
    microseconds={"environment": 300.0, "inference": 50.0, "learner": 100.0, "transport": 2.0, "system": 500.0},
    trained_per_fresh_unroll=1.0,
    parameters=1_000_000,
    source="a bench",
)
FIGURES = Figures(
    stages=(STAGE,),
    learners={"shallow": LearnerFigures(100_000.0, "a paper")},
    shard_efficiency=0.8,
    shard_efficiency_source="a table",
    ingest=IngestFigures(microseconds_per_message=160.0, microseconds_per_unroll=40.0, source="a fan-in"),
    weights=WeightsFigures(
        microseconds_per_answer=200.0, microseconds_per_megabyte=450.0, microseconds_per_not_modified=150.0, source="a fan-out"
    ),
    bandit=BanditFigures(microseconds_per_request=250.0, answers_per_second=7000.0, source="a load"),
    replay=ReplayFigures(
        microseconds_per_inserted_unroll=300.0, microseconds_per_drawn_unroll=100.0, bytes_per_agent_step=500.0, source="a replay"
    ),
    inference={},
    memory=MemoryFigures(
        actor_bytes=400_000_000, learner_bytes=500_000_000, paramserver_bytes=70_000_000, bandit_bytes=250_000_000, source="an hour"
    ),
    compression=CompressionFigures({"none": 1.0, "lz4": 60.0, "zstd": 160.0}, "a game"),
)
SETTINGS = RunSettings(actor=ActorSettings(environments=16))
HALF_BUSY = PlanOptions(frames_per_second=80_000.0, headroom=0.2)
UNROLL_BYTES = 170_066


def value(plan: Plan, section: str, quantity: str) -> float:
    found = [line.value for line in plan.sheet.lines if (line.section, line.quantity) == (section, quantity)]
    assert len(found) == 1, (section, quantity)
    return found[0]


def test_demand_is_counted_in_steps_unrolls_updates_and_versions() -> None:
    settings = SETTINGS.model_copy(update={"learner": LearnerSettings(batch_size=40, publish_interval_updates=5)})
    plan = make_plan(settings, HALF_BUSY, FIGURES)
    # 80,000 frames / 4; / 20 steps; / 40 a batch; / 5.
    assert plan.demand.steps == pytest.approx(20_000)
    assert plan.demand.unrolls == pytest.approx(1000)
    assert plan.demand.updates == pytest.approx(25)
    assert plan.demand.versions == pytest.approx(5)
    assert plan.demand.unroll_bytes == UNROLL_BYTES
    assert plan.demand.version_bytes == 4_000_000


def test_actor_cores_cover_all_costs_but_the_update() -> None:
    plan = make_plan(SETTINGS, HALF_BUSY, FIGURES)
    # 20,000 steps x (500 - 100) us = 8 cores, at 80 % utilisation.
    assert plan.actors.cores == pytest.approx(10.0)
    assert plan.actors.processes == 10
    assert plan.actors.environments == 160
    # 1,000 unrolls a second, in messages of 16.
    assert plan.actors.messages == pytest.approx(62.5)
    # Each environment makes 125 steps/s and its actor asks before each unroll of 20.
    assert plan.actors.asks_each == pytest.approx(6.25)
    assert plan.actors.asks == pytest.approx(62.5)


def test_more_threads_need_fewer_actors_rounded_up() -> None:
    settings = SETTINGS.model_copy(update={"actor": ActorSettings(environments=16, environment_threads=3)})
    plan = make_plan(settings, HALF_BUSY, FIGURES)
    assert (plan.actors.processes, plan.actors.cores_each) == (4, 3)


def test_the_pull_interval_sets_the_rate_of_weight_requests() -> None:
    settings = SETTINGS.model_copy(update={"actor": ActorSettings(environments=16, pull_interval_steps=50)})
    assert make_plan(settings, HALF_BUSY, FIGURES).actors.asks_each == pytest.approx(2.5)


def test_the_tightest_bound_sets_the_number_of_shards() -> None:
    plan = make_plan(SETTINGS, replace(HALF_BUSY, frames_per_second=400_000.0), FIGURES)
    # Training: 400,000 / (100,000 x 0.8).
    # I/O threads: 312.5 messages x 160 us + 5,000 unrolls x 40 us = 0.25 of a core, at 70 % utilisation.
    # Network: 5,000 x 170,066 = 850 MB/s of 1,000 MB/s, which are 80 % of 10 Gb/s.
    assert plan.learners.bounds == {"training": 5, "I/O thread": 1, "network": 1, "sessions": 1}
    assert (plan.learners.shards, plan.learners.gpus) == (5, 5)
    assert value(plan, "learner", "cores of I/O threads") == pytest.approx(0.25)


def test_a_slow_network_needs_more_shards_or_compression() -> None:
    slow = replace(HALF_BUSY, pod_gigabits=1.0)
    # 1,000 x 170,066 B/s, over links of 100 MB/s.
    assert make_plan(SETTINGS, slow, FIGURES).learners.bounds["network"] == 2
    compressed = SETTINGS.model_copy(update={"actor": ActorSettings(environments=16, compression="lz4")})
    plan = make_plan(compressed, slow, FIGURES)
    assert plan.learners.bounds["network"] == 1
    assert plan.demand.unroll_bytes == pytest.approx(UNROLL_BYTES / 60)
    assert make_plan(compressed, replace(slow, compression_ratio=2.0), FIGURES).demand.unroll_bytes == pytest.approx(UNROLL_BYTES / 2)


def test_one_shard_has_no_scaling_loss() -> None:
    plan = make_plan(SETTINGS, replace(HALF_BUSY, frames_per_second=100_000.0), FIGURES)
    assert plan.learners.bounds["training"] == 1
    assert make_plan(SETTINGS, replace(HALF_BUSY, frames_per_second=100_001.0), FIGURES).learners.bounds["training"] == 2


def test_replay_and_reuse_add_to_the_training_load() -> None:
    settings = SETTINGS.model_copy(
        update={"replay": UniformReplay(fraction=0.75), "learner": LearnerSettings(batch_size=32, sample_reuse=2)}
    )
    plan = make_plan(settings, HALF_BUSY, FIGURES)
    # 32 unrolls for 8 fresh ones, each used twice: 80,000 x 8 = 640,000 frames/s, at 80,000 for each of several shards.
    assert plan.demand.trained_per_fresh == pytest.approx(8.0)
    assert plan.learners.bounds["training"] == 8
    # 1,000 / 8 x 2.
    assert plan.demand.updates == pytest.approx(250.0)


def test_cpu_learners_use_the_measured_cost_per_step() -> None:
    plan = make_plan(SETTINGS, replace(HALF_BUSY, learner="cpu", learner_cores=1), FIGURES)
    # 20,000 steps x 100 us.
    assert value(plan, "learner", "cores for training") == pytest.approx(2.0)
    assert (plan.learners.shards, plan.learners.gpus) == (2, 0)


def test_figures_measured_with_replay_are_not_scaled_again() -> None:
    settings = SETTINGS.model_copy(update={"replay": UniformReplay(fraction=0.5)})
    figures = replace(FIGURES, stages=(replace(STAGE, trained_per_fresh_unroll=2.0),))
    plan = make_plan(settings, replace(HALF_BUSY, learner="cpu", learner_cores=1), figures)
    assert value(plan, "learner", "cores for training") == pytest.approx(2.0)


def test_a_given_learner_rate_is_used_and_an_unknown_one_required() -> None:
    assert make_plan(SETTINGS, replace(HALF_BUSY, learner_frames_per_second=20_000.0), FIGURES).learners.shards == 5
    unknown = replace(FIGURES, learners={})
    with pytest.raises(FiguresError, match="--learner_frames_per_second"):
        make_plan(SETTINGS, HALF_BUSY, unknown)
    assert make_plan(SETTINGS, replace(HALF_BUSY, learner_frames_per_second=80_000.0), unknown).learners.shards == 1


def test_more_shards_than_unrolls_in_a_batch_give_a_note() -> None:
    plan = make_plan(SETTINGS, replace(HALF_BUSY, learner_frames_per_second=2_000.0), FIGURES)
    assert plan.learners.shards == 50
    assert any("50 shards" in note and "raise learner.batch_size" in note for note in plan.sheet.notes)


def test_weights_are_sent_for_requests_that_find_a_new_version() -> None:
    # 1,000 unrolls / 32 = 31.25 versions a second: each of the 6.25 requests a second of an actor finds a new version.
    plan = make_plan(SETTINGS, HALF_BUSY, FIGURES)
    assert plan.servers.with_weights == pytest.approx(62.5)
    assert plan.servers.bytes_out == pytest.approx(250e6)
    # 62.5 x (200 + 450 x 4) us.
    assert plan.servers.cores == pytest.approx(0.125)
    assert (plan.servers.replicas, plan.servers.levels) == (0, 0)
    rare = SETTINGS.model_copy(update={"learner": LearnerSettings(publish_interval_updates=25)})
    plan = make_plan(rare, HALF_BUSY, FIGURES)
    # 1.25 versions a second go to ten actors; 50 requests find no new version.
    assert plan.servers.with_weights == pytest.approx(12.5)
    assert plan.servers.cores == pytest.approx((12.5 * 2000 + 50 * 150) / 1e6)


def test_replicas_are_added_if_one_server_cannot_send_enough() -> None:
    fast = replace(HALF_BUSY, frames_per_second=800_000.0, learner_frames_per_second=1e6)
    settings = SETTINGS.model_copy(update={"learner": LearnerSettings(publish_interval_updates=10)})
    plan = make_plan(settings, fast, FIGURES)
    # 100 actors ask 6.25 times a second and find a new version each time (31.25 versions/s): 2,500 MB/s, at 1,000 for each server.
    # Processors: 625 x 2,000 us = 1.25 cores, at 0.5 for each server.
    assert plan.servers.bounds == {"processor": 3, "network": 3, "connections": 1}
    assert (plan.servers.replicas, plan.servers.levels) == (3, 1)
    # Each replica fetches 31.25 x 4 MB.
    assert plan.servers.root_bytes_out == pytest.approx(375e6)
    pods = {pod.role: pod for pod in plan.pods}
    assert pods["paramserver"].bytes_out == pytest.approx(375e6)
    assert pods["paramserver-replica"].pods == 3
    assert pods["paramserver-replica"].bytes_out == pytest.approx(2500e6 / 3)


def test_intermediate_servers_are_planned_if_the_root_is_overloaded() -> None:
    fast = replace(HALF_BUSY, frames_per_second=800_000.0, learner_frames_per_second=1e6)
    plan = make_plan(SETTINGS, fast, FIGURES)
    # A replica asks 100 times a second and finds a new version each time: 400 MB/s each, so one server feeds two of them.
    # Three replicas have room at 312.5 x 3 x 4 MB / 3.75 a second.
    assert (plan.servers.replicas, plan.servers.levels) == (3, 2)
    # Two servers lie between, for two replicas and for one: five servers fetch 400 MB/s each, two of them from the root.
    assert plan.servers.between == 2
    pods = {pod.role: pod for pod in plan.pods}
    assert pods["paramserver"].bytes_out == pytest.approx(800e6)
    assert (pods["paramserver-between"].pods, pods["paramserver-between"].cores) == (2, 1)
    assert pods["paramserver-between"].bytes_in == pytest.approx(400e6)
    assert pods["paramserver-between"].bytes_out == pytest.approx(600e6)
    # A replica sees a hundred versions a second of the 312.5 that the root takes.
    assert pods["paramserver-replica"].bytes_in == pytest.approx(400e6)
    assert pods["paramserver"].bytes_in == pytest.approx(1250e6)
    assert any("learner.publish_interval_updates 4" in note for note in plan.sheet.notes)


def test_a_bandit_is_planned_if_the_run_has_one() -> None:
    assert make_plan(SETTINGS, HALF_BUSY, FIGURES).bandit is None
    dice = SETTINGS.model_copy(update={"loss": DiceSettings()})
    plan = make_plan(dice, replace(HALF_BUSY, game_steps=500.0), FIGURES)
    assert plan.bandit is not None
    assert plan.bandit.requests == pytest.approx(40.0)
    assert plan.bandit.cores == pytest.approx(0.01)
    assert [pod.role for pod in plan.pods] == ["actor", "learner", "paramserver", "bandit"]
    busy = make_plan(dice, replace(HALF_BUSY, game_steps=2.0), FIGURES)
    assert any("one bandit answered 7,000" in note for note in busy.sheet.notes)


def with_replay(memory_bytes: int, capacity: int = 10_000_000) -> RunSettings:
    replay = SharedReplay(fraction=0.75, capacity_agent_steps=capacity)
    return SETTINGS.model_copy(update={"replay": replay, "replay_service": ReplayServiceSettings(memory_bytes=memory_bytes)})


def test_replay_is_planned_from_cpu_memory_and_network() -> None:
    plan = make_plan(with_replay(2 << 30), HALF_BUSY, FIGURES)
    # 1,000 unrolls/s come in, with 24 replayed for each 8 fresh: 3,000 go out. 1,000 x 300 us + 3,000 x 100 us.
    assert value(plan, "replay", "unrolls drawn/s") == pytest.approx(3000)
    assert value(plan, "replay", "cores") == pytest.approx(0.6)
    # 10 million steps and 160 unfinished games of 1,000 steps, of 500 B each: 5.08 GB, in replicas of 2.15 GB.
    assert value(plan, "replay", "memory for them") == pytest.approx(5.08e9)
    (replay,) = [pod for pod in plan.pods if pod.role == "replay"]
    assert replay.pods == 3
    assert replay.memory_bytes == pytest.approx(70e6 + 5.08e9 / 3)
    # 3,000 unrolls of 20 steps of 500 B go out.
    assert replay.bytes_out * 3 == pytest.approx(30e6)
    assert replay.bytes_in * 3 == pytest.approx(1000 * UNROLL_BYTES)
    # 160 x 27,000 x 500 B of open games, of which a replica holds at most a quarter of 2.15 GB.
    long = make_plan(with_replay(2 << 30), replace(HALF_BUSY, game_steps=27_000.0), FIGURES)
    assert next(pod.pods for pod in long.pods if pod.role == "replay") == 5
    # Two batches of 32 unrolls ahead.
    assert value(plan, "replay", "memory in the learner") == pytest.approx(2 * 32 * UNROLL_BYTES)
    recurrent = with_replay(2 << 30).model_copy(update={"network": NetworkSettings(core="lstm")})
    learning = make_plan(
        recurrent, replace(HALF_BUSY, learner_frames_per_second=1e9), replace(FIGURES, stages=(replace(STAGE, core="lstm"),))
    )
    # 24 slots besides, with two parts of a game of 1,000 steps of 500 B and an unpacked unroll.
    unroll = learning.demand.raw_unroll_bytes
    in_learner = 2 * 32 * unroll + 24 * (2 * 1000 * 500 + unroll)
    assert value(learning, "replay", "memory in the learner") == pytest.approx(in_learner)
    assert learning.learners.shards == 1
    queued = 2 * recurrent.credit_capacity * unroll
    assert value(learning, "memory", "memory of a learner shard") == pytest.approx(500e6 + queued + in_learner)
    large = make_plan(with_replay(64 << 30), replace(HALF_BUSY, frames_per_second=240_000.0), FIGURES)
    assert next(pod.pods for pod in large.pods if pod.role == "replay") == 3  # 1.8 cores, at 70 % utilisation


@pytest.mark.parametrize(("ratio", "way"), [(None, "local"), (0.99, "local"), (1.0, "local"), (1.01, "remote")])
def test_remote_inference_is_proposed_where_it_measured_faster(ratio: float | None, way: str) -> None:
    figures = FIGURES if ratio is None else replace(FIGURES, inference={"shallow": InferenceFigures(ratio, "pairs")})
    plan = make_plan(SETTINGS, HALF_BUSY, figures)
    assert plan.inference == way
    assert sum(note.startswith(f"actor.inference {way}: ") for note in plan.sheet.notes) == 1
    lstm = replace(STAGE, core="lstm")
    recurrent = SETTINGS.model_copy(update={"network": NetworkSettings(core="lstm")})
    assert make_plan(recurrent, HALF_BUSY, replace(figures, stages=(lstm,))).inference == "local"


def test_inference_replicas_suffice_for_every_step() -> None:
    remote = SETTINGS.model_copy(update={"actor": ActorSettings(environments=16, inference="remote")})
    plan = make_plan(remote, HALF_BUSY, FIGURES)
    # 20,000 steps x 50 us: one core, at 70 % utilisation.
    (inference,) = [pod for pod in plan.pods if pod.role == "inference"]
    assert (inference.pods, inference.cores) == (2, 1)
    assert "inference" not in {pod.role for pod in make_plan(SETTINGS, HALF_BUSY, FIGURES).pods}


def test_agents_share_the_frames_and_have_their_own_learners() -> None:
    settings = SETTINGS.model_copy(
        update={
            "agents": 4,
            "population": PopulationSettings(strategy="pbt"),
            "evaluation": EvaluationSettings(interval_seconds=100.0),
        }
    )
    alone, plan = (make_plan(each, replace(HALF_BUSY, frames_per_second=400_000.0), FIGURES) for each in (SETTINGS, settings))
    assert plan.actors == alone.actors
    assert plan.demand.updates == pytest.approx(alone.demand.updates / 4)
    # 100,000 frames/s each: one GPU trains that many.
    assert (alone.learners.shards, plan.learners.shards) == (5, 1)
    pods = {pod.role: pod for pod in plan.pods}
    assert (pods["learner"].pods, pods["learner"].gpus) == (4, 1)
    assert {"population", "evaluator"} <= set(pods)
    assert value(plan, "together", "GPUs") == 4
    # A new version of each agent every 100 s.
    assert pods["evaluator"].bytes_in == pytest.approx(4 * 4_000_000 / 100)


def test_memory_includes_the_queue_twice_and_replay() -> None:
    plan = make_plan(SETTINGS, HALF_BUSY, FIGURES)
    # Two batches of 32 may be granted.
    assert value(plan, "memory", "memory of a learner shard") == pytest.approx(500e6 + 128 * UNROLL_BYTES)
    replayed = SETTINGS.model_copy(
        update={"replay": UniformReplay(fraction=0.5, capacity_unrolls=1000), "learner": LearnerSettings(queue_batches=3)}
    )
    plan = make_plan(replayed, HALF_BUSY, FIGURES)
    # Two shards, because 160,000 frames/s are trained on.
    assert plan.learners.shards == 2
    # Each shard holds half of 1,000 replayed unrolls, and twice the larger of 3 x 8 granted and 8 + 15.
    assert value(plan, "memory", "memory of a learner shard") == pytest.approx(500e6 + (500 + 48) * UNROLL_BYTES)


def test_totals_are_the_sums_over_pods() -> None:
    plan = make_plan(SETTINGS, HALF_BUSY, FIGURES)
    assert value(plan, "together", "cores") == 10 * 1 + 1 * 3 + 1
    assert value(plan, "together", "GPUs") == 1
    pods = {pod.role: pod for pod in plan.pods}
    assert pods["learner"].bytes_in == pytest.approx(pods["actor"].bytes_out * 10)
    assert pods["actor"].bytes_in * 10 == pytest.approx(plan.servers.bytes_out)
    received = sum(pod.pods * pod.bytes_in for pod in plan.pods)
    sent = sum(pod.pods * pod.bytes_out for pod in plan.pods)
    assert received == pytest.approx(sent)
    assert value(plan, "together", "network") == pytest.approx(received)


EVERYTHING = with_replay(8 << 30).model_copy(
    update={
        "agents": 2,
        "actor": ActorSettings(environments=16, inference="remote"),
        "evaluation": EvaluationSettings(interval_seconds=60.0),
        "loss": DiceSettings(),
    }
)


@pytest.mark.parametrize("frames_per_second", [80_000.0, 2_400_000.0])
def test_total_bytes_sent_equal_total_bytes_received(frames_per_second: float) -> None:
    plan = make_plan(EVERYTHING, replace(HALF_BUSY, frames_per_second=frames_per_second, learner_frames_per_second=1e6), FIGURES)
    assert {"replay", "inference", "evaluator", "bandit"} <= {pod.role for pod in plan.pods}
    assert sum(pod.pods * pod.bytes_in for pod in plan.pods) == pytest.approx(sum(pod.pods * pod.bytes_out for pod in plan.pods))


@pytest.mark.parametrize(
    ("options", "levels"),
    [
        (HALF_BUSY, 0),
        # 312.5 versions a second, of which a replica sees 100: one level of 3 replicas where its links are wide enough, else two levels.
        (replace(HALF_BUSY, frames_per_second=800_000.0, learner_frames_per_second=1e6, pod_gigabits=40.0), 1),
        (replace(HALF_BUSY, frames_per_second=800_000.0, learner_frames_per_second=1e6), 2),
        (replace(HALF_BUSY, frames_per_second=2_400_000.0, learner_frames_per_second=1e6), 3),
        # Each server feeds one replica: a chain of four.
        (replace(HALF_BUSY, frames_per_second=800_000.0, learner_frames_per_second=1e6, pod_gigabits=7.0), 4),
    ],
)
def test_server_levels_pods_and_totals_are_consistent(options: PlanOptions, levels: int) -> None:
    plan = make_plan(SETTINGS, options, FIGURES)
    assert plan.servers.levels == levels
    servers = [pod for pod in plan.pods if pod.role.startswith("paramserver")]
    assert sum(pod.pods for pod in servers) == 1 + plan.servers.replicas + plan.servers.between
    assert sum(pod.pods * pod.bytes_in for pod in plan.pods) == pytest.approx(sum(pod.pods * pod.bytes_out for pod in plan.pods))
    assert value(plan, "together", "network") == pytest.approx(sum(pod.pods * pod.bytes_in for pod in plan.pods))
    assert value(plan, "together", "cores") == sum(pod.pods * pod.cores for pod in plan.pods)
    assert value(plan, "together", "memory") == pytest.approx(sum(pod.pods * pod.memory_bytes for pod in plan.pods))


def test_actors_are_proportional_to_frames() -> None:
    once, twice = (make_plan(SETTINGS, replace(HALF_BUSY, frames_per_second=rate), FIGURES) for rate in (1e6, 2e6))
    assert twice.actors.cores == pytest.approx(2 * once.actors.cores)
    assert twice.servers.bytes_out == pytest.approx(2 * once.servers.bytes_out)


def test_an_unmeasured_network_is_refused() -> None:
    settings = SETTINGS.model_copy(update={"network": NetworkSettings(torso="nature")})
    with pytest.raises(FiguresError, match=r"no figures for atari with network\.torso nature"):
        make_plan(settings, HALF_BUSY, FIGURES)
    board = RunSettings(env=CatchSettings(tasks=("catch",)), network=NetworkSettings(torso="mlp"))
    with pytest.raises(FiguresError, match="no figures for catch"):
        make_plan(board, HALF_BUSY, FIGURES)


@pytest.mark.parametrize("torso", ["shallow", "deep"])
def test_parameter_counts_in_the_package_match_the_networks(torso: str) -> None:
    settings = RunSettings(network=NetworkSettings(torso=torso))
    assert package_figures().stage_for(settings).parameters == num_parameters(settings)


def test_every_figure_of_the_package_names_its_source() -> None:
    figures = package_figures()
    for source in (
        figures.replay.source,
        figures.ingest.source,
        figures.weights.source,
        figures.bandit.source,
        figures.memory.source,
        figures.compression.source,
    ):
        assert len(source) > 20
    for stage in figures.stages:
        assert "benchmarks/results/" in stage.source
        assert "cores" in stage.source
    assert min(figures.ingest.microseconds_per_message, figures.ingest.microseconds_per_unroll) > 0
    assert min(figures.weights.microseconds_per_megabyte, figures.weights.microseconds_per_not_modified) > 0
