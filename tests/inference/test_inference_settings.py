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
    RunSettings.model_validate({**remote, "actor": {**remote["actor"], "environments": 31, "lockstep": False}})
    with pytest.raises(ValidationError) as raised:
        RunSettings.model_validate(remote)
    (error,) = raised.value.errors()
    assert all(key in error["msg"] for key in keys)
