from __future__ import annotations

import errno
import socket
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from herd.config.addresses import interface
from herd.config.encryption_keys import CURVE_VARIABLES, RUN_TOKEN_VARIABLE, VARIABLES_OF_ROLE
from herd.config.loading import load_settings
from herd.config.run import RunSettings
from herd.launch import plan
from herd.launch.plan import ChildPlan, PortError, Start, held_ports, placed_here, plan_children
from herd.service.identity import Identity, check_identity, take_identity
from herd.topology import service_of
from tests.ipv6 import needs_ipv6

DICE = ("--loss.kind", "dice")


FIRST = Start(restarts=0, trained_seconds=0.0)


def read(plan: ChildPlan, start: Start = FIRST) -> tuple[RunSettings, Identity]:
    """What the child will read, without its configuration file."""
    command = plan.command(start)
    # -P: a file of the user's named queue.py replaces no module.
    assert command[:6] == [sys.executable, "-P", "-m", f"herd_{plan.service}", "--config", "runs/x/config.yaml"]
    identity, words, _ = take_identity(service_of(plan.service), command[6:], {})
    return load_settings([], words, {}), identity


def parsed(plan: ChildPlan, start: Start = FIRST) -> RunSettings:
    return read(plan, start)[0]


def planned(*words: str, environ: dict[str, str] | None = None) -> dict[str, ChildPlan]:
    settings = load_settings([], list(words), {})
    with placed_here(settings) as placed:
        return {plan.name: plan for plan in plan_children(settings, Path("runs/x"), placed, environ or {})}


def identities(*words: str) -> dict[str, Identity]:
    with placed_here(load_settings([], list(words), {})) as placed:
        return {each.place.name: each.identity for each in placed}


def at(server: Identity) -> str:
    return f"tcp://{server.listen}"


EVERYTHING = (
    *(*DICE, "--replay.kind", "shared", "--replay_service.replicas", "2", "--actor.inference", "remote", "--inference.replicas", "2"),
    *("--actor.environments", "4", "--actor.count", "5", "--paramserver.replicas", "2", "--learner.shards", "2", "--agents", "2"),
    *("--sweep", '{"loss.policy_cost": [0.1, 0.2]}', "--population.strategy", "pbt", "--evaluation.interval_seconds", "60"),
)


def test_every_process_is_told_whom_it_asks() -> None:
    found = identities(*EVERYTHING)
    numbers = {"paramserver": 3, "bandit": 1, "replay": 2, "population": 1, "inference": 2, "learner": 4, "actor": 5, "evaluator": 1}
    assert list(found) == [f"{service}-{number}" for service, count in numbers.items() for number in range(count)]
    servers = [each for name, each in found.items() if not name.startswith(("actor", "evaluator"))]
    assert len({each.listen.port for each in servers} - {0}) == len(servers)
    root, *replicas = (at(found[f"paramserver-{number}"]) for number in range(3))
    several = {service: tuple(at(found[f"{service}-{number}"]) for number in range(numbers[service])) for service in ("replay", "learner")}
    bandit, population = at(found["bandit-0"]), at(found["population-0"])
    assert found["paramserver-0"].addresses == found["bandit-0"].addresses == found["replay-0"].addresses == {}
    for number in range(2):
        assert found[f"paramserver-{number + 1}"].addresses == {"paramserver": (root,)}
        assert found[f"inference-{number}"].addresses == {"paramserver": (replicas[number],)}
    for number in range(4):
        learner = found[f"learner-{number}"]
        assert learner.addresses == {"paramserver": (root,), "replay": several["replay"], "population": (population,)}
        assert (learner.agent, learner.index) == (number // 2, None)
    for number in range(5):  # neighbours ask different servers
        actor, inference = found[f"actor-{number}"], at(found[f"inference-{number % 2}"])
        told = {"learner": several["learner"], "paramserver": (replicas[number % 2],), "bandit": (bandit,), "inference": (inference,)}
        assert (actor.addresses, actor.agent, actor.index) == (told, None, number)  # the agent is leased
    assert found["evaluator-0"].addresses == {"paramserver": (replicas[0],), "bandit": (bandit,)}
    assert [found[f"{service}-1"].index for service in ("paramserver", "replay", "inference")] == [1, 1, 1]
    with placed_here(load_settings([], list(EVERYTHING), {})) as one, placed_here(load_settings([], list(EVERYTHING), {})) as other:
        ports = [{each.identity.listen.port for each in placed} - {0} for placed in (one, other)]
        assert not set.intersection(*ports)  # two runs share a machine


def test_children_read_the_identity_that_they_were_given() -> None:
    for words in ((), EVERYTHING, ("--placement.host", "0.0.0.0", "--placement.metrics_host", "*")):
        with placed_here(settings := load_settings([], list(words), {})) as placed:
            for plan, each in zip(plan_children(settings, Path("runs/x"), placed, {}), placed, strict=True):
                assert read(plan)[1] == each.identity
                check_identity(each.place.component, each.identity, settings)


def test_each_agent_has_its_own_group_of_learner_shards() -> None:
    plans = planned("--agents", "2", "--learner.shards", "2", "--actor.count", "2", "--learner.threads", "3", environ={"RANK": "7"})
    assert list(plans) == ["paramserver-0", *(f"learner-{number}" for number in range(4)), "actor-0", "actor-1"]
    learners = [plans[f"learner-{number}"] for number in range(4)]
    assert [plan.agent for plan in learners] == [0, 0, 1, 1]
    assert [plans[name].agent for name in ("paramserver-0", "actor-0")] == [None, None]
    assert [plan.environment["RANK"] for plan in learners] == ["0", "1", "0", "1"]
    assert [plan.environment["LOCAL_RANK"] for plan in learners] == ["0", "1", "2", "3"]
    assert {plan.environment["MASTER_ADDR"] for plan in learners} == {"127.0.0.1"}
    meeting = [plan.environment["MASTER_PORT"] for plan in learners]
    assert meeting[0] == meeting[1] != meeting[2] == meeting[3]
    # One actor for each agent, which therefore connects to both shards.
    assert load_settings([], ["--actor.links", "2"], {}).actor.links == parsed(plans["actor-0"]).actor.links == 2


def test_only_the_first_process_of_a_service_uses_its_fixed_ports() -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe, socket.create_server(("127.0.0.1", 0)) as other:
        port, metrics_port = probe.getsockname()[1], other.getsockname()[1]
    fixed = ("--placement.ports", f'{{"paramserver": {port}}}', "--placement.metrics_ports", f'{{"paramserver": {metrics_port}}}')
    found = identities("--paramserver.replicas", "1", *fixed)
    root, replica = found["paramserver-0"], found["paramserver-1"]
    assert (root.listen.port, root.metrics.port, replica.metrics.port) == (port, metrics_port, 0)
    assert replica.addresses == {"paramserver": (at(root),)}
    assert replica.listen.port not in (0, port)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = f'{{"bandit": {taken.getsockname()[1]}}}'
        with pytest.raises(PortError, match=r"^placement\.ports bandit: port \d+ of 127\.0\.0\.1 is in use"):
            identities(*DICE, "--placement.ports", number)
        identities("--placement.ports", number)  # no process will bind it
        with pytest.raises(PortError, match=r"^placement\.metrics_ports bandit: port \d+ of 127\.0\.0\.1 is in use"):
            identities(*DICE, "--placement.metrics_ports", number)


def test_a_restarted_learner_resumes_with_the_remaining_time() -> None:
    learner = planned("--stop.wall_seconds", "120")["learner-0"]
    first, later = parsed(learner, Start(0, 1.5)), parsed(learner, Start(2, 100.0))
    assert (first.resume, first.stop.wall_seconds) == (False, 118.5)
    assert (later.resume, later.stop.wall_seconds) == (True, 20.0)
    overdue = parsed(learner, Start(1, 500.0)).stop.wall_seconds
    assert overdue is not None
    assert 0 < overdue < 0.01
    assert parsed(planned("--resume")["learner-0"]).resume is True


def test_the_environment_of_children_sets_allocator_and_threads() -> None:
    plans = planned("--actor.inference_threads", "3", "--learner.threads", "5", environ={"PATH": "/bin", "HERD_SEED": "4"})
    learner, actor = plans["learner-0"].environment, plans["actor-1"].environment
    for environment in (learner, actor):
        assert environment["MALLOC_MMAP_MAX_"] == "0"
        assert environment["MALLOC_TRIM_THRESHOLD_"] == "100000000000"
        assert environment["PATH"] == "/bin"
        assert "HERD_SEED" not in environment  # config.yaml holds the resolved value; the command line took precedence over the variable
    assert (learner["OMP_NUM_THREADS"], actor["OMP_NUM_THREADS"]) == ("5", "3")


@needs_ipv6
def test_shards_meet_at_the_learners_interface() -> None:
    learner = planned("--learner.shards", "2", "--placement.host", "[::1]")["learner-1"]
    assert learner.environment["MASTER_ADDR"] == "::1"
    (address,) = identities("--placement.host", "::1")["actor-0"].addresses["learner"]
    assert address.rpartition(":")[0] == "tcp://[::1]"


@pytest.mark.skipif(sys.platform != "linux", reason="other kernels do not let two sockets have a port")
@pytest.mark.parametrize("host", ["127.0.0.1", "*", pytest.param("::1", marks=needs_ipv6)])
def test_a_held_port_is_reserved_for_a_child_and_its_replacement(host: str) -> None:
    family, address = interface(host)
    with held_ports({"learner.port": (host, 0)}) as held:
        for _ in range(2):
            # The kernel tries the same when it looks for a free port.
            with socket.socket(family) as other, pytest.raises(OSError, match="in use"):
                other.bind((address, held["learner.port"]))
            with socket.create_server((address, held["learner.port"]), family=family):
                pass


def test_held_ports_works_where_a_port_cannot_be_bound_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    bound = plan._bound

    def refuse(kept: ExitStack, family: socket.AddressFamily, address: str, port: int) -> socket.socket:
        if port:
            raise OSError(errno.EADDRINUSE, "in use")
        return bound(kept, family, address, port)

    monkeypatch.setattr(plan, "_bound", refuse)
    with held_ports({"learner.port": ("127.0.0.1", 0)}) as chosen:
        assert chosen["learner.port"] > 0


def test_two_settings_with_the_same_port_are_refused() -> None:
    with held_ports({"mine": ("127.0.0.1", 0)}) as mine:
        one = ("127.0.0.1", mine["mine"])
        with pytest.raises(PortError, match=r"^b\.port"), held_ports({"a.port": one, "b.port": one}):
            pass


def test_a_foreign_interface_is_refused() -> None:
    with pytest.raises(PortError, match=r"^placement\.host: cannot bind 192\.0\.2\.1"), held_ports({"learner.port": ("192.0.2.1", 0)}):
        pass


def test_wildcard_hosts_are_reached_over_the_loopback() -> None:
    for host in ("0.0.0.0", "*", "::"):
        learner = identities("--placement.host", host)["learner-0"]
        assert learner.listen.host == host
        assert learner.addresses["paramserver"][0].startswith("tcp://127.0.0.1:")


def test_actors_and_evaluators_run_at_lower_priority() -> None:
    plans = planned("--actor.count", "2", "--evaluation.interval_seconds", "60")
    assert plans["learner-0"].niceness == plans["paramserver-0"].niceness == 0
    assert plans["evaluator-0"].niceness > plans["actor-0"].niceness == plans["actor-1"].niceness > 0


def test_each_process_gets_only_the_keys_of_its_roles() -> None:
    keys = dict.fromkeys(CURVE_VARIABLES, "00" * 32)
    plans = planned("--security.curve_keys_from_environment", "--paramserver.replicas", "1", environ=keys)
    given = {name: set(plan.environment) & set(keys) for name, plan in plans.items()}
    client, server = set(VARIABLES_OF_ROLE["client"]), set(VARIABLES_OF_ROLE["server"])
    assert given == {
        "paramserver-0": server,
        "paramserver-1": client | server,
        "learner-0": client | server,
        "actor-0": client,
        "actor-1": client,
    }
    assert not any("00" * 32 in word for plan in plans.values() for word in plan.command(FIRST))
    # With keys from a folder, keys in the environment would be an error in each process.
    assert not set(planned(environ=keys)["learner-0"].environment) & set(keys)


def test_children_get_the_run_token_if_there_is_one() -> None:
    environ = {"PATH": "/bin", RUN_TOKEN_VARIABLE: "secret"}
    assert {plan.environment[RUN_TOKEN_VARIABLE] for plan in planned(environ=environ).values()} == {"secret"}
    assert all(RUN_TOKEN_VARIABLE not in plan.environment for plan in planned().values())


def test_each_service_uses_the_key_of_its_own_name_if_it_exists(tmp_path: Path) -> None:
    for name in ("learner", "paramserver"):
        (tmp_path / f"client-{name}.secret").touch()
    words = ("--security.curve_keys", str(tmp_path), "--paramserver.replicas", "1")
    clients = {name: parsed(plan).security.curve_client for name, plan in planned(*words).items()}
    assert clients == {
        "paramserver-0": "default",
        "paramserver-1": "paramserver",
        "learner-0": "learner",
        "actor-0": "default",
        "actor-1": "default",
    }
    (tmp_path / "client-learner-agent-1.secret").touch()
    clients = {name: parsed(plan).security.curve_client for name, plan in planned(*words, "--agents", "2").items()}
    assert [clients[name] for name in ("learner-0", "learner-1")] == ["learner", "learner-agent-1"]
    named = planned(*words, "--security.curve_client", "mine")
    assert all("--security.curve_client" not in plan.command(FIRST) for plan in named.values())


def test_what_a_run_can_do_without() -> None:
    """The learner, every server, and each agent's last actor are needed. Every actor is needed in lockstep, and with several shards unless
    it has all links.
    """
    spared = {name: plan.spare for name, plan in planned(*EVERYTHING).items()}
    kinds = {"evaluator-0": 1}
    assert spared == {name: kinds.get(name, 1 if "learner" in name else 3 if "actor" in name else 0) for name in spared}
    assert planned(*EVERYTHING, "--actor.links", "1")["actor-0"].spare == 0
    assert [plan.spare for plan in planned("--actor.count", "1").values()] == [0, 0, 0]
    lockstep = ("--actor.lockstep", "true", "--actor.count", "2", "--actor.environments", "16", "--learner.batch_size", "32")
    assert planned(*lockstep)["actor-0"].spare == 0
