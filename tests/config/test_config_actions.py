"""What only one discrete action has is refused for other actions, in one sentence that names the setting."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter

from herd.components.auxiliary import AUXILIARIES
from herd.components.losses import LOSSES
from herd.contract.spaces import ActionSpace, EnvSpec, discrete

PAIR = discrete(3, 5)


def spec(actions: ActionSpace) -> EnvSpec:
    return EnvSpec(("task",), (72, 96, 3), 1, actions, 1, 0)


@pytest.mark.parametrize(
    ("section", "settings", "key"),
    [
        (LOSSES.union(), {"kind": "dice"}, "loss.kind dice"),
        (LOSSES.union(), {"kind": "impala", "trust_region": "implied"}, "loss.trust_region implied"),
        (LOSSES.union(), {"kind": "custom", "function": "mine:loss", "head": "dueling"}, "loss.head dueling"),
        (AUXILIARIES.union(), {"kind": "pixel_control"}, "auxiliary.kind pixel_control"),
        (LOSSES.union(), {"kind": "impala", "trust_region": "behaviour"}, None),
        (LOSSES.union(), {"kind": "custom", "function": "mine:loss"}, None),
    ],
)
def test_settings_that_need_one_discrete_action(section: Any, settings: dict[str, str], key: str | None) -> None:
    chosen: Any = TypeAdapter(section).validate_python(settings)
    assert chosen.objection(spec(discrete(3))) is None
    expected = "needs one discrete action, but these environments have actions of 3 x 5 discrete"
    advice = ": use behaviour" if settings.get("trust_region") == "implied" else ""
    assert chosen.objection(spec(PAIR)) == (None if key is None else f"{key} {expected}{advice}")
