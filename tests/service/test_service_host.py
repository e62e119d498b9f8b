from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from herd.service import host as hardware


@pytest.fixture
def cgroup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for the files of both cgroup versions, all missing at first; this process may run on 8 CPUs."""
    for name in ("CGROUP_V2_LIMIT", "CGROUP_V1_QUOTA", "CGROUP_V1_PERIOD", "CPU_INFO"):
        monkeypatch.setattr(hardware, name, tmp_path / name)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    return tmp_path


@pytest.mark.parametrize(
    ("files", "cpus"),
    [
        ({}, 8),
        ({"CGROUP_V2_LIMIT": "max 100000\n"}, 8),
        ({"CGROUP_V2_LIMIT": "200000 100000\n"}, 2),
        ({"CGROUP_V2_LIMIT": "250000 100000\n"}, 3),
        ({"CGROUP_V2_LIMIT": "10000 100000\n"}, 1),
        ({"CGROUP_V2_LIMIT": "1600000 100000\n"}, 8),
        ({"CGROUP_V2_LIMIT": "nonsense"}, 8),
        ({"CGROUP_V1_QUOTA": "300000\n", "CGROUP_V1_PERIOD": "100000\n"}, 3),
        ({"CGROUP_V1_QUOTA": "-1\n", "CGROUP_V1_PERIOD": "100000\n"}, 8),
        ({"CGROUP_V1_QUOTA": "300000\n"}, 8),
    ],
)
def test_usable_cpus_are_the_smaller_of_affinity_and_quota(cgroup: Path, files: dict[str, str], cpus: int) -> None:
    for name, text in files.items():
        (cgroup / name).write_text(text)
    assert hardware.usable_cpus() == cpus


@pytest.mark.parametrize(
    ("text", "gains"),
    [
        ("vendor_id\t: GenuineIntel\nflags\t\t: fpu avx512f avx512_bf16 amx_bf16 amx_tile\n", True),
        ("vendor_id\t: GenuineIntel\nflags\t\t: fpu avx512f avx512_bf16\n", False),
        ("vendor_id\t: AuthenticAMD\nflags\t\t: fpu avx512f avx512_bf16\n", True),
        ("vendor_id\t: AuthenticAMD\nflags\t\t: fpu avx512f\n", False),
        ("flags\t\t: fpu amx_bf16\n", True),
        ("Features\t: fp asimd bf16 i8mm\n", True),
        ("flags\t\t: fpu avx512f avx2\n", False),
        ("model name : a bf16 machine\nflags : fpu\n", False),
        ("", False),
    ],
)
def test_bfloat16_support_is_read_from_vendor_and_flags(cgroup: Path, text: str, gains: bool) -> None:
    (cgroup / "CPU_INFO").write_text(text)
    assert hardware.cpu_gains_from_bfloat16() is gains


def test_a_machine_without_cpuinfo_has_no_bfloat16(cgroup: Path) -> None:
    assert not (cgroup / "CPU_INFO").exists()
    assert hardware.cpu_gains_from_bfloat16() is False


def test_precision_is_as_chosen_or_follows_the_processor() -> None:
    assert hardware.choose_precision("auto", gains_from_bfloat16=True) == "bfloat16"
    assert hardware.choose_precision("auto", gains_from_bfloat16=False) == "float32"
    assert hardware.choose_precision("float32", gains_from_bfloat16=True) == "float32"
    assert hardware.choose_precision("bfloat16", gains_from_bfloat16=False) == "bfloat16"


def test_actors_are_pinned_to_their_allowed_cpus_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    pinned: list[set[int]] = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {2, 5, 7})
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, cpus: pinned.append(cpus))
    assert [hardware.pin_to_cpu(number) for number in range(4)] == [2, 5, 7, 2]
    assert pinned == [{2}, {5}, {7}, {2}]


def test_other_programs_are_named_if_they_use_a_quarter_of_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = iter([(10.0, 100.0, 40.0), (20.0, 120.0, 56.0), (30.0, 140.0, 71.0), (40.0, 141.0, 73.0), (40.0, 141.0, 73.0)])
    monkeypatch.setattr(psutil, "cpu_count", lambda: 2)
    monkeypatch.setattr(hardware.OtherPrograms, "_read", lambda _: next(looks))
    programs = hardware.OtherPrograms()
    assert [programs.line() for _ in range(4)] == ["", "other programs use 0.5 of 2 cores", "", ""]


@pytest.mark.processes
def test_the_time_of_child_processes_is_not_that_of_other_programs() -> None:
    before = hardware.OtherPrograms._read()
    subprocess.run([sys.executable, "-c", "sum(range(10**6))"], check=True)
    after = hardware.OtherPrograms._read()
    assert after[0] > before[0]
    assert after[2] > before[2]
