from __future__ import annotations

from pathlib import Path

from herd.config.loading.keys import find_key, setting_keys
from herd.config.loading.reference import reference_markdown

REPOSITORY = Path(__file__).parents[2]


def test_the_reference_page_is_up_to_date() -> None:
    page = (REPOSITORY / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert page == reference_markdown(), "run: python -m herd.config.loading.reference > docs/configuration.md"


def test_every_setting_has_help_a_type_and_a_unique_name() -> None:
    keys = setting_keys()
    assert len(keys) > 60
    assert all(key.help and key.type_text for key in keys)
    assert len({key.environment_name for key in keys}) == len(keys)


def test_the_type_of_a_bounded_optional_setting_is_described() -> None:
    key = find_key(("optimizer", "max_gradient_norm"))
    assert key is not None
    assert (key.type_text, key.default, key.section) == ("number > 0 or null", 40.0, "optimizer")
    assert key.environment_name == "HERD_OPTIMIZER__MAX_GRADIENT_NORM"
