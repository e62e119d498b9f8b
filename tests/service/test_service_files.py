"""On failing disks a file is complete, unchanged or missing, but never partial, and nothing is left behind."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from herd.files import append_line, replace_file
from tests.failing_disks import fill, no_space_beyond, read_only, small_disk


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_replace_file_replaces_the_whole_content(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    for text in ("first, and longer", "second", ""):
        replace_file(path, text)
        assert path.read_text() == text
    assert names_in(tmp_path) == ["config.yaml"]


def test_replace_file_flushes_contents_and_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[tuple[str, str]] = []
    fsync, replace = os.fsync, Path.replace

    def record_fsync(descriptor: int) -> None:
        events.append(("fsync", Path(os.readlink(f"/proc/self/fd/{descriptor}")).name))
        fsync(descriptor)

    def record_replace(path: Path, target: Path) -> Path:
        events.append(("rename", target.name))
        return replace(path, target)

    monkeypatch.setattr(os, "fsync", record_fsync)
    monkeypatch.setattr(Path, "replace", record_replace)
    replace_file(tmp_path / "lineage.json", "{}")
    assert events == [("fsync", "lineage.json.tmp"), ("rename", "lineage.json"), ("fsync", tmp_path.name)]


def test_a_failed_replacement_leaves_the_old_file_only(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    replace_file(path, "before")
    with no_space_beyond(100), pytest.raises(OSError, match="too large"):
        replace_file(path, "x" * 200)
    assert path.read_text() == "before"
    assert names_in(tmp_path) == ["config.yaml"]
    replace_file(path, "x" * 200)
    assert path.read_text() == "x" * 200


def test_an_error_at_the_flush_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "config.yaml"
    replace_file(path, "before")

    def broken(_descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", broken)
        with pytest.raises(OSError, match="Input/output error"):
            replace_file(path, "after")
    assert path.read_text() == "before"
    assert names_in(tmp_path) == ["config.yaml"]


def test_lines_are_appended(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    for line in ("one", "two", ""):
        append_line(path, line)
    assert path.read_text() == "one\ntwo\n\n"


@pytest.mark.parametrize("torn", ["", "{", "x" * 100_000])
def test_an_incomplete_last_line_is_removed_before_appending(tmp_path: Path, torn: str) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(f"one\n{torn[:60_000]}")
    append_line(path, "two")
    assert path.read_text() == "one\ntwo\n"
    path.write_text(torn[:60_000])
    append_line(path, "one")
    assert path.read_text() == "one\n"


def test_a_line_that_does_not_fit_is_removed_completely(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    append_line(path, "one")
    with no_space_beyond(10):
        for _ in range(2):
            with pytest.raises(OSError, match="too large"):
                append_line(path, "x" * 20)  # only six of its bytes would fit
            assert path.read_text() == "one\n"
    append_line(path, "two")
    assert path.read_text() == "one\ntwo\n"


@pytest.mark.processes
@pytest.mark.parametrize("write", [replace_file, append_line])
def test_a_really_full_disk_leaves_the_file_unchanged(tmp_path: Path, write: Callable[[Path, str], None]) -> None:
    with small_disk(tmp_path / "disk", 1 << 17) as disk:
        path = disk / "file"
        write(path, "before")
        before = path.read_text()
        ballast = fill(disk)
        with pytest.raises(OSError, match="No space left on device"):
            write(path, "x" * 20_000)
        assert path.read_text() == before
        assert names_in(disk) == ["ballast", "file"]
        ballast.unlink()
        write(path, "x" * 20_000)
        assert path.read_text().endswith("x" * 20_000 + "\n" * (write is append_line))


@pytest.mark.processes
@pytest.mark.parametrize("write", [replace_file, append_line])
def test_a_read_only_disk_leaves_the_file_unchanged(tmp_path: Path, write: Callable[[Path, str], None]) -> None:
    path = tmp_path / "file"
    write(path, "before")
    before = path.read_text()
    with read_only(tmp_path):
        with pytest.raises(OSError, match="Read-only file system"):
            write(path, "after")
        with pytest.raises(OSError, match="Read-only file system"):
            write(tmp_path / "other", "after")
    assert path.read_text() == before
    assert names_in(tmp_path) == ["file"]


def test_a_symlink_at_the_temporary_name_is_not_followed(tmp_path: Path) -> None:
    victim, path = tmp_path / "victim", tmp_path / "config.yaml"
    victim.write_text("precious")
    (tmp_path / "config.yaml.tmp").symlink_to(victim)
    replace_file(path, "settings")
    assert victim.read_text() == "precious"
    assert path.read_text() == "settings"
    assert names_in(tmp_path) == ["config.yaml", "victim"]
