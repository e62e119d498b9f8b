"""The batch script of docs/two-machines.md, with stand-ins for Slurm's commands that start every process on this machine."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.system.whole_runs import CATCH, ROOT, SECONDS, environment, free_ports, read_report

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(sys.platform != "linux", reason="other kernels have one loopback address"),
]
HOSTS = ("127.0.0.1", "127.0.0.2", "127.0.0.3")
SRUN = """#!/bin/bash
# Records where a process belongs, and replaces itself by it, so that signals reach it as Slurm forwards them.
for word; do case $word in --nodelist=*) host=${word#*=};; --job-name=*) name=${word#*=};; --*) ;; *) break;; esac; shift; done
echo "$host $name" >> placed
exec "$@"
"""


def test_the_documented_script_trains_on_several_hosts(tmp_path: Path) -> None:
    (script,) = re.findall(r"```sh\n(#!/bin/bash\n#SBATCH.*?)```", (ROOT / "docs" / "two-machines.md").read_text(), re.DOTALL)
    commands = {"herd.sh": script, "srun": SRUN, "scontrol": "#!/bin/bash\nprintf '%s\\n' " + " ".join(HOSTS)}
    for name, text in commands.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    learner, paramserver = free_ports(2)
    words = ["--run_dir", "run", "--learner.shards", "2", "--learner.threads", "1", "--actor.count", "2", "--stop.env_frames", "20000"]
    words += ["--placement.ports", json.dumps({"learner": learner, "paramserver": paramserver})]
    environ = environment()
    environ |= {"PATH": f"{tmp_path}:{Path(sys.executable).parent}:{environ['PATH']}", "SLURM_JOB_NODELIST": "three"}
    done = subprocess.run(
        ["bash", "herd.sh", str(ROOT / CATCH), *words],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert read_report(tmp_path / "run")["env_frames"] >= 20_000
    placed = dict(line.split()[::-1] for line in (tmp_path / "placed").read_text().splitlines())
    assert placed == {
        "paramserver-0": HOSTS[0],
        "learner-0": HOSTS[0],
        "learner-1": HOSTS[1],
        "actor-0": HOSTS[1],
        "actor-1": HOSTS[2],
    }
    assert os.listdir(tmp_path / "run" / "checkpoints")
