"""Connections read off command lines, and command lines led elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.soak.wiring import options, read_wiring, rewired
from herd.config.loading import load_settings
from herd.supervisor.plan import ChildPlan, Start, choose_run_ports, plan_children


def run_plans(file: str = "experiments/catch.yaml") -> tuple[ChildPlan, ...]:
    settings = load_settings([Path(file)], ["--actor.count", "2"], {})
    return plan_children(settings, Path("runs/x"), choose_run_ports(settings), {})


def test_the_plan_of_a_run_names_every_connection() -> None:
    plans = run_plans()
    wiring = read_wiring(plans)
    assert {link.name for link in wiring.links} == {
        "learner-0>paramserver-0",
        "actor-0>learner-0",
        "actor-0>paramserver-0",
        "actor-1>learner-0",
        "actor-1>paramserver-0",
    }
    assert wiring.options == {"learner-0": "--learner.port", "paramserver-0": "--paramserver.port"}
    words = {plan.name: options(plan.command(Start(0, 0.0))) for plan in plans}
    assert words["actor-1"]["--actor.learner"] == f"tcp://127.0.0.1:{wiring.ports['learner-0']}"


def test_the_run_of_every_service_has_each_as_a_victim() -> None:
    wiring = read_wiring(run_plans("benchmarks/soak/everything.yaml"))
    servers = {"paramserver-0", "paramserver-1", "bandit-0", "replay-0", "population-0", "inference-0", "learner-0", "learner-1"}
    assert set(wiring.ports) == servers
    assert {link.server for link in wiring.links} == servers
    both = [link.server for link in wiring.links if (link.client, link.option) == ("actor-0", "--actor.learner")]
    assert both == ["learner-0", "learner-1"]  # a list on the command line


def test_a_rewired_plan_asks_again_at_each_start() -> None:
    plan = next(plan for plan in run_plans() if plan.name == "actor-0")
    changes = {"actor-0": {"--actor.learner": "tcp://127.0.0.1:1"}, "actor-1": {"--actor.learner": "tcp://127.0.0.1:9"}}
    led = rewired(plan, lambda: changes)
    assert options(led.command(Start(0, 0.0)))["--actor.learner"] == "tcp://127.0.0.1:1"
    changes["actor-0"] = {"--actor.learner": "tcp://127.0.0.1:2"}
    changed = options(led.command(Start(1, 5.0)))
    assert changed.pop("--actor.learner") == "tcp://127.0.0.1:2"
    assert changed == {key: value for key, value in options(plan.command(Start(1, 5.0))).items() if key != "--actor.learner"}


def test_an_address_where_nobody_listens_is_refused() -> None:
    plan = ChildPlan("actor", 0, lambda _: ["actor", "--actor.learner", "tcp://127.0.0.1:7"], {})
    with pytest.raises(ValueError, match="no process of the run listens there"):
        read_wiring([plan])
