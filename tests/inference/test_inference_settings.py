"""Invalid settings of central inference are refused, and the error names the keys."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from herd.config.run import RunSettings


@pytest.mark.parametrize(
    ("sections", "keys"),
    [
        ({"actor": {"environments": 32}, "inference": {"max_environments": 31}}, ("inference.max_environments", "actor.environments")),
        ({"actor": {"lockstep": True, "count": 1}}, ("actor.lockstep", "actor.inference")),
    ],
)
def test_incompatible_settings_are_refused_by_name(sections: dict[str, dict[str, object]], keys: tuple[str, ...]) -> None:
    RunSettings.model_validate(sections)  # with a policy in the actor the same settings are valid
    remote = {**sections, "actor": {**sections["actor"], "inference": "remote"}}
    with pytest.raises(ValidationError) as raised:
        RunSettings.model_validate(remote)
    (error,) = raised.value.errors()
    assert all(key in error["msg"] for key in keys)


def test_max_environments_may_equal_those_of_one_actor() -> None:
    settings = {"actor": {"inference": "remote", "environments": 32}, "inference": {"max_environments": 32}}
    assert RunSettings.model_validate(settings).inference.max_environments == 32
