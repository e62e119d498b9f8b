"""The recorder is deterministic, and it sees a changed loss."""

from __future__ import annotations

import pytest

from tests.equality.__main__ import ROOT, recording

pytestmark = pytest.mark.processes


def recorded(experiment: str, *more: str) -> list[str]:
    with recording(ROOT, experiment, 3, *more) as lines:
        return list(lines)


@pytest.mark.soak
def test_two_recordings_are_equal_and_another_loss_differs() -> None:
    first = recorded("catch")
    assert len(first) == 3
    assert recorded("catch") == first
    changed = recorded("catch", "--loss.entropy_cost", "0.02")
    before, after = (dict(entry.split("=") for entry in lines[0].split()[1:]) for lines in (first, changed))
    assert before["batch"] == after["batch"]  # the first batch is played by the same weights
    assert before["losses"] != after["losses"]
    assert before["weights"] != after["weights"]
