"""``herd status --release`` as a whole command, and the output that it prints."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from io import StringIO

import pytest
from rich.console import Console

from herd.cli.release_status import take_picture, whom_to_ask
from herd.cli.release_view import age, print_release
from herd.kube.errors import KubeError
from herd.kube.pods import read_actor_rows, read_pod
from tests.kube.conftest import Answer, Served
from tests.kube.fake_objects import exposition, holder_page, learner_page, pending_pod, pod, waiting_pod, workload
from tests.kube.fake_pod_table import pod_table

Herd = Callable[..., Answer]


def test_a_release_is_shown_with_pods_versions_speed_and_returns(herd_process: Herd) -> None:
    answer = herd_process("status", "--release", "herd", "--seconds", "0.3")
    assert (answer.code, answer.errors) == (0, "")
    lines = answer.output.splitlines()
    assert lines[0] == "herd in namespace rl"
    assert any(line.split() == ["catch", "80", "0.75", "-"] for line in lines)  # episodes of both shards; the return of one
    assert "3 of 3 actors" in answer.output
    rows = {line.split()[0]: line.split() for line in lines if line.strip()}
    assert rows["learner"][1:3] == ["2/2", "0"]
    assert rows["actor"][1:3] == ["3/3", "0"]
    assert rows["herd-learner-1"][1:6] == ["1", "Running", "0", "3.120", "0s"]
    assert rows["herd-paramserver-0"][1:5] == ["0", "Running", "0", "3.119"]
    assert rows["herd-paramserver-replica-0"][3:5] == ["2", "3.118"]
    assert rows["herd-actor-5d9f7c-ccccc"][1:5] == ["-", "Running", "0", "3.115"]
    assert "node-1" in rows["herd-actor-5d9f7c-ccccc"]
    assert "ended with exit code 75 (Error)" in answer.output  # the replica's last exit


def test_json_has_every_number(herd: Herd) -> None:
    answer = herd("status", "--release", "herd", "--seconds", "0.3", "--json")
    assert (answer.code, answer.errors) == (0, "")
    said = json.loads(answer.output)
    assert said["release"] == "herd"
    assert said["namespace"] == "rl"
    assert said["components"]["learner"] == {
        "component": "learner", "kind": "StatefulSet", "wanted": 2, "ready": 2, "restarts": 0, "states": {"Running": 2},
    }  # fmt: skip
    pods = {each["name"]: each for each in said["pods"]}
    assert pods["herd-learner-1"]["rank"] == 1
    assert pods["herd-learner-1"]["version"] == {"lineage": 3, "learner_updates": 120, "age_seconds": 0.4}
    assert pods["herd-actor-5d9f7c-aaaaa"]["version"]["learner_updates"] == 117
    assert said["frames_per_second"] > 0
    assert said["env_frames_since_learner_start"] > 2_000
    assert said["learner_updates"] == 120
    assert said["queue_unrolls"] == 7
    assert said["queue_capacity_unrolls"] == 128
    assert said["policy_lag"] == 2.0
    assert said["tasks"] == [{"name": "catch", "episodes": 80, "episode_return": 0.75, "env_frames_since_learner_start": 0.0}]
    assert said["actors_asked"] == 3
    assert said["notes"] == []


def test_status_names_the_bottleneck(served: Served) -> None:
    ticks = iter(range(100))
    for word in ("aaaaa", "bbbbb", "ccccc"):
        # Each request sees one more second of waiting than the one before, and requests are far less than a second apart.
        served.fake.pages[f"herd-actor-5d9f7c-{word}"] = lambda: holder_page(updates=1, blocked=float(next(ticks)))
    cluster = served.connect()
    picture = take_picture(cluster, "herd", 0.2, 16)
    cluster.close()
    assert picture.run.bottleneck == "actors wait for the learner"
    assert picture.run.blocked_share is not None
    assert picture.run.blocked_share > 0.9


def test_a_single_observation_has_no_rates(herd: Herd) -> None:
    said = json.loads(herd("status", "--release", "herd", "--seconds", "0", "--json").output)
    assert said["frames_per_second"] is None
    assert said["bottleneck"] == "starting"
    assert said["learner_updates"] == 120


def test_many_actors_are_listed_in_pages_and_a_sample_is_scraped(served: Served) -> None:
    fake = served.fake
    fake.objects["pods"] = [each for each in fake.objects["pods"] if "actor" not in each["metadata"]["name"]]
    many = [
        pod(f"herd-actor-5d9f7c-{number:05}", "actor", ready=number % 100 != 7, restarts=int(number == 1234)) for number in range(1_300)
    ]
    fake.objects["pods"] += many
    fake.objects["deployments"][0] = workload("Deployment", "actor", 1_300, ready=1_287)
    fake.pages |= {each["metadata"]["name"]: holder_page(updates=1) for each in many}
    cluster = served.connect()
    picture = take_picture(cluster, "herd", 0.0, 10)
    cluster.close()
    asked = [path for _, path, _ in fake.requests if "/proxy/" in path]
    assert len([path for path in asked if "herd-actor" in path]) == 10
    assert len(asked) == 14
    tables = [query for _, path, query in fake.requests if path.endswith("/pods") and "includeObject" in query]
    assert [query.get("continue") for query in tables] == [None, "1000"]
    actors = picture.components[-1]
    assert (actors.component, actors.wanted, actors.ready, actors.restarts) == ("actor", 1_300, 1_287, 1)
    console = Console(file=StringIO(), width=200)
    print_release(picture, show_all=False, console=console)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert text.count("herd-actor-5d9f7c-") == 12
    assert text.count("not ready") == 12  # pods in trouble come first
    assert "and 1,288 more (--all)" in text
    console = Console(file=StringIO(), width=200)
    print_release(picture, show_all=True, console=console)
    assert console.file.getvalue().count("herd-actor-5d9f7c-") == 1_300  # type: ignore[attr-defined]


def test_the_sample_is_spread_over_all_running_actors() -> None:
    pods = [read_pod(pod(f"herd-actor-{number:03}", "actor")) for number in range(100)]
    pods.append(read_pod(pending_pod("herd-actor-100", "actor")))
    pods += [read_pod(pod(f"herd-{name}-0", name)) for name in ("learner", "bandit")]
    moving, others = whom_to_ask([each for each in pods if each], 4)
    assert [each.name for each in moving] == ["herd-learner-0", "herd-actor-000", "herd-actor-025", "herd-actor-050", "herd-actor-075"]
    assert [each.name for each in others] == ["herd-bandit-0"]


@pytest.mark.parametrize(("shards", "replicas", "actors"), [(1, 0, 12), (2, 16, 9), (8, 4, 4), (16, 4, 4)])
def test_the_number_of_metrics_requests_is_bounded(shards: int, replicas: int, actors: int) -> None:
    """At most 28 requests for metrics over both looks, as long as all shards and four actors are asked."""
    numbers = {"learner": shards, "paramserver": 1, "paramserver-replica": replicas, "bandit": 1, "actor": 4_000}
    pods = [read_pod(pod(f"herd-{name}-{number}", name)) for name, count in numbers.items() for number in range(count)]
    moving, others = whom_to_ask([each for each in pods if each], None)
    assert len(moving) == shards + actors
    assert len(others) == 2 + min(4, replicas)
    assert 2 * len(moving) + len(others) <= max(28, 2 * (shards + 4) + len(others))


MEMBERS = """herd_population_fitness{agent="0"} 0.5
herd_population_setting{agent="0",setting="loss.entropy_cost"} 0.01
herd_population_setting{agent="0",setting="optimizer.learning_rate"} 0.002
herd_population_setting{agent="1",setting="loss.entropy_cost"} 0.003
"""


def test_agents_and_actor_groups_are_shown_as_components(served: Served, herd: Herd) -> None:
    """The learners of two agents have the same ranks."""
    fake = served.fake
    fake.objects["pods"] = [each for each in fake.objects["pods"] if "learner" not in each["metadata"]["name"]]
    fake.objects["statefulsets"] = [each for each in fake.objects["statefulsets"] if "learner" not in each["metadata"]["name"]]
    for agent in range(2):
        made = pod(f"herd-learner-{agent}-0", "learner")
        made["metadata"]["labels"]["herd/agent"] = str(agent)
        fake.objects["pods"].append(made)
        own = workload("StatefulSet", "learner", 1)
        own["metadata"]["name"] = f"herd-learner-{agent}"
        fake.objects["statefulsets"].append(own)
        frames = itertools.count(1_000 * (agent + 1), 10)
        fake.pages[f"herd-learner-{agent}-0"] = lambda frames=frames, agent=agent: learner_page(  # type: ignore[misc]
            frames=next(frames), updates=100 + agent
        )
    spot = workload("Deployment", "actor", 2)
    spot["metadata"]["name"] = "herd-actor-spot"
    fake.objects["deployments"].append(spot)
    fake.objects["pods"].append(pod("herd-population-0", "population"))
    fake.objects["statefulsets"].append(workload("StatefulSet", "population", 1))
    fake.pages["herd-population-0"] = MEMBERS
    said = json.loads(herd("status", "--release", "herd", "--seconds", "0.2", "--json").output)
    assert {name: row["wanted"] for name, row in said["components"].items()} == {
        "learner": 2, "paramserver": 1, "paramserver-replica": 1, "actor": 5, "population": 1,
    }  # fmt: skip
    assert said["members"] == [
        {"agent": 0, "fitness": 0.5, "settings": {"loss.entropy_cost": 0.01, "optimizer.learning_rate": 0.002}},
        {"agent": 1, "fitness": None, "settings": {"loss.entropy_cost": 0.003}},
    ]
    assert [each["learner_updates"] for each in said["agents"]] == [100, 101]
    lines = [line.split() for line in herd("status", "--release", "herd", "--seconds", "0").output.splitlines()]
    assert ["0", "0.50", "entropy_cost", "0.01,", "learning_rate", "0.002"] in lines
    assert ["1", "-", "entropy_cost", "0.003"] in lines
    assert said["env_frames_since_learner_start"] == 1_010 + 2_010
    assert said["learner_updates"] == 201
    assert said["frames_per_second"] > 0
    assert [(each["agent"], each["rank"]) for each in said["pods"] if each["component"] == "learner"] == [(0, 0), (1, 0)]


def test_one_actor_of_each_kind_of_problem_shows_its_reason(served: Served, herd: Herd) -> None:
    names = [each["metadata"]["name"] for each in served.fake.objects["pods"] if "actor" in each["metadata"]["name"]]
    pods = [each for each in served.fake.objects["pods"] if each["metadata"]["name"] not in names]
    why = "0/3 nodes are available: 3 Insufficient cpu."
    served.fake.objects["pods"] = [
        *pods,
        waiting_pod("herd-actor-5d9f7c-aaaaa", "actor", "CrashLoopBackOff", "back-off 40s restarting failed", restarts=4),
        pending_pod("herd-actor-5d9f7c-bbbbb", "actor", why),
        pending_pod("herd-actor-5d9f7c-ccccc", "actor", why),
    ]
    said = json.loads(herd("status", "--release", "herd", "--seconds", "0", "--json").output)
    trouble = {
        each["name"][-5:]: (each["state"], each["restarts"], each["trouble"]) for each in said["pods"] if each["component"] == "actor"
    }
    assert trouble["aaaaa"] == ("CrashLoopBackOff", 4, "back-off 40s restarting failed")
    assert trouble["bbbbb"] == ("Unschedulable", 0, why)
    assert trouble["ccccc"] == ("Pending", 0, "")


def test_ages_in_a_pod_table_are_parsed() -> None:
    now = datetime(2026, 11, 22, tzinfo=UTC)
    for seconds, known_to in ((45, 1), (200, 1), (1_000, 60), (12_000, 60), (100_000, 3_600), (5_000_000, 86_400)):
        made = pod("herd-actor-1", "actor")
        made["metadata"]["creationTimestamp"] = (datetime.now(UTC) - timedelta(seconds=seconds)).isoformat()
        [row] = read_actor_rows(pod_table([made], {}), now)
        age = row.age_seconds(now)
        assert age is not None
        assert 0 <= seconds + 30 - age <= known_to + 60, seconds
    table = pod_table([pod("herd-actor-1", "actor")], {})
    table["columnDefinitions"][3]["name"] = "Neustarts"
    with pytest.raises(KubeError, match="cannot be read"):
        read_actor_rows(table, now)


def test_problems_of_pods_are_shown_with_their_reasons(served: Served, herd: Herd) -> None:
    served.fake.objects["pods"][0] = waiting_pod(
        "herd-learner-0", "learner", "CrashLoopBackOff", "back-off 40s restarting failed", restarts=4
    )
    served.fake.objects["pods"][1] = pending_pod("herd-learner-1", "learner", "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.")
    answer = herd("status", "--release", "herd", "--seconds", "0")
    assert answer.code == 0
    assert "CrashLoopBackOff" in answer.output
    assert "back-off 40s restarting failed" in answer.output
    assert "Unschedulable" in answer.output
    assert "3 Insufficient nvidia.com/gpu." in answer.output
    assert "frames/s" not in answer.output  # values of a run are unknown while its learners do not answer
    said = json.loads(herd("status", "--release", "herd", "--seconds", "0", "--json").output)
    assert said["env_frames_since_learner_start"] is None


def test_pods_without_metrics_give_one_note_per_cause(served: Served, herd: Herd) -> None:
    served.fake.forbidden.add(("get", "pods/proxy"))
    answer = herd("status", "--release", "herd", "--seconds", "0")
    assert answer.code == 0
    assert "herd-learner-1" in answer.output
    notes = [line for line in answer.output.splitlines() if line.startswith("no metrics")]
    assert notes == [
        "no metrics of herd-paramserver-0 and 6 more: not allowed to get pods/proxy in namespace rl (user jane): "
        'this needs verb "get" on resource "pods/proxy"'
    ]


def test_if_no_pod_answers_the_network_policy_is_named(served: Served, herd: Herd) -> None:
    served.fake.pages.clear()
    said = json.loads(herd("status", "--release", "herd", "--seconds", "0", "--json").output)
    assert "check that networkPolicy.metricsFrom allows it" in said["notes"][-1]
    served.fake.pages["herd-paramserver-0"] = holder_page(updates=3)
    said = json.loads(herd("status", "--release", "herd", "--seconds", "0", "--json").output)
    assert not any("metricsFrom" in note for note in said["notes"])


def test_invalid_metrics_of_a_pod_give_a_note(served: Served, herd: Herd) -> None:
    served.fake.pages["herd-paramserver-0"] = "<html>not metrics</html>"
    del served.fake.pages["herd-actor-5d9f7c-bbbbb"]
    said = json.loads(herd("status", "--release", "herd", "--seconds", "0", "--json").output)
    assert len(said["notes"]) == 2
    assert any("herd-paramserver-0 did not answer with metrics" in note for note in said["notes"])
    assert any("herd-actor-5d9f7c-bbbbb" in note and "connection refused" in note for note in said["notes"])
    assert said["actors_asked"] == 2


def test_pods_without_weights_have_no_version(served: Served) -> None:
    served.fake.pages["herd-actor-5d9f7c-aaaaa"] = holder_page(updates=0, lineage=0, age="NaN")
    served.fake.pages["herd-paramserver-0"] = exposition(weights_lineage=1)
    cluster = served.connect()
    rows = {row.pod.name: row.version for row in take_picture(cluster, "herd", 0.0, 16).rows}
    cluster.close()
    assert rows["herd-actor-5d9f7c-aaaaa"] is None
    assert rows["herd-paramserver-0"] is None
    assert rows["herd-actor-5d9f7c-bbbbb"] is not None


def test_an_unknown_release_is_answered_with_the_existing_ones(served: Served, herd_process: Herd) -> None:
    answer = herd_process("status", "--release", "hrd")
    assert (answer.code, answer.output) == (2, "")
    assert answer.errors == "herd: no release hrd in namespace rl; its releases are: herd\n"
    answer = herd_process("status", "--release", "herd", "-n", "empty")
    assert (
        answer.errors == "herd: no release herd in namespace empty; other namespaces have: herd (--namespace rl), other (--namespace lab)\n"
    )
    served.fake.forbidden.add(("list everywhere", "deployments"))
    answer = herd_process("status", "--release", "herd", "--namespace", "empty")
    assert answer.errors == "herd: no release herd in namespace empty; this namespace has no releases\n"


def test_invalid_combinations_of_options_are_refused(herd: Herd) -> None:
    for words, problem in (
        (["--namespace", "rl"], "--namespace needs --release"),
        (["-n", "rl"], "--namespace needs --release"),
        (["--seconds", "0"], "--seconds needs --release"),
        (["--release", "herd", "runs/pong"], "cannot be combined"),
        (["--release", "herd", "--seconds", "-1"], "--seconds: should be a number from 0 to 600"),
        (["--release", "herd", "--seconds", "nan"], "--seconds: should be a number from 0 to 600"),
        (["--release", "herd", "--actors", "-1"], "--actors: should be"),
    ):
        answer = herd("status", *words)
        assert (answer.code, answer.output) == (2, ""), words
        assert problem in answer.errors
        assert answer.errors.count("\n") == 1


def test_ages_are_formatted_briefly() -> None:
    assert [age(seconds) for seconds in (None, 0.0, 45.9, 60, 200, 3_600, 12_000, 40_000, 97_000, 5e6)] == [
        "-", "0s", "45s", "1m", "3m20s", "1h", "3h20m", "11h", "1d2h", "57d",
    ]  # fmt: skip


def test_a_release_without_pods_is_shown(served: Served, herd: Herd) -> None:
    served.fake.objects["pods"] = []
    answer = herd("status", "--release", "herd", "--seconds", "0")
    assert answer.code == 0
    assert "0/2" in answer.output
