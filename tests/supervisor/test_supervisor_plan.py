from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from herd.config.arguments import split_arguments
from herd.config.loading import load_settings
from herd.config.settings import RunSettings
from herd.supervisor.plan import ChildPlan, Start, choose_run_ports, plan_children
from herd.supervisor.ports import PortError, choose_ports, local_address

FREE = ["--learner.port", "0", "--paramserver.port", "0"]


FIRST = Start(restarts=0, elapsed_seconds=0.0)


def parsed(plan: ChildPlan, start: Start = FIRST) -> RunSettings:
    """The settings that the child will see, less its configuration file."""
    command = plan.command(start)
    assert command[:3] == [sys.executable, "-m", f"services.{plan.service}"]
    files, overrides = split_arguments(command[3:], file_option="--config")
    assert files == [Path("runs/x/config.yaml")]
    return load_settings([], overrides, {})


def planned(*words: str, environ: dict[str, str] | None = None) -> dict[str, ChildPlan]:
    settings = load_settings([], [*FREE, *words], {})
    return {plan.name: plan for plan in plan_children(settings, Path("runs/x"), choose_run_ports(settings), environ or {})}


def test_every_process_is_told_the_same_addresses() -> None:
    plans = planned("--actor.count", "3")
    assert list(plans) == ["paramserver-0", "learner-0", "actor-0", "actor-1", "actor-2"]
    paramserver, learner = parsed(plans["paramserver-0"]), parsed(plans["learner-0"])
    assert 0 < paramserver.paramserver.port != learner.learner.port > 0
    assert learner.learner.paramserver == f"tcp://127.0.0.1:{paramserver.paramserver.port}"
    for index in range(3):
        actor = parsed(plans[f"actor-{index}"]).actor
        assert actor.index == index
        assert actor.learner == f"tcp://127.0.0.1:{learner.learner.port}"
        assert actor.paramserver == learner.learner.paramserver


def test_a_restarted_learner_resumes_and_gets_the_time_that_is_left() -> None:
    learner = planned("--stop.wall_seconds", "120")["learner-0"]
    first, later = parsed(learner, Start(0, 1.5)), parsed(learner, Start(2, 100.0))
    assert (first.resume, first.stop.wall_seconds) == (False, 118.5)
    assert (later.resume, later.stop.wall_seconds) == (True, 20.0)
    overdue = parsed(learner, Start(1, 500.0)).stop.wall_seconds
    assert overdue is not None
    assert 0 < overdue < 0.01
    assert parsed(planned("--resume")["learner-0"]).resume is True


def test_several_actors_never_share_a_metrics_port() -> None:
    assert "--actor.metrics_port" in planned("--actor.metrics_port", "9100")["actor-0"].command(Start(0, 0.0))
    assert "--actor.metrics_port" not in planned("--actor.metrics_port", "9100", "--actor.count", "1")["actor-0"].command(Start(0, 0.0))


def test_environment_of_children() -> None:
    plans = planned("--actor.inference_threads", "3", "--learner.threads", "5", environ={"PATH": "/bin", "HERD_SEED": "4"})
    learner, actor = plans["learner-0"].environment, plans["actor-1"].environment
    for environment in (learner, actor):
        assert environment["MALLOC_MMAP_MAX_"] == "0"
        assert environment["MALLOC_TRIM_THRESHOLD_"] == "100000000000"
        assert environment["PATH"] == "/bin"
        assert "HERD_SEED" not in environment  # config.yaml holds it resolved; the command line had beaten it
    assert (learner["OMP_NUM_THREADS"], actor["OMP_NUM_THREADS"]) == ("5", "3")


def test_a_taken_port_is_refused_by_the_settings_name() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortError, match=rf"^learner\.port: port {port} of 127\.0\.0\.1 is in use"):
            planned("--learner.port", str(port))
    assert choose_ports({"learner.port": ("127.0.0.1", port)}) == {"learner.port": port}


def test_two_settings_with_one_port() -> None:
    port = choose_ports({"a.port": ("127.0.0.1", 0)})["a.port"]
    with pytest.raises(PortError, match=r"^b\.port"):
        choose_ports({"a.port": ("127.0.0.1", port), "b.port": ("127.0.0.1", port)})


def test_a_foreign_interface_is_refused() -> None:
    with pytest.raises(PortError, match=r"^learner\.host: cannot bind 192\.0\.2\.1"):
        choose_ports({"learner.port": ("192.0.2.1", 0)})


def test_every_interface_is_reached_over_the_loopback() -> None:
    assert local_address("0.0.0.0", 7) == "tcp://127.0.0.1:7"
    assert local_address("10.0.0.3", 7) == "tcp://10.0.0.3:7"


def test_actors_give_way_to_the_learner() -> None:
    plans = planned("--actor.count", "2")
    assert plans["learner-0"].niceness == plans["paramserver-0"].niceness == 0
    assert plans["actor-0"].niceness == plans["actor-1"].niceness > 0
