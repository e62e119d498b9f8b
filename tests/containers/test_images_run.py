"""Images are built and started: each alone, to check its promises, and together as the chart's pods, training Catch.

Run ``make test-containers``. Nothing is installed; missing programs are named. Environment variables: CONTAINERS_STORAGE=FOLDER keeps
images there for the next run, BASE=IMAGE uses another base image from that storage, RESULT=FILE.json writes the measurements.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import os
import platform
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from helm.tools.fetch_tools import helm_program
from herd.telemetry.scrape import ScrapeError, page, scrape, total
from herd.topology import SERVICE_NAMES
from tests.containers.podman import Podman, missing_programs
from tests.containers.pods import PodPlan, plan_pods, with_hosts
from tests.images.dockerfiles import ROOT

pytestmark = [pytest.mark.containers, pytest.mark.timeout(5400)]

EXPERIMENT = ROOT / "experiments" / "dice-catch.yaml"
RUNNING = ("paramserver", "bandit", "replay", "learner", "actor")
"""The running services, in the order in which they start."""
TAG = "under-test"
SUBNET = "10.89.77"
GRACE_SECONDS = {"actor": 10, "bandit": 10, "learner": 60, "paramserver": 10, "paramserver-replica": 10, "replay": 60}
"""Grace periods of docs/runbook.md, "A run does not stop cleanly"."""
READY_SECONDS = 240
TRAIN_SECONDS = 600
MEASURE_SECONDS = 20
CPUS = {"actor": "1", "bandit": "0.5", "learner": "1.5", "paramserver": "0.5", "replay": "0.5"}
HARDENED = ("--read-only", "--read-only-tmpfs=false", "--cap-drop", "all", "--security-opt", "no-new-privileges", "--tmpfs", "/tmp")
FACTS = """
import importlib.util, json, os, sys
from herd.service.host import usable_cpus
status = dict(line.split(":", 1) for line in open("/proc/1/status").read().splitlines())
def writable(folder):
    try:
        with open(os.path.join(folder, "probe"), "w"): return True
    except OSError: return False
print(json.dumps({
    "uid": status["Uid"].split()[0], "gid": status["Gid"].split()[0], "capabilities": status["CapEff"].strip(),
    "cpus": usable_cpus(), "threads": int(status["Threads"]),
    "writable": [folder for folder in ("/", "/opt/herd", "/etc", "/var/lib/herd", "/tmp") if writable(folder)],
    "found": [name for name in ("torch", "ale_py", "pip") if importlib.util.find_spec(name)],
    "cwd": os.getcwd(), "path": sys.path,
}))
"""


def image(service: str) -> str:
    return f"localhost/herd-{service}:{TAG}"


def until(condition: Callable[[], object], what: str, seconds: float) -> float:
    """Poll twice a second; returns how long it took, in seconds."""
    started = time.monotonic()
    while not condition():
        if time.monotonic() - started > seconds:
            pytest.fail(f"waited {seconds:.0f} s for {what}")
        time.sleep(0.5)
    return time.monotonic() - started


@pytest.fixture(scope="module")
def measured() -> Iterator[dict[str, Any]]:
    """The measurements that are written to RESULT at the end."""
    facts: dict[str, Any] = {"date": dt.datetime.now(dt.UTC).date().isoformat(), "kernel": platform.release()}
    yield facts
    if "RESULT" in os.environ:
        Path(os.environ["RESULT"]).write_text(json.dumps(facts, indent=2, sort_keys=True) + "\n")


@pytest.fixture(scope="module")
def podman(tmp_path_factory: pytest.TempPathFactory, measured: dict[str, Any]) -> Iterator[Podman]:
    missing = missing_programs()
    if missing or os.geteuid() != 0:
        pytest.fail(f"needs root, and these packages: {' '.join(missing) or '(all there)'}; also netavark and aardvark-dns")
    kept = os.environ.get("CONTAINERS_STORAGE")
    folder = Path(kept) if kept else tmp_path_factory.mktemp("containers")
    with Podman(folder, keep_images=bool(kept)) as podman:
        measured["podman"] = podman("--version").split()[-1]
        measured["cpus"] = len(os.sched_getaffinity(0))
        podman("network", "create", "--internal", "--subnet", f"{SUBNET}.0/24", "herd-test")
        yield podman


@pytest.fixture(scope="module")
def base(podman: Podman, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A stand-in for the public Python image, which not every machine can reach."""
    wanted = os.environ.get("BASE", "localhost/herd-base:bookworm")
    if not podman("images", "--quiet", wanted):
        assert "BASE" not in os.environ, f"{wanted} is not in this storage"
        folder = tmp_path_factory.mktemp("base") / "root"
        podman.make_base(ROOT / "images" / "local-base.sh", folder, wanted)
    return wanted


@pytest.fixture(scope="module")
def images(podman: Podman, base: str, measured: dict[str, Any]) -> dict[str, str]:
    """All images, built from this tree."""
    for service in SERVICE_NAMES:
        podman.build(service, image(service), base, "--layers")
    names: dict[str, str] = {service: image(service) for service in SERVICE_NAMES}
    sizes = {service: podman.inspect("image", name, ".Size") for service, name in names.items()}
    measured["image_megabytes"] = {service: round(size / 1e6) for service, size in sizes.items()}
    measured["base_megabytes"] = round(podman.inspect("image", base, ".Size") / 1e6)
    return names


@pytest.fixture(scope="module")
def containers(podman: Podman, images: dict[str, str], measured: dict[str, Any]) -> Iterator[dict[str, str]]:
    """Start one container for each of RUNNING, hardened like the chart's pods; returns their addresses by service."""
    addresses = {service: f"{SUBNET}.{10 + number}" for number, service in enumerate(RUNNING)}
    hosts = [f"--add-host=the-{service}:{address}" for service, address in addresses.items()]
    settings = [
        "--config=/etc/herd/experiment.yaml",
        "--stop.env_frames=null",
        "--learner.queue_batches=4",
        "--replay.kind=shared",
        "--replay.fraction=0.5",
        "--replay.minimum_fill_agent_steps=1000",
    ]
    paramserver = "--paramserver=tcp://the-paramserver:7200"
    asked = {
        "actor": ["--learner=tcp://the-learner:7100", paramserver, "--bandit=tcp://the-bandit:7300"],
        "learner": [paramserver, "--replay=tcp://the-replay:7400"],
    }
    started = {}
    for service in RUNNING:
        started[service] = time.monotonic()
        podman(
            *("run", "--detach", "--name", service, *HARDENED, "--network", "herd-test", "--ip", addresses[service], *hosts),
            *("--cpus", CPUS[service], "--memory", "2g", "--volume", f"{service}-run:/var/lib/herd"),
            *("--volume", f"{EXPERIMENT}:/etc/herd/experiment.yaml:ro", images[service], *settings, *asked.get(service, [])),
        )
    seconds: dict[str, float] = {}
    for service in RUNNING:
        url = f"http://{addresses[service]}:9400/readyz"
        try:
            until(partial(page, url), f"{service} to be ready", READY_SECONDS)
        except BaseException:
            print(podman.logs_of(service))
            raise
        seconds[service] = round(time.monotonic() - started[service], 1)
    measured["seconds_to_ready"] = seconds
    yield addresses
    podman("rm", "--all", "--force", "--time", "5")


@pytest.mark.parametrize("service", RUNNING)
def test_a_container_is_confined_and_holds_only_what_it_needs(podman: Podman, containers: dict[str, str], service: str) -> None:
    assert page(f"http://{containers[service]}:9400/healthz")
    facts = json.loads(podman("exec", service, "python", "-c", FACTS))
    assert (facts["uid"], facts["gid"], int(facts["capabilities"], 16)) == ("10001", "10001", 0)
    assert facts["writable"] == ["/var/lib/herd", "/tmp"]
    assert facts["cwd"] == "/var/lib/herd"
    assert not {"", "/var/lib/herd"} & set(facts["path"]), "nothing is imported from the writable folder"
    assert facts["found"] == {"actor": ["torch", "ale_py"], "learner": ["torch"]}.get(service, [])
    assert facts["cpus"] == min(math.ceil(float(CPUS[service])), len(os.sched_getaffinity(0)))  # of its quota


def test_every_game_runs_in_the_actors_image(podman: Podman, images: dict[str, str]) -> None:
    """The image contains all libraries of the emulator, although it lacks the extra packages of a larger base image."""
    program = "import ale_py; from ale_py.vector_env import AtariVectorEnv; print(AtariVectorEnv('pong', num_envs=2).reset()[0].shape)"
    assert podman("run", "--rm", *HARDENED, "--entrypoint", "python", images["actor"], "-c", program).startswith("(2,")


def test_frames_flow_between_containers(containers: dict[str, str]) -> None:
    url = f"http://{containers['learner']}:9400/metrics"
    until(lambda: frames(url) > 5_000, "5,000 frames to be trained on", TRAIN_SECONDS)


def test_every_service_drains_on_sigterm(podman: Podman, containers: dict[str, str], measured: dict[str, Any]) -> None:
    seconds: dict[str, float] = {}
    for service in ("actor", "learner", "replay", "bandit", "paramserver"):
        started = time.monotonic()
        podman("stop", "--time", str(GRACE_SECONDS[service]), service, seconds=120)
        seconds[service] = round(time.monotonic() - started, 1)
        state = podman.inspect("container", service, ".State")
        assert state["ExitCode"] == 0, podman.logs_of(service)
        assert seconds[service] < GRACE_SECONDS[service]
    measured["seconds_to_drain"] = seconds
    program = "from pathlib import Path; print(*Path('runs/dice-catch/checkpoints').glob('*/*.safetensors'))"
    volume = ("--volume", "learner-run:/var/lib/herd:ro")
    assert podman("run", "--rm", *HARDENED, *volume, "--entrypoint", "python", image("learner"), "-c", program), "no checkpoint"


def test_image_builds_are_reproducible(podman: Podman, base: str, images: dict[str, str]) -> None:
    podman.build("paramserver", "localhost/again:1", base, "--layers", "--no-cache")
    again = podman.inspect("image", "localhost/again:1", ".RootFS.Layers")
    assert again == podman.inspect("image", images["paramserver"], ".RootFS.Layers")


CASES = {
    "catch": ("--values", "CHART/ci/minimal-cpu-values.yaml"),
    # All components: bandit, a replica of the parameter server, and two shards that find each other by name.
    "everything": (
        *("--values", "CHART/ci/minimal-cpu-values.yaml", "--set-file", f"experiment={EXPERIMENT}"),
        *("--set", "learner.shards=2,paramserverReplica.replicas=1,actor.replicas=2"),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_pods_rendered_from_the_chart_train_together(
    podman: Podman, images: dict[str, str], measured: dict[str, Any], tmp_path: Path, case: str
) -> None:
    plans = rendered(case)
    by_pod = {plan.name: f"{SUBNET}.{50 + number}" for number, plan in enumerate(plans)}
    names = {name: by_pod[plan.name] for plan in plans for name in plan.names}
    try:
        for plan in plans:
            file = tmp_path / f"{plan.name}.yaml"
            file.write_text(yaml.safe_dump_all(with_hosts(plan, names)))
            podman("play", "kube", "--network", "herd-test", "--ip", by_pod[plan.name], str(file))
        for plan in plans:
            until(partial(page, f"http://{by_pod[plan.name]}:9400/readyz"), f"{plan.name} to be ready", READY_SECONDS)
        learners = [f"http://{by_pod[plan.name]}:9400/metrics" for plan in plans if plan.component == "learner"]
        until(lambda: sum(map(frames, learners)) > 20_000, "20,000 frames to be trained on", TRAIN_SECONDS)
        before, started = sum(map(frames, learners)), time.monotonic()
        time.sleep(MEASURE_SECONDS)  # the measurement itself
        rate = (sum(map(frames, learners)) - before) / (time.monotonic() - started)
        assert rate > 0
        until(lambda: metric(learners[0], "herd_learner_checkpoints_written_total") >= 1, "a checkpoint", TRAIN_SECONDS)
        measured.setdefault("pods", {})[case] = {"names": sorted(by_pod), "env_frames_per_second": round(rate)}
        for plan in sorted(plans, key=lambda plan: plan.component != "actor"):
            container = f"{plan.name}-{plan.component.removesuffix('-replica')}"
            # Stop the container, not the pod: podman would remove the pod's network at once, but Kubernetes waits for the containers.
            podman("stop", "--time", str(GRACE_SECONDS[plan.component]), container, seconds=180)
            assert podman.inspect("container", container, ".State.ExitCode") == 0, container
    except BaseException:
        for plan in plans:
            print(f"--- {plan.name}\n{podman.logs_of(plan.name, pod=True)}")
        raise
    finally:
        podman("pod", "rm", "--all", "--force", seconds=180)
        podman("volume", "prune", "--force")


def rendered(case: str) -> list[PodPlan]:
    chart = Path(os.environ.get("HERD_CHART", ROOT / "helm" / "herd"))
    words = [word.replace("CHART", str(chart)) for word in CASES[case]]
    words += ["--set", f"image.registry=localhost,image.tag={TAG},image.pullPolicy=Never"]
    # The test ends the run, and must not wait long for a checkpoint.
    words += ["--set", "learner.extraArgs={--stop.env_frames=null,--learner.checkpoint_interval_seconds=20}"]
    return plan_pods(yaml.safe_load_all(Podman.command([str(helm_program("4")), "template", "herd", str(chart), *words])))


def metric(url: str, name: str) -> float:
    try:
        return total(scrape(url), name)
    except ScrapeError:
        return 0.0


def frames(url: str) -> float:
    return metric(url, "herd_learner_env_frames_total")
