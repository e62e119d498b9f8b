"""Every command, option, setting and make target that the README or docs name exists."""

from __future__ import annotations

import re
import shlex
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

from docsite.hooks import help_text
from herd.cli.main import COMMANDS
from herd.config.loading.keys import find_key, is_section

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), ROOT / "benchmarks" / "README.md", ROOT / "helm" / "herd" / "README.md"],
    key=lambda path: path.as_posix(),
)
FENCE = re.compile(r"^[ ]*```(?:bash|sh|)\n(.*?)^[ ]*```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
SETTING = re.compile(r"([a-z_]+(?:\.[a-z_0-9]+)+)(?<!\.py)(?<!\.png)(?<!\.json)(?<!\.jsonl)(?:[:=]? .*)?")
HERD_MODULES = ("benchmarks", "herd", "helm", "images", "observability", "tests")


def written(page: Path) -> list[str]:
    """Return the commands in code blocks, one per entry, and all inline code."""
    text = page.read_text(encoding="utf-8")
    blocks = (line.strip() for block in FENCE.findall(text) for line in block.replace("\\\n", " ").splitlines())
    return [*blocks, *INLINE.findall(FENCE.sub("", text))]


@cache
def options_of(command: str) -> str:
    return help_text(command) if command else ""


@cache
def chart_values() -> dict[str, object]:
    values: dict[str, object] = yaml.safe_load((ROOT / "helm" / "herd" / "values.yaml").read_text(encoding="utf-8"))
    return values


def is_chart_value(path: tuple[str, ...]) -> bool:
    """Whether the chart has the value, possibly among the defaults of all components."""
    return any(_stands_in(values, path) for values in (chart_values(), {path[0]: chart_values()["defaults"]}))


def _stands_in(value: object, path: tuple[str, ...]) -> bool:
    for name in path:
        if not isinstance(value, dict) or (value and name not in value):
            return False
        value = value.get(name)
    return True


def complaints_about_herd(words: list[str]) -> list[str]:
    if words[:1] and words[0] not in COMMANDS and words[0].isalpha() and words[0].islower():
        return [f"no command {words[0]}"]
    command = words[0] if words[:1] else ""
    found = []
    for word in words[1:]:
        option = word.split("=")[0]
        if not option.startswith("-") or option == "--help":
            continue
        path = tuple(option.removeprefix("--").split("."))
        if find_key(path) is None and not is_section(path) and not re.search(rf"(^|\W){re.escape(option)}\b", options_of(command)):
            found.append(f"herd {command} has no option {option}")
    if command == "train" and len(words) > 1 and re.fullmatch(r"[a-z][a-z0-9-]*", words[1]) and words[1] not in ("mine", "run"):
        found += [] if (ROOT / "herd" / "experiments" / f"{words[1]}.yaml").exists() else [f"no experiment {words[1]}"]
    return found


def complaints_about(text: str) -> list[str]:
    try:
        words = [word for word in shlex.split(text, comments=True) if word not in ("...", "[...]")]
    except ValueError:
        return []
    while words and re.fullmatch(r"[A-Z_0-9]+=.*", words[0]):
        words = words[1:]
    match words:
        case ["herd", *rest]:
            return complaints_about_herd(rest)
        case ["make", str(target), *_] if re.fullmatch(r"[a-z-]+", target):
            makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
            return [] if re.search(rf"^{target}:", makefile, re.MULTILINE) else [f"make has no {target}"]
        case ["python", "-m", str(module), *_] if module.split(".")[0] in HERD_MODULES:
            return [] if find_spec(module) is not None else [f"no module {module}"]
        case ["python", str(path), *_] if path.endswith(".py"):
            return [] if (ROOT / path).exists() else [f"no file {path}"]
    return []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_commands_and_settings_on_a_page_exist(page: Path) -> None:
    found = [f"`{text}`: {complaint}" for text in written(page) for complaint in complaints_about(text)]
    for text in written(page):
        setting = SETTING.fullmatch(text)
        path = tuple(setting[1].split(".")) if setting else ()
        if len(path) > 1 and is_section(path[:1]) and find_key(path) is None and not is_section(path) and not is_chart_value(path):
            found.append(f"`{text}`: no such setting or chart value")
    assert found == []
