from __future__ import annotations

import errno
import itertools
import socket
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from herd.config.addresses import interface
from herd.config.curve_keys import CURVE_VARIABLES, RUN_TOKEN_VARIABLE, VARIABLES_OF_ROLE
from herd.config.loading import load_settings
from herd.config.loading.sources import split_arguments
from herd.config.settings import RunSettings
from herd.supervisor import ports
from herd.supervisor.plan import ChildPlan, Start, held_run_ports, plan_children
from herd.supervisor.ports import PortError, held_ports, local_address
from tests.ipv6 import needs_ipv6

DICE = ("--loss.kind", "dice")


FIRST = Start(restarts=0, trained_seconds=0.0)


def parsed(plan: ChildPlan, start: Start = FIRST) -> RunSettings:
    """The settings that the child will see, without its configuration file."""
    command = plan.command(start)
    assert command[:3] == [sys.executable, "-m", f"herd_{plan.service}"]
    files, overrides = split_arguments(command[3:], file_option="--config")
    assert files == [Path("runs/x/config.yaml")]
    return load_settings([], ["--agents", "256", *overrides], {})  # 256 is the maximum; the actual number is in config.yaml


def planned(*words: str, environ: dict[str, str] | None = None) -> dict[str, ChildPlan]:
    settings = load_settings([], list(words), {})
    with held_run_ports(settings) as held:
        return {plan.name: plan for plan in plan_children(settings, Path("runs/x"), held, environ or {})}


def test_all_processes_get_the_same_addresses() -> None:
    plans = planned("--actor.count", "3")
    assert list(plans) == ["paramserver-0", "learner-0", "actor-0", "actor-1", "actor-2"]
    paramserver, learner = parsed(plans["paramserver-0"]), parsed(plans["learner-0"])
    assert 0 < paramserver.paramserver.port != learner.learner.port > 0
    assert learner.learner.paramserver == f"tcp://127.0.0.1:{paramserver.paramserver.port}"
    for index in range(3):
        actor = parsed(plans[f"actor-{index}"]).actor
        assert actor.index == index
        assert actor.learner == (f"tcp://127.0.0.1:{learner.learner.port}",)
        assert actor.paramserver == learner.learner.paramserver


def test_actors_are_spread_over_replicas_and_learners_use_the_root() -> None:
    plans = planned("--paramserver.replicas", "2", "--actor.count", "5", "--paramserver.metrics_port", "0")
    assert list(plans)[:4] == ["paramserver-0", "paramserver-1", "paramserver-2", "learner-0"]
    servers = [parsed(plans[f"paramserver-{index}"]).paramserver for index in range(3)]
    assert [server.index for server in servers] == [0, 1, 2]
    addresses = [f"tcp://127.0.0.1:{server.port}" for server in servers]
    assert len(set(addresses)) == 3
    assert [server.upstream for server in servers] == [None, addresses[0], addresses[0]]
    assert parsed(plans["learner-0"]).learner.paramserver == addresses[0]
    asked = [parsed(plans[f"actor-{index}"]).actor.paramserver for index in range(5)]
    assert asked == [addresses[1], addresses[2], addresses[1], addresses[2], addresses[1]]


def test_each_agent_has_its_own_learner_shards() -> None:
    plans = planned("--agents", "2", "--learner.shards", "2", "--actor.count", "2", "--learner.threads", "3", environ={"RANK": "7"})
    assert list(plans) == ["paramserver-0", *(f"learner-{number}" for number in range(4)), "actor-0", "actor-1"]
    learners = [plans[f"learner-{number}"] for number in range(4)]
    assert [plan.agent for plan in learners] == [parsed(plan).learner.agent for plan in learners] == [0, 0, 1, 1]
    assert [plans[name].agent for name in ("paramserver-0", "actor-0")] == [None, None]
    assert [plan.environment["RANK"] for plan in learners] == ["0", "1", "0", "1"]
    assert [plan.environment["LOCAL_RANK"] for plan in learners] == ["0", "1", "2", "3"]
    assert {plan.environment["MASTER_ADDR"] for plan in learners} == {"127.0.0.1"}
    meeting = [plan.environment["MASTER_PORT"] for plan in learners]
    assert meeting[0] == meeting[1] != meeting[2] == meeting[3]
    addresses = tuple(f"tcp://127.0.0.1:{parsed(plan).learner.port}" for plan in learners)
    assert len(set(addresses)) == 4
    for index in range(2):
        actor = parsed(plans[f"actor-{index}"]).actor
        assert actor.learner == addresses
        assert actor.agent is None  # it is leased, together with the index among the agent's actors
        assert actor.links == 2


def test_runs_with_all_services_share_a_machine() -> None:
    words = [*DICE, "--replay.kind", "shared", "--actor.inference", "remote", "--actor.environments", "4"]
    with held_run_ports(load_settings([], words, {})) as first, held_run_ports(load_settings([], words, {})) as second:
        assert {"bandit-0", "inference-0", "learner-0", "paramserver-0", "replay-0"} <= set(first.serving)
        assert not set(first.serving.values()) & set(second.serving.values())


def test_only_the_root_uses_the_fixed_ports() -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe, socket.create_server(("127.0.0.1", 0)) as other:
        port, metrics_port = probe.getsockname()[1], other.getsockname()[1]
    fixed = ("--paramserver.port", str(port), "--paramserver.metrics_port", str(metrics_port))
    plans = planned("--paramserver.replicas", "1", *fixed)
    root, replica = (parsed(plans[f"paramserver-{index}"]).paramserver for index in range(2))
    assert root.port == port
    assert "--paramserver.metrics_port" not in plans["paramserver-0"].command(FIRST)  # the root reads the fixed port from config.yaml
    assert (replica.upstream, replica.metrics_port) == (f"tcp://127.0.0.1:{port}", 0)
    assert replica.port not in (0, port)


def test_a_bandit_is_started_only_if_the_loss_needs_it() -> None:
    assert "bandit-0" not in planned()
    assert "bandit-0" not in planned(*DICE, "--loss.ablation", "baseline")
    plans = planned(*DICE, "--actor.count", "2")
    assert list(plans) == ["paramserver-0", "bandit-0", "learner-0", "actor-0", "actor-1"]
    port = parsed(plans["bandit-0"]).bandit.port
    assert port not in (0, parsed(plans["learner-0"]).learner.port, parsed(plans["paramserver-0"]).paramserver.port)
    assert [parsed(plans[f"actor-{index}"]).actor.bandit for index in range(2)] == [f"tcp://127.0.0.1:{port}"] * 2
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = str(taken.getsockname()[1])
        with pytest.raises(PortError, match=r"^bandit\.port"):
            planned(*DICE, "--bandit.port", number)
        planned("--bandit.port", number)  # no process will bind it


def test_replay_is_started_if_shared_and_learners_know_all_replicas() -> None:
    shared = ("--replay.kind", "shared", "--actor.environments", "4", "--agents", "2", "--actor.count", "2")
    replicas = ("--replay_service.replicas", "2")
    assert "replay-0" not in planned(*replicas)
    plans = planned(*shared, *replicas)
    assert list(plans)[:5] == ["paramserver-0", "replay-0", "replay-1", "learner-0", "learner-1"]
    options = [dict(itertools.pairwise(words)) for words in (plans[f"replay-{index}"].command(FIRST) for index in range(2))]
    assert [option["--replay_service.index"] for option in options] == ["0", "1"]
    addresses = tuple(f"tcp://127.0.0.1:{option['--replay_service.port']}" for option in options)
    assert len(set(addresses)) == 2
    assert [parsed(plans[f"learner-{agent}"]).learner.replay for agent in range(2)] == [addresses] * 2
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = str(probe.getsockname()[1])
    assert parsed(planned(*shared, "--replay_service.port", port)["learner-0"]).learner.replay == (f"tcp://127.0.0.1:{port}",)


def test_inference_is_started_if_remote_and_actors_are_spread_over_it() -> None:
    own = ("--inference.replicas", "2", "--inference.threads", "3")
    assert "inference-0" not in planned(*own)
    plans = planned(*own, "--actor.inference", "remote", "--actor.count", "3", "--paramserver.replicas", "1")
    assert list(plans)[:5] == ["paramserver-0", "paramserver-1", "inference-0", "inference-1", "learner-0"]
    services = [parsed(plans[f"inference-{index}"]).inference for index in range(2)]
    assert [service.index for service in services] == [0, 1]
    assert {service.paramserver for service in services} == {parsed(plans["actor-0"]).actor.paramserver}
    assert plans["inference-0"].environment["OMP_NUM_THREADS"] == "3"
    addresses = [f"tcp://127.0.0.1:{service.port}" for service in services]
    assert len(set(addresses)) == 2
    asked = [parsed(plans[f"actor-{index}"]).actor.inference_service for index in range(3)]
    assert asked == [addresses[0], addresses[1], addresses[0]]


def test_a_restarted_learner_resumes_with_the_remaining_time() -> None:
    learner = planned("--stop.wall_seconds", "120")["learner-0"]
    first, later = parsed(learner, Start(0, 1.5)), parsed(learner, Start(2, 100.0))
    assert (first.resume, first.stop.wall_seconds) == (False, 118.5)
    assert (later.resume, later.stop.wall_seconds) == (True, 20.0)
    overdue = parsed(learner, Start(1, 500.0)).stop.wall_seconds
    assert overdue is not None
    assert 0 < overdue < 0.01
    assert parsed(planned("--resume")["learner-0"]).resume is True


def test_only_the_first_of_several_processes_uses_the_metrics_port() -> None:
    plans = planned("--actor.metrics_port", "0", "--actor.count", "3", "--learner.shards", "2")
    told = {name for name, plan in plans.items() if f"--{plan.service}.metrics_port" in plan.command(FIRST)}
    assert told == {"actor-1", "actor-2", "learner-1"}


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
    learner = planned("--learner.shards", "2", "--learner.host", "[::1]")["learner-1"]
    assert learner.environment["MASTER_ADDR"] == "::1"
    assert [address.rpartition(":")[0] for address in parsed(planned("--learner.host", "::1")["actor-0"]).actor.learner] == ["tcp://[::1]"]


def test_a_port_in_use_is_refused_with_the_name_of_the_setting() -> None:
    with held_ports({"mine": ("127.0.0.1", 0)}) as mine:
        port = mine["mine"]
        with (
            socket.create_server(("127.0.0.1", port)),
            pytest.raises(PortError, match=rf"^learner\.port: port {port} of 127\.0\.0\.1 is in use"),
        ):
            planned("--learner.port", str(port))
        with held_ports({"learner.port": ("127.0.0.1", port)}) as held:
            assert held == {"learner.port": port}


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
    bound = ports._bound

    def refuse(kept: ExitStack, family: socket.AddressFamily, address: str, port: int) -> socket.socket:
        if port:
            raise OSError(errno.EADDRINUSE, "in use")
        return bound(kept, family, address, port)

    monkeypatch.setattr(ports, "_bound", refuse)
    with held_ports({"learner.port": ("127.0.0.1", 0)}) as chosen:
        assert chosen["learner.port"] > 0


def test_two_settings_with_the_same_port_are_refused() -> None:
    with held_ports({"mine": ("127.0.0.1", 0)}) as mine:
        one = ("127.0.0.1", mine["mine"])
        with pytest.raises(PortError, match=r"^b\.port"), held_ports({"a.port": one, "b.port": one}):
            pass


def test_a_foreign_interface_is_refused() -> None:
    with pytest.raises(PortError, match=r"^learner\.host: cannot bind 192\.0\.2\.1"), held_ports({"learner.port": ("192.0.2.1", 0)}):
        pass


def test_wildcard_hosts_are_reached_over_the_loopback() -> None:
    for host in ("0.0.0.0", "*", "::"):
        assert local_address(host, 7) == "tcp://127.0.0.1:7"
    assert local_address("::1", 7) == local_address("[::1]", 7) == "tcp://[::1]:7"
    assert local_address("10.0.0.3", 7) == "tcp://10.0.0.3:7"


def test_actors_and_evaluators_run_at_lower_priority() -> None:
    plans = planned("--actor.count", "2", "--evaluation.interval_seconds", "60")
    assert plans["learner-0"].niceness == plans["paramserver-0"].niceness == 0
    assert plans["evaluator-0"].niceness > plans["actor-0"].niceness == plans["actor-1"].niceness > 0


def test_an_evaluator_uses_the_actors_parameter_server() -> None:
    plans = planned("--evaluation.interval_seconds", "60", "--paramserver.replicas", "1", *DICE)
    own, actor = parsed(plans["evaluator-0"]).evaluation, parsed(plans["actor-0"]).actor
    assert (own.paramserver, own.bandit) == (actor.paramserver, actor.bandit)
    assert plans["evaluator-0"].environment["OMP_NUM_THREADS"] == "1"
    assert "evaluator-0" not in planned()


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
    named = planned(*words, "--security.curve_client", "mine")
    assert all("--security.curve_client" not in plan.command(FIRST) for plan in named.values())
