"""Files from elsewhere: pipes, huge sparse files and endless JSON give one error quickly; a valid file is read completely."""

import errno
import os

import pytest

from herd.config.errors import SettingsError
from herd.config.loading.sources import read_yaml_file
from herd.files import parse_json, read_file, read_json
from herd.run.checkpoints.manifest import CheckpointError, TornCheckpointError
from herd.run.checkpoints.store import newest_checkpoint
from herd.run.tensors import load_checkpoint


def test_files_are_read_completely_up_to_a_size_limit(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"\0\xff" * 500)
    assert read_file(path, 1000) == b"\0\xff" * 500
    with pytest.raises(OSError, match="Larger than 999 bytes") as caught:
        read_file(path, 999)
    assert caught.value.errno == errno.EFBIG


def test_files_that_are_not_regular_are_refused_without_waiting(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="Not a regular file"):
        read_file(pipe, 1000)
    with pytest.raises(OSError, match="Not a regular file"):
        read_file(type(tmp_path)("/dev/zero"), 1000)
    with pytest.raises(IsADirectoryError):
        read_file(tmp_path, 1000)
    with pytest.raises(FileNotFoundError):
        read_file(tmp_path / "none", 1000)


def test_a_huge_sparse_file_is_refused_without_reading(tmp_path):
    path = tmp_path / "manifest.json"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(OSError, match="Larger than"):
        read_json(path)
    with pytest.raises(TornCheckpointError, match=r"manifest\.json: cannot be read: Larger than"):
        load_checkpoint(tmp_path)


def test_a_checkpoint_of_pipes_is_refused_without_waiting(tmp_path):
    folder = tmp_path / f"{7:012d}"
    folder.mkdir()
    os.mkfifo(folder / "manifest.json")
    with pytest.raises(CheckpointError, match="Not a regular file"):
        newest_checkpoint(tmp_path)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "9" * 5000, "{", "\x00", b"\xff", bytearray(b"\xc3("), ""])
def test_unreadable_json_raises_value_error(text):
    with pytest.raises(ValueError):  # noqa: PT011  whatever it says
        parse_json(text)


BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{after}: &{after} [{', '.join([f'*{before}'] * 9)}]\n" for before, after in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("name: " + "[" * 5000, "nested too deeply"),
        ("name: " + "[" * 600 + "]" * 600, "nested too deeply"),
        ("name: &a [*a]\n", "a value contains itself"),
        ("a: &a {b: *a}\n", "a value contains itself"),
        (BOMB + "name: *i\n", "more than 100000 values"),
        ("name: " + "9" * 5000, "a value cannot be read"),
        ("name: 2026-99-99\n", "a value cannot be read"),
        ("name: !!timestamp x\n", "a value cannot be read"),
        ("name: !!bool x\n", "a value cannot be read"),
        ("name: !!int ''\n", "a value cannot be read"),
        ("name: !!python/object:os.system x\n", "not valid YAML"),
        ("name: x\n" * 200_000, "larger than"),
    ],
)
def test_hostile_yaml_is_refused_in_one_line(tmp_path, text, says):
    file = tmp_path / "run.yaml"
    file.write_text(text)
    with pytest.raises(SettingsError, match=says) as caught:
        read_yaml_file(file)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400
    assert str(file) in str(caught.value)


def test_ordinary_yaml_aliases_are_accepted(tmp_path):
    file = tmp_path / "run.yaml"
    file.write_text("env: &env {tasks: [pong]}\nname: x\nother: *env\n")
    assert read_yaml_file(file)["other", "tasks"].value == ["pong"]
