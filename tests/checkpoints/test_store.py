"""Checkpoints survive crashes, full disks and flipped bits, or report in one line that they did not."""

import errno
import json
import logging
import os
import shutil
from pathlib import Path

import pytest
import torch

from herd.files import flush_directory
from herd.run.checkpoints import store
from herd.run.checkpoints.manifest import CheckpointError, ForeignCheckpointError, TornCheckpointError
from herd.run.checkpoints.store import newest_checkpoint
from herd.run.tensors import load_checkpoint, load_newest, save_checkpoint
from tests.failing_disks import fill, read_only, small_disk

FILES = ["model.safetensors", "optimizer.safetensors", "random.safetensors", "state.json"]


class KilledError(BaseException):
    """Stands in for SIGKILL: the code under test must not run any cleanup for it."""


def tensors_of(value):
    torch.manual_seed(value)
    return {
        "model": {"w": torch.full((3, 2), float(value)), "b": torch.randn(5)},
        "optimizer": {"w/square_average": torch.ones(3, 2)},
        "random": {"torch": torch.get_rng_state()},
    }


def save(directory, updates, keep=2, **state):
    return save_checkpoint(directory, updates, tensors_of(updates), {"learner_updates": updates, **state}, keep)


def newest_in(directory: Path) -> Path:
    newest = newest_checkpoint(directory)
    assert newest is not None
    return newest


def names_in(directory):
    return sorted(entry.name for entry in directory.iterdir())


def snapshot(path):
    return {file.name: file.read_bytes() for file in path.iterdir()}


def one_line(error):
    return "\n" not in str(error.value) and len(str(error.value)) < 500


def test_saved_checkpoints_are_loaded(tmp_path):
    state = {"ledger": {"generated": 1 << 60}, "random": 340282366920938463463374607431768211455, "mean": 0.1, "none": None}
    path = save(tmp_path / "new" / "folder", 1234, **state)
    assert path.name == "000000001234"
    assert names_in(path) == sorted([*FILES, "manifest.json"])
    loaded = load_checkpoint(path)
    assert loaded.learner_updates == 1234
    assert loaded.path == path
    assert loaded.state == {"learner_updates": 1234, **state}
    for key, group in tensors_of(1234).items():
        assert loaded.tensors[key].keys() == group.keys()
        for name, tensor in group.items():
            assert torch.equal(loaded.tensors[key][name], tensor)


def test_a_restored_random_state_continues_the_sequence(tmp_path):
    torch.manual_seed(7)
    path = save_checkpoint(tmp_path, 1, {"random": {"torch": torch.get_rng_state()}}, {}, 1)
    expected = torch.randn(4)
    torch.manual_seed(8)
    torch.set_rng_state(load_checkpoint(path).tensors["random"]["torch"])
    assert torch.equal(torch.randn(4), expected)


def test_only_the_newest_checkpoints_by_number_are_kept(tmp_path):
    assert newest_checkpoint(tmp_path / "nowhere") is None
    assert newest_checkpoint(tmp_path) is None
    for updates in (2, 10, 100, 101):
        save(tmp_path, updates, keep=2)
    assert names_in(tmp_path) == ["000000000100", "000000000101"]
    assert newest_in(tmp_path).name == "000000000101"
    save(tmp_path, 102, keep=1)
    assert names_in(tmp_path) == ["000000000102"]


def test_torn_checkpoints_do_not_displace_the_last_complete_one(tmp_path):
    save(tmp_path, 1, keep=3)
    for updates in (2, 3):
        (save(tmp_path, updates, keep=3) / "model.safetensors").write_bytes(b"")
    save(tmp_path, 4, keep=2)
    assert names_in(tmp_path) == ["000000000001", "000000000004"]


@pytest.mark.parametrize("name", [*FILES, "manifest.json"])
def test_a_checkpoint_with_a_missing_file_is_skipped(tmp_path, name, caplog):
    first, second = save(tmp_path, 1), save(tmp_path, 2)
    (second / name).unlink()
    with pytest.raises(TornCheckpointError, match=f"{name} is missing") as refused:
        load_checkpoint(second)
    assert one_line(refused)
    with caplog.at_level(logging.WARNING):
        assert newest_checkpoint(tmp_path) == first
    (record,) = caplog.records
    assert record.getMessage() == f"checkpoint skipped: {second}: {name} is missing; continuing from {first}"


@pytest.mark.parametrize("name", [*FILES, "manifest.json"])
def test_a_checkpoint_with_a_truncated_file_is_torn(tmp_path, name):
    first, second = save(tmp_path, 1), save(tmp_path, 2)
    os.truncate(second / name, (second / name).stat().st_size - 3)
    with pytest.raises(TornCheckpointError, match=rf"{name} (has \d+ bytes, expected \d+|is damaged)") as refused:
        load_checkpoint(second)
    assert one_line(refused)
    assert ("expected" in str(refused.value)) == (name in FILES)
    assert newest_checkpoint(tmp_path) == first


@pytest.mark.parametrize("name", FILES)
def test_a_checkpoint_with_a_flipped_bit_is_torn(tmp_path, name):
    first, second = save(tmp_path, 1), save(tmp_path, 2)
    data = (second / name).read_bytes()
    for position in (0, len(data) // 2, len(data) - 1):
        flipped = bytearray(data)
        flipped[position] ^= 1
        (second / name).write_bytes(flipped)
        with pytest.raises(TornCheckpointError, match=f"{name} is damaged"):
            load_checkpoint(second)
    assert newest_checkpoint(tmp_path) == first
    (second / name).write_bytes(data)
    assert newest_checkpoint(tmp_path) == second


def test_flipped_bits_of_the_manifest_are_detected_or_harmless(tmp_path):
    path = save(tmp_path, 2)
    whole, manifest = load_checkpoint(path), path / "manifest.json"
    data = manifest.read_bytes()
    seen = 0
    for position in range(len(data)):
        flipped = bytearray(data)
        flipped[position] ^= 1
        manifest.write_bytes(flipped)
        try:
            loaded = load_checkpoint(path)
        except CheckpointError:
            seen += 1
        else:
            assert loaded.learner_updates == whole.learner_updates
            assert loaded.tensors.keys() == whole.tensors.keys()
    assert seen > len(data) / 2


def test_a_folder_renamed_to_another_number_is_torn(tmp_path):
    save(tmp_path, 5).rename(tmp_path / f"{6:012d}")
    with pytest.raises(TornCheckpointError, match="the checkpoint of 5 updates"):
        load_checkpoint(tmp_path / f"{6:012d}")


def test_if_every_checkpoint_is_torn_loading_fails(tmp_path):
    for updates in (1, 2):
        (save(tmp_path, updates) / "state.json").unlink()
    with pytest.raises(CheckpointError, match="none of 2 checkpoints can be used") as refused:
        newest_checkpoint(tmp_path)
    for updates in (1, 2):
        assert f"{tmp_path / f'{updates:012d}'}: state.json is missing" in str(refused.value)
    assert one_line(refused)
    shutil.rmtree(tmp_path / f"{2:012d}")
    with pytest.raises(TornCheckpointError, match=r"000000000001: state\.json is missing"):
        newest_checkpoint(tmp_path)


@pytest.mark.parametrize("killed_at", [*FILES, "manifest.json", "rename"])
def test_a_crash_while_writing_leaves_the_previous_checkpoint(tmp_path, monkeypatch, killed_at):
    first = save(tmp_path, 1)
    before = snapshot(first)
    write, rename = store._write_durably, Path.rename

    def killed_after_half(path, data):
        if path.name == killed_at:
            path.write_bytes(data[: len(data) // 2])
            raise KilledError
        write(path, data)

    def killed_instead_of_rename(path, target):
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(store, "_write_durably", killed_after_half)
        if killed_at == "rename":
            patch.setattr(Path, "rename", killed_instead_of_rename)
        with pytest.raises(KilledError):
            save(tmp_path, 2)
    assert names_in(tmp_path) == ["000000000001", "000000000002.writing"]
    assert newest_checkpoint(tmp_path) == first
    assert snapshot(first) == before
    assert Path.rename is rename
    second = save(tmp_path, 2)
    assert names_in(tmp_path) == ["000000000001", "000000000002"]
    assert load_checkpoint(second).state["learner_updates"] == 2


def test_files_are_flushed_manifest_last_before_the_rename(tmp_path, monkeypatch):
    events = []
    fsync, rename = os.fsync, Path.rename

    def record_fsync(descriptor):
        events.append(("fsync", Path(os.readlink(f"/proc/self/fd/{descriptor}")).name))
        fsync(descriptor)

    def record_rename(path, target):
        events.append(("rename", Path(target).name))
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", record_fsync)
    monkeypatch.setattr(Path, "rename", record_rename)
    save(tmp_path, 3)
    assert events == [
        *[("fsync", name) for name in [*FILES, "manifest.json"]],
        ("fsync", "000000000003.writing"),
        ("rename", "000000000003"),
        ("fsync", tmp_path.name),
    ]


def test_saving_the_same_number_again_replaces_it(tmp_path):
    save(tmp_path, 1)
    save(tmp_path, 2, note="old")
    path = save(tmp_path, 2, note="new")
    assert load_checkpoint(path).state["note"] == "new"
    assert names_in(tmp_path) == ["000000000001", "000000000002"]


def test_a_crash_while_replacing_leaves_the_old_one_readable(tmp_path, monkeypatch):
    save(tmp_path, 2, note="old")
    rename = Path.rename

    def killed_at_second_rename(path, target):
        if path.name.endswith(".writing"):
            raise KilledError
        return rename(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", killed_at_second_rename)
        with pytest.raises(KilledError):
            save(tmp_path, 2, note="new")
    newest = newest_in(tmp_path)
    assert newest.name == "000000000002.replaced"
    assert load_checkpoint(newest).state["note"] == "old"
    save(tmp_path, 3, keep=1)
    assert names_in(tmp_path) == ["000000000003"]


@pytest.mark.parametrize("full_at", [*FILES, "manifest.json"])
def test_a_full_disk_gives_one_line_and_keeps_the_previous_one(tmp_path, monkeypatch, full_at):
    first = save(tmp_path, 1)
    before = snapshot(first)
    write = store._write_durably

    def full(path, data):
        if path.name == full_at:
            path.write_bytes(data[:10])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        write(path, data)

    with monkeypatch.context() as patch:
        patch.setattr(store, "_write_durably", full)
        with pytest.raises(CheckpointError, match=r"000000000002: cannot be written: No space left on device") as refused:
            save(tmp_path, 2, keep=1)
    assert one_line(refused)
    assert names_in(tmp_path) == ["000000000001"]
    assert snapshot(first) == before
    assert newest_in(save(tmp_path, 2).parent).name == "000000000002"


@pytest.mark.parametrize("failing", ["rename", "flush"])
def test_a_full_disk_while_replacing_leaves_the_old_one(tmp_path, monkeypatch, failing):
    first = save(tmp_path, 1, note="old")
    rename, flush = Path.rename, flush_directory

    def full(path, target):
        if path.name.endswith(".writing"):
            raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))
        return rename(path, target)

    def full_flush(path):
        if path == tmp_path:
            raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))
        flush(path)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", full) if failing == "rename" else patch.setattr(store, "flush_directory", full_flush)
        for updates in (1, 2):
            with pytest.raises(CheckpointError, match="quota"):
                save(tmp_path, updates, note="new")
    assert names_in(tmp_path) == ["000000000001"]
    assert load_checkpoint(first).state["note"] == "old"


def test_a_checkpoint_that_cannot_be_removed_does_not_fail_a_save(tmp_path, monkeypatch):
    save(tmp_path, 1)

    def stuck(path, ignore_errors=False):
        if not ignore_errors:
            raise OSError(errno.EBUSY, "busy")

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", stuck)
        path = save(tmp_path, 2, keep=1)
    assert newest_checkpoint(tmp_path) == path
    save(tmp_path, 3, keep=1)
    assert names_in(tmp_path) == ["000000000003"]


def test_a_state_that_cannot_be_encoded_writes_nothing(tmp_path):
    with pytest.raises(TypeError):
        save_checkpoint(tmp_path, 1, tensors_of(1), {"path": object()}, 2)
    assert names_in(tmp_path) == []


def test_a_file_in_place_of_the_folder_is_one_clear_line(tmp_path):
    (tmp_path / "checkpoints").write_text("not a folder")
    with pytest.raises(CheckpointError, match="cannot be written") as refused:
        save(tmp_path / "checkpoints", 1)
    assert one_line(refused)
    with pytest.raises(CheckpointError, match="cannot be read"):
        newest_checkpoint(tmp_path / "checkpoints")


def test_a_checkpoint_without_read_permission_is_not_skipped(tmp_path, monkeypatch):
    save(tmp_path, 1)
    unreadable = save(tmp_path, 2) / "model.safetensors"
    original = os.open

    def refuse(path, *arguments, **options):
        if path == unreadable:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return original(path, *arguments, **options)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(CheckpointError, match=r"model\.safetensors: cannot be read: Permission denied"):
        newest_checkpoint(tmp_path)


def test_a_checkpoint_with_a_bad_block_is_skipped(tmp_path, monkeypatch, caplog):
    first = save(tmp_path, 1)
    unreadable = save(tmp_path, 2) / "model.safetensors"
    original = os.open

    def fail(path, *arguments, **options):
        if path == unreadable:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return original(path, *arguments, **options)

    monkeypatch.setattr(os, "open", fail)
    assert newest_checkpoint(tmp_path) == first
    assert f"{unreadable}: cannot be read: Input/output error; continuing from {first}" in caplog.text


def refuse_number(*numbers):
    def accept(checkpoint):
        if checkpoint.learner_updates in numbers:
            raise ForeignCheckpointError(f"{checkpoint.path}: made by another run")

    return accept


def test_the_newest_that_is_accepted_is_loaded(tmp_path, caplog):
    assert load_newest(tmp_path, refuse_number()) is None
    paths = [save(tmp_path, updates, keep=9) for updates in (1, 2, 3, 4)]
    loaded = load_newest(tmp_path, refuse_number())
    assert loaded is not None
    assert loaded.path == paths[3]
    assert caplog.records == []
    (paths[2] / "state.json").unlink()
    loaded = load_newest(tmp_path, refuse_number(4))
    assert loaded is not None
    assert (loaded.path, loaded.learner_updates) == (paths[1], 2)
    (record,) = caplog.records
    assert record.getMessage() == (
        f"checkpoint skipped: {paths[3]}: made by another run; {paths[2]}: state.json is missing; continuing from {paths[1]}"
    )


def test_if_none_is_accepted_the_error_gives_each_reason(tmp_path):
    paths = [save(tmp_path, updates, keep=9) for updates in (1, 2)]
    (paths[1] / "state.json").unlink()
    with pytest.raises(CheckpointError, match="none of 2 checkpoints can be used") as refused:
        load_newest(tmp_path, refuse_number(1))
    assert f"{paths[0]}: made by another run" in str(refused.value)
    assert f"{paths[1]}: state.json is missing" in str(refused.value)
    assert one_line(refused)


def test_a_state_that_is_not_a_mapping_is_foreign(tmp_path):
    path = save_checkpoint(tmp_path, 1, tensors_of(1), ["no", "mapping"], 1)  # type: ignore[arg-type]
    with pytest.raises(ForeignCheckpointError, match="is not a mapping"):
        load_checkpoint(path)


def test_checkpoints_above_the_newest_written_are_kept(tmp_path):
    """They were skipped, and may belong to another run. Torn ones are removed as always."""
    for updates in (8, 9):
        save(tmp_path, updates, keep=9)
    (save(tmp_path, 7, keep=9) / "state.json").unlink()
    for updates in (1, 2, 3):
        save(tmp_path, updates, keep=2)
    assert names_in(tmp_path) == [f"{updates:012d}" for updates in (2, 3, 8, 9)]


def test_the_parent_of_a_new_folder_is_flushed(tmp_path, monkeypatch):
    flushed = []
    fsync = os.fsync

    def record_fsync(descriptor):
        flushed.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", record_fsync)
    save(tmp_path / "checkpoints", 1)
    assert tmp_path in flushed
    flushed.clear()
    save(tmp_path / "checkpoints", 2)
    assert tmp_path not in flushed


def test_a_leftover_that_cannot_be_removed_is_ignored(tmp_path, monkeypatch):
    (tmp_path / f"{5:012d}.writing").mkdir()
    rmdir = os.rmdir

    def busy(path, *arguments, **keywords):
        if str(path).endswith(".writing"):
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
        rmdir(path, *arguments, **keywords)

    with monkeypatch.context() as patch:
        patch.setattr(os, "rmdir", busy)
        path = save(tmp_path, 6)
    assert newest_checkpoint(tmp_path) == path
    save(tmp_path, 7)
    assert names_in(tmp_path) == [f"{updates:012d}" for updates in (6, 7)]


@pytest.mark.processes
def test_saving_works_again_after_a_really_full_disk(tmp_path):
    with small_disk(tmp_path / "disk", 1 << 19) as disk:
        first = save(disk / "checkpoints", 1)
        before = snapshot(first)
        ballast = fill(disk)
        for updates in (2, 3):
            with pytest.raises(CheckpointError, match=f"{updates:012d}: cannot be written: No space left on device") as refused:
                save(disk / "checkpoints", updates, keep=1)
            assert one_line(refused)
            assert names_in(disk / "checkpoints") == [first.name]
        assert snapshot(first) == before
        ballast.unlink()
        fourth = save(disk / "checkpoints", 4, keep=1)
        assert names_in(disk / "checkpoints") == [fourth.name]
        assert load_checkpoint(fourth).learner_updates == 4


@pytest.mark.processes
def test_a_read_only_disk_is_one_clear_line(tmp_path):
    first = save(tmp_path / "checkpoints", 1)
    with read_only(tmp_path / "checkpoints"):
        with pytest.raises(CheckpointError, match="cannot be written: Read-only file system") as refused:
            save(tmp_path / "checkpoints", 2, keep=1)
        assert one_line(refused)
        assert newest_checkpoint(tmp_path / "checkpoints") == first
    save(tmp_path / "checkpoints", 2, keep=1)
    assert names_in(tmp_path / "checkpoints") == [f"{2:012d}"]


def edit_manifest(path, **changes):
    manifest = path / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), **changes}))


def test_a_later_format_is_refused_and_not_removed(tmp_path):
    save(tmp_path, 1)
    edit_manifest(save(tmp_path, 2), version=2)
    with pytest.raises(CheckpointError, match="format version 2; this program reads version 1"):
        newest_checkpoint(tmp_path)
    save(tmp_path, 3, keep=1)
    assert names_in(tmp_path) == ["000000000002", "000000000003"]


@pytest.mark.parametrize("name", ["../secret.json", "/etc/passwd", "model.pt", "a/b.json"])
def test_a_manifest_cannot_point_outside_its_folder(tmp_path, name):
    path = save(tmp_path, 1)
    edit_manifest(path, files={name: {"bytes": 1, "sha256": "0" * 64}})
    with pytest.raises(TornCheckpointError, match=r"manifest\.json is damaged or foreign"):
        load_checkpoint(path)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"format": "other", "version": 1}', '"text"', "[" * 100000])
def test_a_foreign_manifest_gives_one_clear_line(tmp_path, content):
    path = save(tmp_path, 1)
    (path / "manifest.json").write_text(content)
    with pytest.raises(CheckpointError, match=r"manifest\.json is damaged") as refused:
        load_checkpoint(path)
    assert one_line(refused)


def test_foreign_folders_and_files_are_ignored_and_kept(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "best").mkdir()
    path = save(tmp_path, 1, keep=1)
    assert newest_checkpoint(tmp_path) == path
    save(tmp_path, 2, keep=1)
    assert names_in(tmp_path) == ["000000000002", "best", "notes.txt"]
    with pytest.raises(CheckpointError, match=r"manifest\.json is missing"):
        load_checkpoint(tmp_path / "best")
