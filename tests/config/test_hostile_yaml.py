"""YAML from elsewhere: recursive, endless or unreadable files give one error quickly."""

import pytest

from herd.config.errors import SettingsError
from herd.config.loading.sources import read_yaml_file

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
        ("seed: 0x" + "f" * 5000, "an integer of 5002 characters"),
        ("seed: 1" + ":0" * 2000, "an integer of 4001 characters"),
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
