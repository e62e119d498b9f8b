"""Whole runs over ``::1``: unrolls, weights, keys, metrics and status, and shards on a machine without IPv4."""

from __future__ import annotations

import shlex
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from herd.cli.keys import make_keys
from tests.ipv6 import needs_ipv6
from tests.system.whole_runs import CATCH, ROOT, SECONDS, Run, environment, herd, metrics, pid_of, read_report

pytestmark = [pytest.mark.processes, needs_ipv6]


def test_a_run_trains_over_ipv6_only(tmp_path: Path) -> None:
    make_keys(tmp_path / "keys")
    words = [
        "--placement.host",
        "::1",
        "--placement.metrics_host",
        "::1",
        "--security.curve_keys",
        str(tmp_path / "keys"),
        "--paramserver.replicas",
        "1",
    ]
    words += ["--loss.kind", "dice", "--optimizer.kind", "adamw", "--learner.log_interval_seconds", "0.5"]
    with Run(tmp_path / "run", *words) as run:
        run.until(lambda: run.env_frames() > 5_000, "frames over ::1")
        for name in ("learner-0", "actor-0", "paramserver-1", "bandit-0"):
            assert metrics(run.run_dir, name), name
            pid = pid_of(run.run_dir, name)
            assert pid is not None
            ends = [end for one in psutil.Process(pid).net_connections("inet") for end in (one.laddr, one.raddr) if end]
            assert ends
            assert {end.ip for end in ends} == {"::1"}, name
        status = herd("status", run.run_dir)
        assert status.returncode == 0, status.stderr
        assert "not ready" not in status.stdout
        assert run.stop() == 0, run.output
    assert read_report(run.run_dir)["episode_return"]["episodes"] > 0


def test_two_shards_train_on_a_machine_without_ipv4(tmp_path: Path) -> None:
    """torch.distributed derives some addresses from the machine's name, so the names resolve to IPv6 only."""
    hosts = tmp_path / "hosts"
    hosts.write_text(f"::1 localhost {socket.gethostname()}\n")
    machine = f"ip link set lo up && ip address del 127.0.0.1/8 dev lo && mount --bind {hosts} /etc/hosts"
    alone = ["unshare", "--map-root-user", "--mount", "--net", "sh", "-c"]
    if shutil.which("unshare") is None or subprocess.run([*alone, machine], check=False, capture_output=True).returncode != 0:
        pytest.skip("a network without IPv4 is made with unshare and ip, which takes the rights to")
    words = ["--run_dir", str(tmp_path / "run"), "--learner.shards", "2", "--learner.threads", "1", "--stop.env_frames", "20000"]
    words += ["--placement.host", "::1", "--placement.metrics_host", "::1"]
    train = shlex.join([sys.executable, "-m", "herd.cli.main", "train", str(CATCH), *words])
    done = subprocess.run(
        [*alone, f"{machine} && exec {train}"], cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = read_report(tmp_path / "run")
    assert report["env_frames"] >= 20_000
    assert report["accounting"]["dropped"] == {}
