from __future__ import annotations

import os
import re
import stat
from pathlib import Path

import pytest
import zmq
from zmq.utils import z85

from herd.cli.keys import make_keys
from herd.cli.main import main
from herd.cli.options import CommandError
from herd.config.encryption_keys import EVERY_ROLE, check_curve_keys
from herd.config.run import SecuritySettings

FILES = ["client-default.public", "client-default.secret", "server.public", "server.secret"]


def herd(*words: str | Path) -> int:
    return main([str(word) for word in words])


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def open_umask() -> object:
    before = os.umask(0)
    yield
    os.umask(before)


def test_created_keys_are_usable_by_every_role(tmp_path: Path, capsys: pytest.CaptureFixture[str], open_umask: object) -> None:
    folder = tmp_path / "deep" / "keys"
    assert herd("keys", folder) == 0
    made = contents(folder)
    assert sorted(made) == FILES
    assert {name: oct(mode(folder / name)) for name in made} == {name: "0o600" if name.endswith(".secret") else "0o644" for name in made}
    assert mode(folder) == 0o700
    for pair in ("server", "client-default"):
        secret = z85.encode(bytes.fromhex(made[f"{pair}.secret"]))
        assert z85.decode(zmq.curve_public(secret)).hex() == made[f"{pair}.public"].strip()
    check_curve_keys(SecuritySettings(curve_keys=folder), {}, EVERY_ROLE)
    output = capsys.readouterr().out
    for name in made:
        assert str(folder / name) in output
    assert f"--security.curve_keys {folder}" in output
    assert re.search(r"[0-9a-f]{64}", output) is None


def test_existing_keys_are_replaced_only_with_force(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert herd("keys", tmp_path) == 0
    before = contents(tmp_path)
    capsys.readouterr()
    assert herd("keys", tmp_path) == 2
    assert "server.secret, server.public, client-default.secret, client-default.public already exist; --force" in capsys.readouterr().err
    (tmp_path / "server.secret").unlink()
    assert herd("keys", tmp_path) == 2  # an existing public key is kept even without its secret
    assert contents(tmp_path) == {name: text for name, text in before.items() if name != "server.secret"}
    assert herd("keys", tmp_path, "--force") == 0
    after = contents(tmp_path)
    assert sorted(after) == FILES
    assert not set(after.values()) & set(before.values())
    assert mode(tmp_path / "server.secret") == 0o600


def test_a_client_can_be_added_without_changing_other_keys(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_keys(tmp_path)
    before = contents(tmp_path)
    assert herd("keys", tmp_path, "--client", "gpu-7") == 0
    assert "--security.curve_client gpu-7" in capsys.readouterr().out
    after = contents(tmp_path)
    assert {name: after[name] for name in before} == before
    assert sorted(set(after) - set(before)) == ["client-gpu-7.public", "client-gpu-7.secret"]
    assert herd("keys", tmp_path, "--client", "gpu-7") == 2
    check_curve_keys(SecuritySettings(curve_keys=tmp_path, curve_client="gpu-7"), {}, EVERY_ROLE)


def test_a_client_key_alone_is_created_with_a_hint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert herd("keys", tmp_path, "--client", "a") == 0
    assert "server.public of the servers to this folder" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["", "../a", "a b", ".a", "x" * 65])
def test_invalid_client_names_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert herd("keys", tmp_path / "keys", f"--client={name}") == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert not (tmp_path / "keys").exists()


def test_an_unwritable_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CommandError, match=r"file.*: cannot be written: "):
        make_keys(tmp_path / "file")
    with pytest.raises(CommandError, match="cannot be written: "):
        make_keys(tmp_path / "file" / "below")


def test_keys_are_not_written_through_a_symlink(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    folder = tmp_path / "keys"
    folder.mkdir()
    (folder / "server.secret").symlink_to(outside)
    with pytest.raises(CommandError, match=r"server\.secret"):
        make_keys(folder)
    make_keys(folder, force=True)
    assert not outside.exists()
    assert not (folder / "server.secret").is_symlink()


def test_keys_of_two_folders_are_refused_before_a_run_starts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("keys", "other"):
        make_keys(tmp_path / name)
    (tmp_path / "keys" / "server.public").write_text((tmp_path / "other" / "server.public").read_text())
    run = tmp_path / "run"
    words = ("train", "catch", "--run_dir", run, "--security.curve_keys", tmp_path / "keys")
    assert herd(*words) == 2
    assert "server.public: is the public key of other servers" in capsys.readouterr().err
    assert not run.exists()
