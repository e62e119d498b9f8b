"""Files that others wrote are read within limits, and on failing disks a file is complete, unchanged or missing, but never partial."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from herd import files
from herd.files import FileError, append_line, make_folder, parse_json, read_file, read_json, read_lines, replace_file
from herd.run.checkpoints import CheckpointError, TornCheckpointError, newest_checkpoint
from herd.run.tensors import load_checkpoint
from tests.failing_disks import fill, no_space_beyond, read_only, small_disk


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_files_are_read_completely_up_to_a_size_limit(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"\0\xff" * 500)
    assert read_file(path, 1000) == b"\0\xff" * 500
    with pytest.raises(OSError, match="Larger than 999 bytes") as caught:
        read_file(path, 999)
    assert caught.value.errno == errno.EFBIG


def test_the_name_of_a_folder_is_flushed_before_anything_is_put_into_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[tuple[Path, list[str]]] = []
    monkeypatch.setattr(files, "flush_directory", lambda path: flushed.append((path, names_in(path))))
    make_folder(tmp_path / "a" / "b")
    assert flushed == [(tmp_path, ["a"]), (tmp_path / "a", ["b"])]
    flushed.clear()
    make_folder(tmp_path / "a" / "b")  # a process that was killed may have created it, and not flushed its name
    assert flushed == [(tmp_path / "a", ["b"])]


def test_files_that_are_not_regular_are_refused_without_waiting(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="Not a regular file"):
        read_file(pipe, 1000)
    with pytest.raises(OSError, match="Not a regular file"):
        read_file(Path("/dev/zero"), 1000)
    with pytest.raises(IsADirectoryError):
        read_file(tmp_path, 1000)
    with pytest.raises(FileNotFoundError):
        read_file(tmp_path / "none", 1000)


def test_integers_in_json_are_of_limited_length() -> None:
    assert parse_json(f"[{2**127}, -3, 1e400]") == [2**127, -3, float("inf")]
    with pytest.raises(ValueError, match="an integer of 400 digits"):
        parse_json('{"env_frames": ' + "9" * 400 + "}")


def test_a_huge_sparse_file_is_refused_without_reading(tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(OSError, match="Larger than"):
        read_json(path)
    with pytest.raises(TornCheckpointError, match=r"manifest\.json: cannot be read: Larger than"):
        load_checkpoint(tmp_path)


def test_a_journal_that_is_one_endless_line_is_refused_in_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "starts.jsonl"
    with path.open("wb") as file:
        file.write(b'{"a": 1}\n')
        file.truncate(1 << 33)
    lines = read_lines(path, "a start", dict)
    assert next(lines) == {"a": 1}
    with pytest.raises(FileError, match="line 2, is not a start: longer than"):
        next(lines)


def test_a_checkpoint_of_pipes_is_refused_without_waiting(tmp_path: Path) -> None:
    folder = tmp_path / f"{7:012d}"
    folder.mkdir()
    os.mkfifo(folder / "manifest.json")
    with pytest.raises(CheckpointError, match="Not a regular file"):
        newest_checkpoint(tmp_path)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "9" * 5000, "{", "\x00", b"\xff", bytearray(b"\xc3("), ""])
def test_unreadable_json_raises_value_error(text: str | bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  whatever it says
        parse_json(text)


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


def test_a_failed_replacement_leaves_the_old_file_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "config.yaml"
    replace_file(path, "before")
    with no_space_beyond(100), pytest.raises(OSError, match="too large"):
        replace_file(path, "x" * 200)

    def broken(_descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", broken)
        with pytest.raises(OSError, match="Input/output error"):
            replace_file(path, "after")
    assert path.read_text() == "before"
    assert names_in(tmp_path) == ["config.yaml"]
    replace_file(path, "x" * 200)
    assert path.read_text() == "x" * 200


@pytest.mark.parametrize("torn", ["", "{", "x" * 60_000])
def test_lines_are_appended_after_an_incomplete_one_is_removed(tmp_path: Path, torn: str) -> None:
    path = tmp_path / "metrics.jsonl"
    for before in ("", "one\n"):
        path.write_text(before + torn)
        for line in ("two", ""):
            append_line(path, line)
        assert path.read_text() == f"{before}two\n\n"


def test_lines_are_appended_to_files_only(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "starts.jsonl")
    with pytest.raises(OSError, match=r"not a regular file: .*starts\.jsonl"):
        append_line(tmp_path / "starts.jsonl", "one")


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
def test_a_full_or_read_only_disk_leaves_the_file_unchanged(tmp_path: Path, write: Callable[[Path, str], None]) -> None:
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
        with read_only(disk):
            for name in ("file", "other"):
                with pytest.raises(OSError, match="Read-only file system"):
                    write(disk / name, "after")
        assert path.read_text() == before
        assert names_in(disk) == ["file"]
        write(path, "x" * 20_000)
        assert path.read_text().endswith("x" * 20_000 + "\n" * (write is append_line))


def test_a_symlink_at_the_temporary_name_is_not_followed(tmp_path: Path) -> None:
    victim, path = tmp_path / "victim", tmp_path / "config.yaml"
    victim.write_text("precious")
    (tmp_path / "config.yaml.tmp").symlink_to(victim)
    replace_file(path, "settings")
    assert victim.read_text() == "precious"
    assert path.read_text() == "settings"
    assert names_in(tmp_path) == ["config.yaml", "victim"]
