"""Which clients a server serves, and how it refuses the others."""

from __future__ import annotations

import pytest

from herd.rpc.envelope import Refused
from herd.rpc.served_run import ServedRun

OURS = ServedRun("bandit", "actor.bandit", "pong", "c" * 64, num_agents=2)


def test_agents_of_this_run_and_contract_are_served() -> None:
    assert [OURS.mismatch("pong", agent, "c" * 64) for agent in (0, 1)] == [None, None]


@pytest.mark.parametrize(
    ("request_of", "label", "said"),
    [
        (("breakout", 0, "c" * 64), "run", "this bandit belongs to run pong, not breakout: check actor.bandit of run breakout"),
        (("breakout", 9, "d"), "run", "belongs to run pong"),
        (("pong", 2, "d"), "agent", "this bandit serves agents 0 to 1, not 2: "),
        (("pong", 1, "d" * 64), "contract", "contract dddddddddddd does not match this bandit's cccccccccccc: "),
    ],
)
def test_a_refusal_names_the_first_difference(request_of: tuple[str, int, str], label: str, said: str) -> None:
    mismatch = OURS.mismatch(*request_of)
    assert mismatch is not None
    assert mismatch[0] == label
    assert said in mismatch[1]


def test_a_refusal_is_bounded_and_has_no_control_characters() -> None:
    mismatch = ServedRun("bandit", "actor.bandit", "p" * 128, "c" * 64, 1).mismatch("\x1b[2J" * 32, 0, "c")
    assert mismatch is not None
    assert "\x1b" not in mismatch[1]
    Refused(request_id=1, reason=mismatch[1])  # not longer than a reason may be
