"""Ways in which a file can be damaged, each a function from a random generator and the file's bytes to what is there afterwards."""

from __future__ import annotations

import json
import os
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

Change = Callable[[random.Random, bytes], bytes]
DEEP = 100_000
"""Levels of nesting: far beyond Python's limit of recursion."""
_NUMBER = re.compile(rb"-?\d+(\.\d+)?(e[-+]?\d+)?")
_STRANGE: tuple[Any, ...] = (
    *(None, True, "", "\x1b[2J", [], {}, [[]], {"a": {"b": []}}, 0, -1, 0.5, 1e308, -1e308),
    *(float("nan"), float("inf"), 1 << 31, 1 << 53, (1 << 63) - 1, 1 << 63, 1 << 64, 10**39, 10**40, 10**400),
)
"""Values in place of any other."""


def _flipped(chance: random.Random, data: bytes, start: int, end: int) -> bytes:
    if not data:
        return b"\0"
    place = chance.randrange(start, max(start + 1, min(end, len(data))))
    return data[:place] + bytes([data[place] ^ 1 << chance.randrange(8)]) + data[place + 1 :]


def _number(chance: random.Random, data: bytes) -> bytes:
    places = list(_NUMBER.finditer(data))
    if not places:
        return data + b"9" * 5000
    place = chance.choice(places)
    digits = [b"9" * 400, b"9" * 5000, b"0x" + b"f" * 5000, b"9223372036854775808", b"-1"]
    other = chance.choice([*digits, b"NaN", b"Infinity", b"1e999", b".inf"])
    return data[: place.start()] + other + data[place.end() :]


def _value(chance: random.Random, data: bytes) -> bytes:
    """Replace a value, somewhere in a text of JSON, of JSON lines or of YAML, by one of another kind or size."""
    lines, number = [data], 0
    try:
        tree = json.loads(data)
    except ValueError:
        try:
            lines = data.splitlines(keepends=True)
            number = chance.randrange(len(lines))
            tree = json.loads(lines[number])
        except ValueError:
            return yaml.safe_dump(_replaced(chance, yaml.safe_load(data)), sort_keys=False).encode()
    lines[number] = json.dumps(_replaced(chance, tree)).encode() + b"\n"
    return b"".join(lines)


def _replaced(chance: random.Random, tree: Any) -> Any:
    if not isinstance(tree, dict | list) or not tree or chance.random() < 0.1:
        return chance.choice(_STRANGE)
    keys = list(tree) if isinstance(tree, dict) else range(len(tree))
    key = chance.choice(keys)
    if chance.random() < 0.1:
        kept = [each for each in keys if each != key]
        return {each: tree[each] for each in kept} if isinstance(tree, dict) else [tree[each] for each in kept]
    inner = {key: _replaced(chance, tree[key])}
    return tree | inner if isinstance(tree, dict) else [inner.get(each, tree[each]) for each in keys]


def _lines(chance: random.Random, data: bytes) -> bytes:
    """Lose, repeat or swap lines."""
    lines = data.splitlines(keepends=True) or [b""]
    one, other = chance.randrange(len(lines)), chance.randrange(len(lines))
    kind = chance.randrange(3)
    if kind == 0:
        del lines[one]
    elif kind == 1:
        lines.insert(other, lines[one])
    else:
        lines[one], lines[other] = lines[other], lines[one]
    return b"".join(lines)


def _by(change: Callable[[bytes], bytes]) -> Change:
    return lambda _chance, data: change(data)


UNREADABLE: dict[str, Change] = {
    "empty": _by(lambda _: b""),
    "zeros": _by(lambda data: bytes(max(64, len(data)))),
    "not UTF-8": _by(lambda data: b"\xff" + data.replace(b"\n", b"\xff\n")),
    "nested": _by(lambda _: b"[" * DEEP + b"\n"),
    "nested mappings": _by(lambda _: b'{"a":' * DEEP + b"\n"),
    "digits": _by(lambda _: b"9" * 5000 + b"\n"),
    "another value": lambda chance, _: chance.choice([b"[]\n", b"null\n", b'"x"\n', b"7\n", b"NaN\n"]),
}
"""What no reader can take for the file's contents."""
TORN: dict[str, Change] = {
    "truncated": lambda chance, data: data[: chance.randrange(max(1, len(data)))],
    "without its end": _by(lambda data: data[:-1]),
    "a bit": lambda chance, data: _flipped(chance, data, 0, len(data)),
    "a bit near the start": lambda chance, data: _flipped(chance, data, 0, 64),
    "a bit near the end": lambda chance, data: _flipped(chance, data, max(0, len(data) - 64), len(data)),
    "longer": lambda chance, data: data + chance.randbytes(chance.randrange(1, 64)),
}
"""What a digest notices, and a text may not."""
CHANGED: dict[str, Change] = {"a number": _number, "a value": _value, "lines": _lines}
"""What only texts can have: a reader takes another value, or names the file."""


def _fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _endless(path: Path) -> None:
    path.unlink()
    with path.open("wb") as file:
        file.truncate(1 << 42)


def _loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


def _forbidden(path: Path) -> None:
    path.chmod(0)


def _other(path: Path) -> None:
    """An older file of the same name, or that of another agent; a file that has neither stays."""
    folder = path.parent
    older = sorted(each for each in folder.parent.iterdir() if each.is_dir() and each != folder and (each / path.name).is_file())
    if older:
        path.write_bytes((older[0] / path.name).read_bytes())


PLACES: dict[str, Callable[[Path], None]] = {
    "a pipe": _fifo,
    "a folder": _folder,
    "a terabyte": _endless,
    "a link to itself": _loop,
    **({} if os.geteuid() == 0 else {"no permission": _forbidden}),
}
"""What stands where the file should be; no reader can read it."""
REPLACED: dict[str, Callable[[Path], None]] = {"another file": _other}
"""What a digest notices, if it is not the whole checkpoint."""
