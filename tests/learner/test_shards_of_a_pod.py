"""The processes of a learner's pod with several shards, with a small program in place of the learner."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from herd_learner.group import pod

from herd.launch.restarts import RestartPolicy
from herd.service import EXIT_SHARD_LOST
from tests.system.whole_runs import Process, until

pytestmark = pytest.mark.processes

LEARNER = """
import os, signal, sys, time
from pathlib import Path
here = Path(os.environ["PLAN"])
rank = os.environ["RANK"]
starts = len(list(here.glob(f"start-{rank}-*")))
(here / f"start-{rank}-{starts}").write_text(" ".join([os.environ["LOCAL_RANK"], os.environ["OMP_NUM_THREADS"], *sys.argv[1:]]))
plan = (here / f"plan-{rank}").read_text().split() if (here / f"plan-{rank}").exists() else []
while not all((here / f"start-{each}-{starts}").exists() for each in "23"):
    time.sleep(0.01)  # or the end of this one would end the other before it has counted its start
if starts < len(plan):
    sys.exit(int(plan[starts]))
signal.sigwait({signal.SIGTERM})
"""


@pytest.fixture
def variables(tmp_path: Path) -> dict[str, str]:
    """The variables of the second pod of two shards each. A shard ends at its n-th start with the n-th code in its plan."""
    package = tmp_path / "herd_learner"
    package.mkdir()
    (package / "__init__.py").touch()
    # SIGTERM may come before the program waits for it.
    (package / "__main__.py").write_text("import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})\n" + LEARNER)
    return {"GROUP_RANK": "1", "LOCAL_WORLD_SIZE": "2", "OMP_NUM_THREADS": "8", "PLAN": str(tmp_path), "PYTHONPATH": str(tmp_path)}


def starts(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("start-*"))


def test_each_shard_has_its_rank_ports_and_part_of_the_cpus(tmp_path: Path, variables: dict[str, str]) -> None:
    (tmp_path / "plan-3").write_text("3")
    assert pod.run(["--listen=*:7100", "--metrics=*:9400", "--seed=1"], variables) == 3  # its failure ends the other, and the container
    assert starts(tmp_path) == ["start-2-0", "start-3-0"]
    for local in range(2):
        said = (tmp_path / f"start-{2 + local}-0").read_text()
        assert said == f"{local} 4 --listen=*:7100 --metrics=*:9400 --seed=1 --listen=*:{7100 + local} --metrics=*:{9400 + local}"


@pytest.mark.parametrize("code", [0, EXIT_SHARD_LOST])
def test_a_group_that_lost_a_shard_of_another_pod_starts_again_in_place(tmp_path: Path, variables: dict[str, str], code: int) -> None:
    for rank, then in ((2, ""), (3, " 2")):
        (tmp_path / f"plan-{rank}").write_text(f"{code}{then}")
    assert pod.run([], variables, RestartPolicy(first_delay_seconds=0.0)) == 2
    assert starts(tmp_path) == ["start-2-0", "start-2-1", "start-3-0", "start-3-1"]


def test_a_group_that_ends_again_and_again_ends_the_container(tmp_path: Path, variables: dict[str, str]) -> None:
    (tmp_path / "plan-2").write_text("75 " * 9)
    assert pod.run([], variables, RestartPolicy(first_delay_seconds=0.0, max_failures=3)) == EXIT_SHARD_LOST
    assert len([name for name in starts(tmp_path) if name.startswith("start-2")]) == 3


def test_a_request_to_stop_reaches_every_shard(tmp_path: Path, variables: dict[str, str]) -> None:
    script = tmp_path / "launch.py"
    # A copy under another name, because the package herd_learner is the small program here.
    script.write_text(Path(pod.__file__).read_text())
    with Process(tmp_path / "pod.out", "launch", environ=variables) as process:
        until(lambda: {"start-2-0", "start-3-0"} <= set(starts(tmp_path)), "both shards to start")
        assert process.stop(signal.SIGTERM) == 0, process.output
