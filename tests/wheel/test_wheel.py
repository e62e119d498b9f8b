"""The wheel, installed into a new environment and used in an empty folder. Needs no network: nothing is resolved or isolated."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import numpy as np
import pytest

from tests.patience import patient

ROOT = Path(__file__).parents[2]
PACKAGES = {
    "herd",
    "herd_actor",
    "herd_bandit",
    "herd_evaluator",
    "herd_inference",
    "herd_learner",
    "herd_paramserver",
    "herd_population",
    "herd_replay",
}
SECONDS = 300


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built as for publishing: from the source distribution, not from the checkout."""
    source, folder = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    with tarfile.open(build("sdist", ROOT, source)) as archive:
        archive.extractall(source, filter="data")
    (unpacked,) = (path for path in source.iterdir() if path.is_dir())
    return build("wheel", unpacked, folder)


def build(target: str, source: Path, folder: Path) -> Path:
    command: list[str | Path] = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", folder]
    subprocess.run(command, cwd=source, check=True, capture_output=True, timeout=patient(SECONDS))
    (file,) = folder.iterdir()
    return file


@pytest.fixture(scope="module")
def programs(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ``bin`` folder of an environment with the wheel, which sees this environment's packages but not its checkout."""
    environment = tmp_path_factory.mktemp("environment")
    venv.create(environment)
    python = environment / "bin" / "python"
    install: list[str | Path] = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index", wheel]
    subprocess.run(install, check=True, capture_output=True, timeout=patient(SECONDS))
    (packages,) = (environment / "lib").glob("python*/site-packages")
    # A .pth file adds this folder itself, so that .pth files inside it are not read: one of them names the checkout.
    (packages / "others.pth").write_text(f"{Path(np.__file__).parents[1]}\n")
    return environment / "bin"


def run(*command: object, folder: Path) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("HERD_", "PYTHON"))}
    return subprocess.run(
        [*map(str, command)],
        cwd=folder,
        env=environ,
        check=False,
        capture_output=True,
        text=True,
        timeout=patient(SECONDS),
        stdin=subprocess.DEVNULL,
    )


def test_the_wheel_contains_typed_packages_and_experiments(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {name.split("/")[0] for name in names} == {*PACKAGES, "herd_rl-0.1.0.dist-info"}
    assert {f"{package}/py.typed" for package in PACKAGES} <= names
    shipped = {name for name in names if name.endswith(".yaml")}
    assert shipped == {str(file.relative_to(ROOT)) for file in (ROOT / "herd").rglob("*.yaml")}
    assert {"herd/experiments/pong.yaml", "herd/components/suites/atari/presets/machado.yaml"} <= shipped


@pytest.mark.timeout(SECONDS)
def test_an_experiment_trains_by_name_in_an_empty_folder(programs: Path, tmp_path: Path) -> None:
    where = run(programs / "python", "-c", "import herd; print(herd.__file__)", folder=tmp_path)
    assert Path(where.stdout.strip()).is_relative_to(programs.parent), where
    done = run(programs / "herd", "train", "catch", "--stop.env_frames", 3000, "--learner.threads", 1, "--actor.count", 1, folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, ""), done
    updates = json.loads((tmp_path / "runs" / "catch" / "report.json").read_text())["learner_updates"]
    assert updates > 0
    script = "import herd; run = herd.load_run('catch'); print(herd.__version__, herd.load_policy(run).learner_updates)"
    opened = run(programs / "python", "-c", script, folder=tmp_path)
    assert opened.stdout.split() == ["0.1.0", str(updates)], opened


def test_a_service_resolves_experiment_names(programs: Path, tmp_path: Path) -> None:
    found = run(programs / "python", "-m", "herd_actor", "--config", "catch", "--env.suite", "cach", folder=tmp_path)
    assert (found.returncode, found.stderr.split(":")[:2]) == (2, ["actor", " env.suite"])
