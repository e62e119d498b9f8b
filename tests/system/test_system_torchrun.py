"""Learner shards started by torchrun, one agent per host as in a cluster; one shard is killed."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from tests.system.whole_runs import CATCH, Process, env_frames, free_ports, pid_of, read_report, signal_process, until

LEARNERS = ("learner-0", "learner-1")


@pytest.fixture
def agents(tmp_path: Path) -> Iterator[list[Process]]:
    """Two torchrun agents with one shard each, a parameter server and an actor; all are stopped at the end."""
    rendezvous, weights, *unrolls = free_ports(4)
    shared = ("--config", CATCH, "--run_dir", tmp_path / "run")
    addresses = ",".join(f"tcp://127.0.0.1:{port}" for port in unrolls)
    paramserver = f"tcp://127.0.0.1:{weights}"
    learner = ("--learner.shards", "2", "--learner.threads", "1", "--paramserver", paramserver, "--resume", "true")
    often = ("--learner.checkpoint_interval_seconds", "1", "--learner.log_interval_seconds", "0.5", "--stop.env_frames", "null")
    with ExitStack() as stack:
        stack.enter_context(Process(tmp_path / "paramserver.out", "herd_paramserver", *shared, "--listen", f"127.0.0.1:{weights}"))
        started = []
        for rank, port in enumerate(unrolls):
            place = ("--nnodes", "2", "--nproc-per-node", "1", "--node-rank", str(rank), "--max-restarts", "3")
            master = ("--master-addr", "127.0.0.1", "--master-port", str(rendezvous))
            service = ("-m", "herd_learner", *shared, *learner, *often, "--listen", f"127.0.0.1:{port}")
            started.append(stack.enter_context(Process(tmp_path / f"agent-{rank}.out", "torch.distributed.run", *place, *master, *service)))
        actor = ("--learner", addresses, "--paramserver", paramserver, "--index", "0")
        stack.enter_context(Process(tmp_path / "actor.out", "herd_actor", *shared, *actor))
        try:
            yield started
        finally:
            for process in psutil.Process().children(recursive=True):
                process.kill()  # an agent's shards would survive SIGKILL


def test_shards_of_two_agents_learn_and_survive_a_kill(tmp_path: Path, agents: list[Process]) -> None:
    run_dir = tmp_path / "run"

    def trained(frames: int) -> bool:
        assert all(agent.is_running() for agent in agents), agents[0].output + agents[1].output
        return env_frames(run_dir) > frames

    until(lambda: trained(10_000), "learning begins")
    before = {name: pid_of(run_dir, name) for name in LEARNERS}
    signal_process(run_dir, "learner-1", signal.SIGKILL)
    until(lambda: all(pid_of(run_dir, name) != pid for name, pid in before.items()), "both shards start again")
    again = env_frames(run_dir)
    until(lambda: trained(again + 10_000), "learning goes on")
    signal_process(run_dir, "learner-0", signal.SIGTERM)  # sent to one shard: they stop together
    assert [agent.wait() for agent in agents] == [0, 0]
    report = read_report(run_dir)
    assert report["env_frames"] >= again + 10_000
