"""The requirements files of the images are complete, pinned, up to date, and small where they should be."""

from __future__ import annotations

import re
import tomllib

import pytest
from packaging.requirements import Requirement

from herd.topology import SERVICES
from images.requirements import CONSTRAINTS, NEEDS, PROJECT, ROOT, UnpinnedError, read_pins, requirements

TORCH = {"torch", "networkx", "sympy"}


def pins_of(name: str) -> set[str]:
    return set(read_pins((ROOT / name).read_text()))


@pytest.mark.parametrize("name", NEEDS)
def test_the_requirements_files_are_up_to_date(name: str) -> None:
    assert (ROOT / name).read_text() == requirements(NEEDS[name], read_pins(CONSTRAINTS.read_text())), "make docs"


def test_only_the_services_that_need_torch_contain_it() -> None:
    for service in SERVICES:
        found = pins_of(f"services/{service.name}/requirements.txt") & {*TORCH, "ale-py", "gymnasium"}
        assert found >= TORCH if service.has_torch else not found


def test_only_actor_and_evaluator_images_contain_the_emulator() -> None:
    players = {"services/actor/requirements.txt", "services/evaluator/requirements.txt"}
    assert {name for name in NEEDS if "ale-py" in pins_of(name)} == players


@pytest.mark.parametrize("extra", ["vizdoom", "minigrid"])
def test_documented_packages_of_a_suite_are_those_of_its_extra_and_pinned(extra: str) -> None:
    needs = tomllib.loads(PROJECT.read_text())["project"]["optional-dependencies"][extra]
    names = {Requirement(need).name for need in needs} - {"herd-rl"}
    documented = re.findall(r'PACKAGES=(?:"([^"]+)"|([a-z-]+))', (ROOT / "docs" / "images.md").read_text())
    assert names in [set((several or one).split()) for several, one in documented]
    assert names <= set(read_pins(CONSTRAINTS.read_text()))


def test_indirect_requirements_are_included() -> None:
    assert {"typing-extensions", "pydantic-core", "markdown-it-py", "mdurl"} <= pins_of("services/bandit/requirements.txt")


def test_an_unpinned_package_is_an_error() -> None:
    pins = read_pins(CONSTRAINTS.read_text())
    del pins["mdurl"]
    with pytest.raises(UnpinnedError, match="mdurl"):
        requirements("herd-rl", pins)
    with pytest.raises(UnpinnedError, match="no-such-package"):  # it is not installed
        requirements("no-such-package", {"no-such-package": "no-such-package==1"})


def test_pins_are_keyed_by_canonical_name() -> None:
    assert read_pins("# a comment\nFarama-Notifications==0.0.6  # why\n\ntyping_extensions==4\n") == {
        "farama-notifications": "Farama-Notifications==0.0.6",
        "typing-extensions": "typing_extensions==4",
    }
