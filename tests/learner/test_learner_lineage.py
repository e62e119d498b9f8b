from __future__ import annotations

import json
from pathlib import Path

import pytest
from herd_learner.intake.queue import is_stale
from herd_learner.record.lineage import LineageError, keep_lineage, open_lineage

from herd.protocols.weights.messages import MAX_FIRST_LINEAGE
from herd.run.paths import LINEAGE
from tests.failing_disks import no_space_beyond

NOW = 1_790_000_000.25


def clock() -> float:
    return NOW


def on_disk(run_dir: Path) -> int:
    return int(json.loads((run_dir / LINEAGE).read_text())["lineage"])


def test_every_start_opens_a_higher_lineage_which_is_on_disk_before_it_is_used(tmp_path: Path) -> None:
    for at_least, lineage in ((0, 1), (0, 2), (10, 10), (4, 11)):
        assert open_lineage(tmp_path, at_least=at_least) == on_disk(tmp_path) == lineage
    assert [path.name for path in tmp_path.iterdir()] == [LINEAGE]


def test_the_first_start_fails_if_the_lineage_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(LineageError, match=r"missing/lineage\.json: cannot be written: No such file or directory"):
        open_lineage(tmp_path / "missing")
    with no_space_beyond(0), pytest.raises(LineageError, match="cannot be written: File too large"):
        open_lineage(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_lineage_that_cannot_be_written_comes_from_the_clock(tmp_path: Path) -> None:
    failures: list[OSError] = []
    assert open_lineage(tmp_path) == 1
    with no_space_beyond(0):
        lineage = open_lineage(tmp_path, on_failure=failures.append, now=clock)
    assert lineage == 1_790_000_000_250
    assert on_disk(tmp_path) == 1
    assert [type(failure) for failure in failures] == [OSError]
    # The next start counts on from the value on disk; a learner that restored that learner's checkpoint goes beyond it.
    assert open_lineage(tmp_path, at_least=lineage + 1) == lineage + 1


def test_a_lineage_above_the_clock_is_kept(tmp_path: Path) -> None:
    open_lineage(tmp_path)
    with no_space_beyond(0):
        assert open_lineage(tmp_path, at_least=2 * 10**12, now=clock) == 2 * 10**12
        assert open_lineage(tmp_path, now=lambda: 0.001) == 2


def test_no_lineage_is_opened_that_parameter_servers_would_refuse(tmp_path: Path) -> None:
    """They would refuse every version of it, so that the actors would wait forever."""
    (tmp_path / LINEAGE).write_text(json.dumps({"lineage": MAX_FIRST_LINEAGE}))
    with pytest.raises(LineageError, match=r"lineage\.json is not a lineage: .*; remove the file"):
        open_lineage(tmp_path)
    (tmp_path / LINEAGE).write_text(json.dumps({"lineage": MAX_FIRST_LINEAGE - 1}))
    assert open_lineage(tmp_path) == MAX_FIRST_LINEAGE


def test_keep_lineage_writes_the_lineage_once_there_is_space(tmp_path: Path) -> None:
    open_lineage(tmp_path)
    with no_space_beyond(0):
        lineage = open_lineage(tmp_path, now=clock)
        with pytest.raises(OSError, match="too large"):
            keep_lineage(tmp_path, lineage)
    keep_lineage(tmp_path, lineage)
    assert on_disk(tmp_path) == lineage
    with no_space_beyond(0):
        keep_lineage(tmp_path, lineage)  # there is nothing to write
    assert open_lineage(tmp_path) == lineage + 1


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"lineage": "many"}', '{"lineage": null}', '{"lineage": true}'])
def test_a_damaged_lineage_file_is_an_error_until_rewritten(tmp_path: Path, text: str) -> None:
    (tmp_path / LINEAGE).write_text(text)
    with pytest.raises(LineageError, match=LINEAGE):
        open_lineage(tmp_path)
    keep_lineage(tmp_path, 7)
    assert on_disk(tmp_path) == 7


@pytest.mark.parametrize(
    ("policy", "limit", "expected"),
    [
        ((3, 7), 3, False),
        ((3, 10), 0, False),
        ((3, 6), 3, True),
        ((2, 10), 3, True),
        ((4, 10), 3, True),
        ((3, 11), 3, True),  # a version from the future
        ((3, 2**63 - 1), 3, True),
        ((2, 0), None, False),
        ((3, 11), None, False),
    ],
)
def test_unrolls_of_old_or_unknown_policies_are_stale(policy: tuple[int, int], limit: int | None, expected: bool) -> None:
    assert is_stale(policy, (3, 10), limit) == expected
