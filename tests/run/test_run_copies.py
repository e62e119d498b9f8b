"""A run's copy in object storage: only whole checkpoints are visible, the newest wins, and every failure is one line."""

from __future__ import annotations

import io
import json
import threading
import uuid
from pathlib import Path

import pytest

from herd.run import copies
from herd.run.checkpoints import CheckpointError, TornCheckpointError, write_checkpoint
from herd.run.copies import AGENT_FILES, RUN_FILES, Copier, RunCopy, Storage, StorageError, check_unused, copy_run, fetch_run, restore
from herd.run.paths import checkpoint_folders
from tests.patience import patient
from tests.run.object_storage import BUCKET, s3_server

TENSORS = b"\x00\x01" * 5000


@pytest.fixture(scope="module")
def s3():
    with s3_server() as server:
        yield server


@pytest.fixture(params=["memory", "file", pytest.param("s3", marks=pytest.mark.processes)])
def address(request, tmp_path):
    if request.param == "s3":
        request.getfixturevalue("s3")
        return f"s3://{BUCKET}/{uuid.uuid4().hex}/run"
    return f"memory://{uuid.uuid4().hex}/run" if request.param == "memory" else f"file://{tmp_path}/storage/run"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "herd" / "runs"


def leave_run(directory: Path, *updates: int, keep: int = 2) -> Path:
    """Write what a learner with these checkpoints leaves."""
    directory.mkdir(parents=True, exist_ok=True)
    for number in updates:
        files = {"model.safetensors": TENSORS + bytes([number % 251]), "state.json": json.dumps({"learner_updates": number}).encode()}
        write_checkpoint(directory / "checkpoints", number, files, keep)
    (directory / "config.yaml").write_text("name: mine\n")
    (directory / "metrics.jsonl").write_text("".join(f'{{"env_frames": {number}, "wall_seconds": 1}}\n' for number in updates))
    return directory


def copier(address: str, directory: Path, **options) -> Copier:
    return Copier(Storage(address), directory, (*RUN_FILES, *AGENT_FILES), **{"keep": 2, **options})


def checkpoints_in(address: str) -> set[str]:
    return {key.split("/")[1] for key in Storage(address).sizes() if key.startswith("checkpoints/")}


def test_a_copy_has_what_a_run_has_and_is_fetched_whole(address, tmp_path, cache):
    run = leave_run(tmp_path / "run", 1)
    copy = copier(address, run)
    for updates in (2, 3, 10):
        leave_run(run, updates)
        (run / "logs").mkdir(exist_ok=True)
        (run / "token").write_text("secret")
        assert copy.update() == updates
    assert checkpoints_in(address) == {"000000000003", "000000000010"}
    assert {key for key in Storage(address).sizes() if "/" not in key} == {"config.yaml", "metrics.jsonl"}
    fetched = fetch_run(address)
    assert fetched.parent == cache
    newest = fetched / "checkpoints" / "000000000010"
    assert {file.name: file.read_bytes() for file in newest.iterdir()} == {
        file.name: file.read_bytes() for file in (run / "checkpoints" / "000000000010").iterdir()
    }
    assert (fetched / "metrics.jsonl").read_bytes() == (run / "metrics.jsonl").read_bytes()
    stamps = [file.stat().st_ino for file in sorted(newest.iterdir())]
    assert fetch_run(address) == fetched
    assert [file.stat().st_ino for file in sorted(newest.iterdir())] == stamps  # an intact checkpoint is not fetched again


def test_an_empty_disk_gets_the_newest_whole_checkpoint_and_the_curve(address, tmp_path):
    run = leave_run(tmp_path / "run", 5, 7)
    copy_run(address, run, [run], keep=2)
    storage = Storage(address)
    other = tmp_path / "other"
    assert restore(storage, other, AGENT_FILES, extra=("config.yaml",)) == other / "checkpoints" / "000000000007"
    assert (other / "metrics.jsonl").read_bytes() == (run / "metrics.jsonl").read_bytes()
    leave_run(other, 9)
    assert restore(storage, other, AGENT_FILES) is None  # the disk is ahead
    assert restore(storage, tmp_path / "new", AGENT_FILES, folder="agents/1") is None
    with pytest.raises(StorageError, match="holds a run already: add --resume"):
        check_unused(storage)
    check_unused(Storage(f"{address}-2"))


@pytest.mark.parametrize("damage", ["flipped", "short", "missing", "manifest", "other", "half"])
def test_a_damaged_checkpoint_is_passed_over(address, tmp_path, log, damage):
    run = leave_run(tmp_path / "run", 5, 7)
    copy = copier(address, run)
    leave_run(run, 8)
    copy.update()
    leave_run(run, 9)
    copy.update()
    storage, newest = Storage(address), "checkpoints/000000000009"
    if damage in {"flipped", "short"}:
        storage.write(f"{newest}/model.safetensors", (b"\x07" + TENSORS if damage == "flipped" else TENSORS[:100]))
    elif damage in {"missing", "half"}:
        storage.remove(f"{newest}/{'state.json' if damage == 'missing' else 'manifest.json'}")
    elif damage == "manifest":
        storage.write(f"{newest}/manifest.json", b"{")
    else:
        storage.write(f"{newest}/manifest.json", (run / "checkpoints" / "000000000008" / "manifest.json").read_bytes())
    assert restore(storage, tmp_path / "new", AGENT_FILES) == tmp_path / "new" / "checkpoints" / "000000000008"
    assert [path.name for path in checkpoint_folders(tmp_path / "new")] == ["000000000008"]
    assert ("checkpoint skipped" in log.getvalue()) == (damage != "half")  # one without a manifest is being written
    storage.remove("checkpoints/000000000008/state.json")
    if damage != "half":
        with pytest.raises(TornCheckpointError, match=r"no checkpoint can be used: .*000000000009") as error:
            restore(storage, tmp_path / "newer", AGENT_FILES)
        assert "\n" not in str(error.value)


def test_a_checkpoint_is_visible_last_and_hidden_first(tmp_path, monkeypatch):
    address = f"memory://{uuid.uuid4().hex}/run"
    run = leave_run(tmp_path / "run", 5)
    seen: list[str] = []
    for name in ("write", "upload", "remove"):
        act = getattr(Storage, name)

        def noted(self, *words, name=name, act=act):
            key = words[1] if name == "upload" else words[0]
            seen.append(f"{name} {key.removeprefix('checkpoints/0000000000')}")
            return act(self, *words)

        monkeypatch.setattr(Storage, name, noted)
    copy = copier(address, run, keep=1)
    copy.update()
    leave_run(run, 6, keep=1)
    seen.clear()
    copy.update()
    assert seen == [
        "remove 06/manifest.json",
        "upload 06/model.safetensors",
        "upload 06/state.json",
        "write 06/manifest.json",
        "remove 05/manifest.json",
        "remove 05/model.safetensors",
        "remove 05/state.json",
        "write config.yaml",
        "write metrics.jsonl",
    ]
    seen.clear()
    assert copy.update() == 6
    assert copier(address, run, keep=1).update() == 6  # another process finds the checkpoint there
    assert seen == ["write config.yaml", "write metrics.jsonl"]


def test_a_checkpoint_that_is_replaced_while_it_is_copied_is_copied_again(tmp_path, monkeypatch):
    address = f"memory://{uuid.uuid4().hex}/run"
    run = leave_run(tmp_path / "run", 5)
    upload = Storage.upload
    replaced: list[Path] = []

    def replacing(self, file, key):
        upload(self, file, key)
        if not replaced:
            replaced.append(write_checkpoint(run / "checkpoints", 5, {"model.safetensors": b"new"}, keep=2))

    monkeypatch.setattr(Storage, "upload", replacing)
    assert copier(address, run).update() == 5
    restored = restore(Storage(address), tmp_path / "new", AGENT_FILES)
    assert restored is not None
    assert (restored / "model.safetensors").read_bytes() == b"new"


def test_each_agent_has_its_folder(tmp_path, cache):
    address = f"memory://{uuid.uuid4().hex}/many"
    run = tmp_path / "run"
    agents = [leave_run(run / "agents" / str(number), 3 + number) for number in range(2)]
    (run / "config.yaml").write_text("name: mine\n")
    copy_run(address, run, agents, keep=2)
    whole = fetch_run(address)
    assert [path.name for number in range(2) for path in checkpoint_folders(whole / "agents" / str(number))] == [
        "000000000003",
        "000000000004",
    ]
    one = fetch_run(f"{address}/agents/1")
    assert one == whole / "agents" / "1"
    restored = restore(Storage(address), tmp_path / "new", AGENT_FILES, folder="agents/1")
    assert restored == tmp_path / "new" / "checkpoints" / "000000000004"


class FailingStorage(Storage):
    """Fails while ``away``."""

    away = True

    def sizes(self, folder: str = "") -> dict[str, int]:
        if self.away:
            raise StorageError(f"{self.address}: away")
        return super().sizes(folder)


def test_a_storage_that_is_away_is_a_count_and_a_line_and_the_newest_is_copied_when_it_is_back(tmp_path, monkeypatch, log):
    monkeypatch.setattr(copies, "FIRST_PAUSE_SECONDS", 0.001)
    storage = FailingStorage(f"memory://{uuid.uuid4().hex}/run")
    run = leave_run(tmp_path / "run", 5)
    failed, copied, is_copied = [], [], threading.Event()
    three = threading.Event()

    def on_failure():
        failed.append(1)
        if len(failed) == 3:
            three.set()

    def on_copied(updates):
        copied.append(updates)
        is_copied.set()

    copy = RunCopy(lambda: Copier(storage, run, AGENT_FILES, keep=2).update, on_copied, on_failure)
    copy.wake()
    assert three.wait(patient(30))
    for updates in (6, 7, 8):
        leave_run(run, updates)
        copy.wake()
    storage.away = False
    assert is_copied.wait(patient(30))
    assert copy.close(lambda: True)
    assert set(copied) == {8}
    assert checkpoints_in(storage.address) == {"000000000008"}
    assert log.getvalue().count("cannot copy the run") == 1  # a line a minute


def test_the_end_waits_for_the_last_copy_but_not_for_a_storage_that_hangs(tmp_path, monkeypatch):
    storage = Storage(f"memory://{uuid.uuid4().hex}/run")
    run = leave_run(tmp_path / "run", 5)
    copied: list[int | None] = []
    copy = RunCopy(lambda: Copier(storage, run, AGENT_FILES, keep=2).update, copied.append, lambda: None)
    assert copy.close(lambda: False)
    assert copied == [5]
    hanging = threading.Event()
    monkeypatch.setattr(copies, "STOP_SECONDS", 0.001)
    monkeypatch.setattr(storage, "sizes", lambda _folder="": hanging.wait(patient(60)) and {})
    stuck = RunCopy(lambda: Copier(storage, run, AGENT_FILES, keep=2).update, copied.append, lambda: None)
    assert stuck.close(lambda: False) is False
    hanging.set()
    away = FailingStorage(f"memory://{uuid.uuid4().hex}/run")
    assert RunCopy(lambda: Copier(away, run, AGENT_FILES, keep=2).update, copied.append, lambda: None).close(lambda: True) is False


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("nothing://bucket/run", "Protocol not known: nothing"),
        ("file:///proc/nowhere/run", "No such file"),
    ],
)
def test_an_address_that_cannot_be_used_is_one_line(address, reason, tmp_path):
    run = leave_run(tmp_path / "run", 5)
    with pytest.raises(StorageError, match=reason) as error:
        copy_run(address, run, [run], keep=2)
    assert "\n" not in str(error.value)
    assert str(error.value).startswith(address.rstrip("/"))


def test_an_address_without_a_run_is_one_line(address, cache):
    with pytest.raises(StorageError, match=r"not a run: it contains no config\.yaml"):
        fetch_run(address)
    Storage(address).write("config.yaml", b"name: mine\n")
    assert not checkpoint_folders(fetch_run(address))


@pytest.mark.processes
@pytest.mark.parametrize("wrong", ["bucket", "credentials", "server"])
def test_wrong_credentials_or_a_missing_server_are_one_line(s3, tmp_path, monkeypatch, wrong):
    run = leave_run(tmp_path / "run", 5)
    bucket = "missing" if wrong == "bucket" else BUCKET
    if wrong == "credentials":
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "unknown")
        s3.require_credentials()
    if wrong == "server":
        monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    storage = Storage(f"s3://{bucket}/run")
    try:
        for act in (lambda: check_unused(storage), lambda: copy_run(storage.address, run, [run], keep=2)):
            with pytest.raises((StorageError, CheckpointError)) as error:
                act()
            assert str(error.value).startswith(f"s3://{bucket}/run: ")
            assert "\n" not in str(error.value)
    finally:
        s3.allow_all()


def test_no_object_is_larger_than_its_limit(tmp_path, monkeypatch, log: io.StringIO):
    storage = Storage(f"memory://{uuid.uuid4().hex}/run")
    run = leave_run(tmp_path / "run", 5)
    copy_run(storage.address, run, [run], keep=2)
    monkeypatch.setattr(copies, "MAX_JSON_BYTES", 10)
    with pytest.raises(StorageError, match=r"metrics\.jsonl: larger than 10 bytes"):
        restore(storage, tmp_path / "new", AGENT_FILES)
