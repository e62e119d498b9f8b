from __future__ import annotations

import re
from pathlib import Path

from herd.config.loading.keys import find_key, setting_keys
from herd.config.loading.reference import reference_markdown, settings_help

REPOSITORY = Path(__file__).parents[2]


def test_the_reference_page_is_up_to_date() -> None:
    page = (REPOSITORY / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert page == reference_markdown(), "run: python -m herd.config.loading.reference > docs/configuration.md"


def test_code_on_the_reference_page_has_no_entities() -> None:
    code = re.findall(r"`[^`]*`", reference_markdown())
    assert "`runs/<name>`" in code
    assert not [name for name in code if "&lt;" in name]


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


def test_the_help_shows_what_every_variant_of_a_section_accepts() -> None:
    text = settings_help(120)
    assert "--env.action_set (minimal, full, impala, popart; default depends on env.suite)" in text
    assert "--env.frame_height (integer or null; default depends on env.suite)" in text
    assert "--env.suite (atari, catch, dmlab, gymnasium, vizdoom; default atari)" in text
    assert "--loss.function (string; required)" in text
    assert "--replay_service.memory_bytes (integer >= 67108864; default 8589934592)" in text
