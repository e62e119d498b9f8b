from __future__ import annotations

import pytest
from herd_bandit.task_bandit import new_bandits
from pydantic import ValidationError

from herd.config.services import BanditSettings
from herd.protocols.bandit.tiling import tiling_of
from tests.bandit.contents import contents


def test_the_defaults_match_table_5() -> None:
    settings = BanditSettings()
    assert (settings.bandits, settings.candidates, settings.ucb_scale) == (7, 7, 1.0)
    assert set(settings.learning_rates) == {0.05, 0.1, 0.2}
    assert set(settings.tile_widths) == {1, 2, 3}
    assert set(settings.modes) == {"argmax", "random"}
    assert (settings.min_inverse_temperature, settings.max_inverse_temperature) == (0.0, 50.0)
    assert tiling_of(settings).num_tiles == 39


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"candidates": 40}, "candidates 40 must not exceed the number of tiles, 39"),
        ({"tile_accuracy": 1.0}, "candidates 7 must not exceed the number of tiles, 3"),
        ({"min_inverse_temperature": 60.0}, "must not exceed the number of tiles, 0"),
        ({"tile_accuracy": 0.001}, "gives 3931 tiles; at most 400"),
    ],
)
def test_invalid_settings_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        BanditSettings.model_validate(changes)


def test_every_setting_reaches_the_bandits() -> None:
    settings = BanditSettings(
        bandits=3,
        modes=("random",),
        learning_rates=(0.5,),
        tile_widths=(4,),
        min_inverse_temperature=1.0,
        max_inverse_temperature=9.0,
        tile_accuracy=0.2,
        candidates=2,
    )
    bandits = new_bandits(settings, ("pong", "qbert"), seed=1, num_agents=2)
    assert set(bandits) == {(agent, task) for agent in range(2) for task in range(2)}
    ensemble = bandits[1, 0].ensemble
    assert (ensemble.modes, ensemble.learning_rates, ensemble.widths) == (("random",) * 3, (0.5,) * 3, (4,) * 3)
    assert ensemble.tiling.num_tiles == 8  # log(10 / 2) / 0.2
    assert (bandits[1, 0].task, bandits[1, 1].task) == ("pong", "qbert")


def test_a_seed_fixes_the_bandits_and_they_differ_from_each_other() -> None:
    tasks = tuple(f"task{number}" for number in range(20))
    one, same, other = ([bandit.ensemble for bandit in new_bandits(BanditSettings(), tasks, seed=seed).values()] for seed in (1, 1, 2))
    assert list(map(contents, one)) == list(map(contents, same)) != list(map(contents, other))
    assert len({ensemble.learning_rates for ensemble in one}) > 10
