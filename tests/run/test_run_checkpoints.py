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
from herd.run import checkpoints
from herd.run.checkpoints import CheckpointError, ForeignCheckpointError, TornCheckpointError, newest_checkpoint
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
    torch.set_rng_state(tensors_of(1234)["random"]["torch"])
    expected = torch.randn(4)
    torch.set_rng_state(loaded.tensors["random"]["torch"])
    assert torch.equal(torch.randn(4), expected)


def test_only_the_newest_checkpoints_by_number_are_kept(tmp_path):
    assert newest_checkpoint(tmp_path / "nowhere") is None
    assert newest_checkpoint(tmp_path) is None
    for updates in (2, 10, 100, 101):
        save(tmp_path, updates, keep=2)
    assert names_in(tmp_path) == ["000000000100", "000000000101"]
    assert newest_checkpoint(tmp_path) == tmp_path / "000000000101"
    save(tmp_path, 102, keep=1)
    assert names_in(tmp_path) == ["000000000102"]


def test_torn_checkpoints_do_not_displace_the_last_complete_one(tmp_path):
    save(tmp_path, 1, keep=3)
    for updates in (2, 3):
        (save(tmp_path, updates, keep=3) / "model.safetensors").write_bytes(b"")
    save(tmp_path, 4, keep=2)
    assert names_in(tmp_path) == ["000000000001", "000000000004"]


@pytest.mark.parametrize("name", [*FILES, "manifest.json"])
def test_a_checkpoint_with_a_missing_or_damaged_file_is_skipped(tmp_path, name, caplog):
    first, second = save(tmp_path, 1), save(tmp_path, 2)
    file = second / name
    data = file.read_bytes()

    def refusal():
        with pytest.raises(TornCheckpointError) as refused:
            load_checkpoint(second)
        assert one_line(refused)
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            assert newest_checkpoint(tmp_path) == first
        (record,) = caplog.records
        assert record.getMessage() == f"checkpoint skipped: {refused.value}; continuing from {first}"
        return str(refused.value)

    file.unlink()
    assert refusal() == f"{second}: {name} is missing"
    file.write_bytes(data[:-3])
    assert (f"{name} has {len(data) - 3} bytes, expected {len(data)}" if name in FILES else f"{name} is damaged") in refusal()
    for position in (0, len(data) // 2, len(data) - 1) if name in FILES else ():
        file.write_bytes(data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :])
        assert f"{name} is damaged" in refusal()
    file.write_bytes(data)
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


@pytest.mark.parametrize("failure", [KilledError(), OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))], ids=["killed", "full"])
@pytest.mark.parametrize("failing", [*FILES, "manifest.json", "rename"])
def test_a_write_that_is_cut_short_leaves_the_previous_checkpoint(tmp_path, monkeypatch, failing, failure):
    first = save(tmp_path, 1)
    before = snapshot(first)
    write, rename = checkpoints._write_durably, Path.rename

    def cut_short(path, data):
        if path.name == failing:
            path.write_bytes(data[: len(data) // 2])
            raise failure
        write(path, data)

    def no_rename(path, target):
        if failing == "rename":
            raise failure
        return rename(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "_write_durably", cut_short)
        patch.setattr(Path, "rename", no_rename)
        with pytest.raises((KilledError, CheckpointError)) as refused:
            save(tmp_path, 2, keep=1)
    if isinstance(failure, OSError):
        assert "000000000002: cannot be written: No space left on device" in str(refused.value)
        assert one_line(refused)
    # A killed process cannot clean up.
    assert names_in(tmp_path) == [first.name, *(["000000000002.writing"] if isinstance(failure, KilledError) else [])]
    assert newest_checkpoint(tmp_path) == first
    assert snapshot(first) == before
    assert load_checkpoint(save(tmp_path, 2)).state["learner_updates"] == 2
    assert names_in(tmp_path) == ["000000000001", "000000000002"]


def test_files_and_names_are_flushed_manifest_last_before_the_rename(tmp_path, monkeypatch):
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
    for updates in (3, 4):
        save(tmp_path / "checkpoints", updates)
        assert events == [
            ("fsync", tmp_path.name),  # the name of the folder
            *[("fsync", name) for name in [*FILES, "manifest.json"]],
            ("fsync", f"{updates:012d}.writing"),
            ("rename", f"{updates:012d}"),
            ("fsync", "checkpoints"),
        ]
        events.clear()


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
    newest = newest_checkpoint(tmp_path)
    assert newest == tmp_path / "000000000002.replaced"
    assert load_checkpoint(tmp_path / "000000000002.replaced").state["note"] == "old"
    assert load_checkpoint(save(tmp_path, 2, note="new")).state["note"] == "new"
    assert names_in(tmp_path) == ["000000000002"]


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
        patch.setattr(Path, "rename", full) if failing == "rename" else patch.setattr(checkpoints, "flush_directory", full_flush)
        for updates in (1, 2):
            with pytest.raises(CheckpointError, match="quota"):
                save(tmp_path, updates, note="new")
    assert names_in(tmp_path) == ["000000000001"]
    assert load_checkpoint(first).state["note"] == "old"


def test_folders_that_cannot_be_removed_do_not_fail_a_save(tmp_path, monkeypatch):
    """An old checkpoint, and what a killed process left."""
    save(tmp_path, 1)
    (tmp_path / f"{5:012d}.writing").mkdir()
    rmdir = os.rmdir

    def busy(path, *arguments, **keywords):
        if str(path).endswith((".writing", ".removing")):
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
        rmdir(path, *arguments, **keywords)

    with monkeypatch.context() as patch:
        patch.setattr(os, "rmdir", busy)
        path = save(tmp_path, 6, keep=1)
    assert newest_checkpoint(tmp_path) == path
    save(tmp_path, 7, keep=1)
    assert names_in(tmp_path) == [f"{7:012d}"]


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


@pytest.mark.parametrize(("number", "skipped"), [(errno.EACCES, False), (errno.EIO, True)])
def test_a_bad_block_is_skipped_but_not_a_missing_permission(tmp_path, monkeypatch, caplog, number, skipped):
    """A permission may be restored, a bad block does not recover."""
    first = save(tmp_path, 1)
    unreadable = save(tmp_path, 2) / "model.safetensors"
    original = os.open

    def refuse(path, *arguments, **options):
        if path == unreadable:
            raise OSError(number, os.strerror(number), str(path))
        return original(path, *arguments, **options)

    monkeypatch.setattr(os, "open", refuse)
    reason = f"{unreadable}: cannot be read: {os.strerror(number)}"
    if skipped:
        assert newest_checkpoint(tmp_path) == first
        assert f"{reason}; continuing from {first}" in caplog.text
    else:
        with pytest.raises(CheckpointError, match=reason):
            newest_checkpoint(tmp_path)


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
    with pytest.raises(CheckpointError, match="none of 4 checkpoints can be used") as refused:
        load_newest(tmp_path, refuse_number(1, 2, 4))
    assert f"{paths[0]}: made by another run" in str(refused.value)
    assert f"{paths[2]}: state.json is missing" in str(refused.value)


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


@pytest.mark.processes
def test_saving_works_again_after_a_full_or_read_only_disk(tmp_path):
    with small_disk(tmp_path / "disk", 1 << 19) as disk:
        first = save(disk / "checkpoints", 1)
        before = snapshot(first)

        def refused(reason):
            with pytest.raises(CheckpointError, match=f"000000000002: cannot be written: {reason}") as error:
                save(disk / "checkpoints", 2, keep=1)
            assert one_line(error)
            assert names_in(disk / "checkpoints") == [first.name]
            assert snapshot(first) == before

        ballast = fill(disk)
        refused("No space left on device")
        ballast.unlink()
        with read_only(disk / "checkpoints"):
            refused("Read-only file system")
        fourth = save(disk / "checkpoints", 4, keep=1)
        assert names_in(disk / "checkpoints") == [fourth.name]
        assert load_checkpoint(fourth).learner_updates == 4


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


HEAD = {"format": "herd-checkpoint", "version": 1, "learner_updates": 1}
ELSEWHERE = [
    json.dumps({**HEAD, "files": {name: {"bytes": 1, "sha256": "0" * 64}}})
    for name in ("../secret.json", "/etc/passwd", "model.pt", "a/b.json")
]


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"format": "other", "version": 1}', '"text"', "[" * 100000, *ELSEWHERE])
def test_a_foreign_manifest_gives_one_clear_line_and_names_no_file_elsewhere(tmp_path, content):
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
