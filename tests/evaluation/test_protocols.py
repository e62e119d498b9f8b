from __future__ import annotations

from typing import Any, get_args

import pytest

from herd.components.suites import suite_named
from herd.components.suites.dmlab import DMLabSettings
from herd.config.loading import load_settings
from herd.config.services import EvaluationSettings
from herd.evaluation.protocols import PROTOCOLS, Protocol


@pytest.mark.parametrize("protocol", PROTOCOLS.values(), ids=PROTOCOLS)
def test_every_setting_of_a_protocol_exists_in_its_suite(protocol: Protocol) -> None:
    suite: Any = suite_named(protocol.suite)
    assert {*protocol.played, *protocol.trained, *protocol.needed, *protocol.unlike} <= set(suite.settings.model_fields)
    assert not set(protocol.played) & {*protocol.trained, *protocol.needed, *protocol.unlike}
    assert (protocol.episodes > 0) is (protocol.training is None)
    assert not (protocol.training is not None and protocol.played)
    as_words = load_settings([], ["--env.suite", protocol.suite, *protocol.words], {}).env
    assert as_words == protocol.applied(suite.settings())
    assert {name: getattr(as_words, name) for name in protocol.played} == dict(protocol.played)


def test_an_evaluator_supports_all_protocols_that_play_games() -> None:
    names = get_args(get_args(EvaluationSettings.model_fields["protocol"].annotation)[0])
    assert {protocol.name for protocol in PROTOCOLS.values() if protocol.training is None} <= set(names) <= set(PROTOCOLS)


def test_games_on_held_out_levels_are_not_those_of_a_shortened_training() -> None:
    protocol = PROTOCOLS["impala-dmlab"]
    trained = DMLabSettings(tasks=("psychlab_visual_search",), level_seeds=5, dataset_path="dummy")
    played = protocol.applied(trained)
    assert isinstance(played, DMLabSettings)
    assert (played.hold_out, played.level_seeds) == (True, None)
    assert protocol.differences(played) == ("env.dataset_path dummy (not in the paper)",)
    assert protocol.differences(played.model_copy(update={"dataset_path": "/photographs"})) == ()
