"""A whole run over ``::1``: unrolls, weights, keys, metrics, status."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from herd.cli.keys import make_keys
from tests.ipv6 import needs_ipv6
from tests.system.whole_runs import Run, herd, metrics, pid_of, read_report

pytestmark = [pytest.mark.processes, needs_ipv6]
SERVERS = ("learner", "paramserver", "bandit")


def test_a_run_over_ipv6_alone(tmp_path: Path) -> None:
    make_keys(tmp_path / "keys")
    words = [word for service in SERVERS for word in (f"--{service}.host", "::1", f"--{service}.metrics_host", "::1")]
    words += ["--actor.metrics_host", "::1", "--security.curve_keys", str(tmp_path / "keys"), "--paramserver.replicas", "1"]
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
