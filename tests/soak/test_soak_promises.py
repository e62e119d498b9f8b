"""Each promise of a run under faults: events of an honest run keep it, and forbidden events break it."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.soak.promises import (
    LEARNER_RESTART,
    LEDGER,
    NEW_LINEAGE,
    NO_LOSS,
    NOBODY_ELSE,
    ONE_MEANING,
    VERSIONS,
    LedgerWatch,
    VersionWatch,
    names,
    unexpected_exits,
)


def state(
    lineage: int,
    accounts: dict[int, int],
    *,
    consumed: int,
    lost: int = 0,
    in_flight: int = 0,
    generated: int | None = None,
    **dropped: int,
) -> dict[str, Any]:
    """A checkpoint with these numbers of frames reported by actors (by index)."""
    ledger = {
        "generated": sum(accounts.values()) if generated is None else generated,
        "consumed": consumed,
        "in_flight": in_flight,
        "dropped": {LEARNER_RESTART: lost, **dropped} if lost else dropped,
        "accounts": [[index, 1000 + index, 1, count] for index, count in accounts.items()],
    }
    return {"lineage": lineage, "ledger": ledger, "statistics": {"env_frames": consumed}}


def test_versions_of_a_correct_run_keep_all_promises() -> None:
    watch = VersionWatch()
    assert watch.held("learner-0", 1, (0, 0)) == []
    assert watch.held("learner-0", 1, (1, 5)) == []
    assert watch.served("paramserver-0", (1, 5), "a") == []
    assert watch.served("paramserver-0", (1, 5), "a") == []
    assert watch.held("actor-0", 2, (1, 5)) == []
    assert watch.held("learner-0", 3, (0, 0)) == []  # a restarted learner that has not published yet
    assert watch.held("learner-0", 3, (2, 4)) == []
    assert watch.served("paramserver-0", (2, 4), "b") == []
    assert watch.held("actor-0", 2, (2, 4)) == []
    assert watch.held("actor-0", 9, (0, 0)) == []
    assert watch.held("actor-0", 9, (2, 4)) == []
    assert watch.newest == (2, 4)
    assert watch.served("paramserver-1", (1, 4), "c") == []  # a replica may lag behind its parent


@pytest.mark.parametrize(
    ("events", "broken"),
    [
        ([("served", "paramserver-0", (1, 5), "a"), ("served", "paramserver-0", (1, 4), "b")], VERSIONS),
        ([("held", "actor-0", 2, (2, 3)), ("held", "actor-0", 2, (1, 9))], VERSIONS),
        ([("served", "paramserver-0", (1, 5), "a"), ("served", "paramserver-1", (1, 5), "b")], ONE_MEANING),
        ([("held", "learner-0", 1, (1, 5)), ("held", "learner-0", 2, (1, 9))], NEW_LINEAGE),
    ],
    ids=["a server goes back", "a process goes back", "one version has two contents", "a restarted learner keeps its lineage"],
)
def test_a_forbidden_version_is_reported(events: list[tuple[Any, ...]], broken: str) -> None:
    watch = VersionWatch()
    reported = [names(getattr(watch, kind)(*arguments)) for kind, *arguments in events]
    assert reported == [[], [broken]]


def test_the_ledger_of_a_correct_run_keeps_all_promises() -> None:
    watch = LedgerWatch()
    honest = [
        state(1, {0: 100, 1: 40}, consumed=120, in_flight=20),
        state(1, {0: 200, 1: 90}, consumed=290),
        # Restored from the previous checkpoint; actor 0 has reported its lost frames, actor 1 is still disconnected.
        state(2, {0: 350, 1: 90}, consumed=390, lost=50),
        state(2, {0: 400, 1: 200}, consumed=490, lost=110),
        state(2, {0: 500, 1: 300}, consumed=690, lost=110),
    ]
    assert [watch.checkpoint(one) for one in honest] == [[]] * 5
    assert watch.num_snapshots == 5


def test_a_restore_from_an_older_checkpoint_keeps_the_ledger() -> None:
    watch = LedgerWatch()
    assert watch.checkpoint(state(1, {0: 100, 1: 100}, consumed=200)) == []
    assert watch.checkpoint(state(1, {0: 200, 1: 200}, consumed=400)) == []
    assert watch.checkpoint(state(2, {0: 300, 1: 100}, consumed=250, lost=150)) == []
    assert watch.checkpoint(state(2, {0: 400, 1: 300}, consumed=400, lost=300)) == []  # actor 1 reconnected only now


@pytest.mark.parametrize(
    ("states", "broken"),
    [
        ([state(1, {0: 100}, consumed=90)], LEDGER),
        ([state(1, {0: 100}, consumed=120, lost=-20)], LEDGER),  # consumed twice, which is booked as a negative loss
        ([state(1, {0: 100}, generated=90, consumed=90)], LEDGER),  # less than the actors reported
        ([state(1, {0: 100}, consumed=100), state(1, {0: 200}, consumed=180, lost=20)], NO_LOSS),  # without a restart
        (
            [state(1, {0: 100}, consumed=100), state(2, {0: 200}, consumed=150, lost=50), state(2, {0: 300}, consumed=240, lost=60)],
            NO_LOSS,  # twice after one restart
        ),
        ([state(1, {0: 100}, consumed=90, stale=10), state(1, {0: 200}, consumed=180, stale=10, malformed=10)], NO_LOSS),
    ],
)
def test_a_wrong_account_is_reported(states: list[dict[str, Any]], broken: str) -> None:
    watch = LedgerWatch()
    assert [names(watch.checkpoint(each)) for each in states] == [*[[]] * (len(states) - 1), [broken]]


def test_an_exit_without_a_fault_breaks_the_promise() -> None:
    assert unexpected_exits({"actor-0": 2, "learner-0": 0}, {"actor-0": 2}) == []
    assert names(unexpected_exits({"actor-0": 2, "learner-0": 1}, {"actor-0": 2})) == [NOBODY_ELSE]
