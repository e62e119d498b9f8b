"""The checks of the machine before a run starts, on both sides of every threshold."""

from __future__ import annotations

import shutil
from collections import namedtuple
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import torch

from herd.cli import preflight
from herd.cli.options import CommandError
from herd.config.loading import load_settings
from herd.config.run import RunSettings
from herd.service import host as hardware
from herd.service import host as limits


def settings_of(*words: str) -> RunSettings:
    return load_settings([], words, {})


def test_too_little_memory_for_the_buffers_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catch has 10 x 5 boards, no stack and 3 actions; with T = 7 every array of an unroll is counted by its shape."""
    settings = settings_of(
        *("--env.suite", "catch", "--network.torso", "mlp", "--algorithm.unroll_length", "7", "--actor.count", "3"),
        *("--actor.environments", "5", "--learner.batch_size", "11", "--learner.queue_batches", "13"),
    )
    rows, steps = 8, 7
    frames, resets, flags = rows * 10 * 5, 2 * rows, 3 * steps
    numbers = 4 * steps + 4 * steps + 4 * 3 * steps + 4 * steps  # actions, rewards, logits, temperatures
    unroll = frames + resets + flags + numbers + 2 * 2 * 8 + 4 + 4 + 4 + 4 + 8 + 4
    needed = (13 * 11 + 11 + 3 * 5) * unroll
    monkeypatch.setattr(limits, "available_memory", lambda: needed)
    preflight.check_memory(settings)
    monkeypatch.setattr(limits, "available_memory", lambda: needed - 1)
    with pytest.raises(CommandError, match=f"^queues, batches and replay need .* GiB of memory for 169 unrolls of {unroll} bytes, but"):
        preflight.check_memory(settings)
    replaying = settings_of("--learner.queue_batches", "4", "--replay.kind", "local", "--replay.capacity_unrolls", "99999999")
    with pytest.raises(CommandError, match=r"for 100,0.* unrolls"):
        preflight.check_memory(replaying)


def test_a_full_disk_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    settings = settings_of("--run_dir", str(tmp_path / "not" / "yet"))
    asked = []
    free = SimpleNamespace(free=preflight.RUN_FILES_BYTES)

    def usage(folder: Path) -> SimpleNamespace:
        asked.append(folder)
        return free

    monkeypatch.setattr(shutil, "disk_usage", usage)
    preflight.check_disk(settings)
    free.free -= 1
    with pytest.raises(CommandError, match=rf"^run_dir .*: only 31 MiB are free in {tmp_path}; a run needs 32"):
        preflight.check_disk(settings)
    assert asked == [tmp_path, tmp_path]


@pytest.mark.parametrize(("actors", "cpus", "fits"), [(62, 1, True), (63, 1, False), (126, 2, True), (127, 2, False)])
def test_the_number_of_processes_per_cpu_is_limited(monkeypatch: pytest.MonkeyPatch, actors: int, cpus: int, fits: bool) -> None:
    """64 processes are allowed for each CPU, including a learner and a parameter server."""
    monkeypatch.setattr(hardware, "usable_cpus", lambda: cpus)
    settings = settings_of("--actor.count", str(actors))
    if fits:
        preflight.check_processes(settings)
    else:
        with pytest.raises(CommandError, match=rf"^actor x {actors}: the run would have {actors + 2} processes, .* at most {64 * cpus} "):
            preflight.check_processes(settings)


def test_too_many_actors_or_too_few_give_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "usable_cpus", lambda: 2)
    assert preflight.crowded(settings_of("--actor.count", "8")) is None
    assert "actor.count 9: these actors share 2 CPUs" in str(preflight.crowded(settings_of("--actor.count", "9")))
    assert preflight.lonely(settings_of("--agents", "2")) is None
    assert "actor.count 2 is below agents 3" in str(preflight.lonely(settings_of("--agents", "3")))


def test_a_run_that_is_longer_than_its_schedule_gives_a_warning() -> None:
    words = ("--optimizer.schedule_env_frames", "14000000", "--stop.env_frames")
    assert preflight.outlasted(settings_of(*words, "14000000")) is None
    warning = "optimizer.schedule_env_frames 14,000,000: from there to stop.env_frames 14,000,001 the learning rate is 0"
    assert preflight.outlasted(settings_of(*words, "14000001")) == warning
    assert preflight.outlasted(settings_of(*words, "14000001", "--optimizer.schedule", "constant")) is None


def test_each_shard_needs_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = settings_of("--learner.device", "cuda", "--learner.shards", "2")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    preflight.check_device(settings)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(CommandError, match=r"^learner.shards 2: each shard needs its own GPU, and this machine has 1"):
        preflight.check_device(settings)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(CommandError, match=r"^learner.device cuda: .*set learner.device auto or cpu$"):
        preflight.check_device(settings)


Memory = namedtuple("Memory", "available")
Swap = namedtuple("Swap", "free")


@pytest.mark.parametrize(
    ("files", "left"),
    [
        ({}, 1000),
        ({"memory.max": "max", "memory.current": "7"}, 1000),
        ({"memory.max": "800", "memory.current": "300"}, 500),
        ({"memory.max": "800", "memory.current": "300", "memory.stat": "anon 5\ninactive_file 40\n"}, 540),
        ({"memory.max": "800", "memory.current": "900"}, 0),
        ({"memory.max": "9000", "memory.current": "0"}, 1000),
        (
            {"memory/memory.limit_in_bytes": "600", "memory/memory.usage_in_bytes": "100", "memory/memory.stat": "total_inactive_file 1"},
            501,
        ),
    ],
)
def test_available_memory_is_the_least_of_machine_and_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], left: int
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(limits, "CGROUP", tmp_path)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: Memory(available=900))
    monkeypatch.setattr(psutil, "swap_memory", lambda: Swap(free=100))
    assert limits.available_memory() == left


def tasks_dealt(num_tasks: int, *, actors: int, environments: int, agents: int = 1) -> RunSettings:
    scales = ",".join(str(scale) for scale in range(1, num_tasks + 1))
    words = ["--env.suite", "catch", "--network.torso", "mlp", "--env.reward_scales", scales, "--agents", str(agents)]
    words += ["--actor.count", str(actors), "--actor.environments", str(environments), "--learner.queue_batches", "9"]
    return load_settings([], words, {})


@pytest.mark.parametrize(
    ("num_tasks", "actors", "environments", "agents"), [(1, 1, 5, 1), (1, 1, 5, 2), (3, 1, 6, 1), (3, 3, 4, 1), (5, 5, 1, 1), (2, 4, 3, 2)]
)
def test_an_even_distribution_of_tasks_gives_no_message(num_tasks: int, actors: int, environments: int, agents: int) -> None:
    assert preflight.check_dealing(tasks_dealt(num_tasks, actors=actors, environments=environments, agents=agents)) is None


def test_an_uneven_distribution_of_tasks_gives_a_hint() -> None:
    assert preflight.check_dealing(tasks_dealt(3, actors=2, environments=4)) == (
        "there are 3 tasks for 8 environments (actor.count 2 x actor.environments 4): 2 tasks have 3 environments, the others 2; "
        "with actor.environments a multiple of 3 all tasks have equally many"
    )


@pytest.mark.parametrize(("actors", "agents"), [(2, 1), (4, 2), (5, 2)])
def test_a_task_without_environments_is_refused(actors: int, agents: int) -> None:
    with pytest.raises(CommandError) as raised:
        preflight.check_dealing(tasks_dealt(7, actors=actors, environments=3, agents=agents))
    line = str(raised.value)
    assert line.startswith("env.tasks: there are 7 tasks for 6 environments")
    assert line.endswith("1 of the tasks would never be played; set actor.environments to 7 or more")
