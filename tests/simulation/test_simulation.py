"""Every seed holds, is repeatable, and would have shown a mistake."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from tests.simulation.defects import DEFECTS, Defect
from tests.simulation.run import command, run, shrink
from tests.simulation.world import Plan

NUM_SEEDS = 200
MAX_SEEDS = 500
"""Seeds within which a defect must be found."""
REPEATED = 20
"""Every so many seeds, one is run twice."""
MARKS = """
a checkpoint could not be written
a learner continued from its checkpoint
a member was copied
a message of a broken connection arrived after one of the next
a request to replay was early
a request to replay was empty
a request to replay was repeated
a request to the bandit was repeated
a return was duplicate
an actor was late to renew its lease, and another had its place
an actor was moved to another place
an unroll was replayed
killed in the middle of a write
power failure lost what was not flushed
replay continued from its snapshot
stale unrolls were dropped
the bandit continued from its state
the bandit had counted a report before it started again
the disk was full
the parameter server had a newer lineage
the population continued from its journal
the population noted that an order was done
unrolls were refused: credit
unrolls were refused: session
"""
"""What must have happened, or the seeds show less than they seem to."""


@pytest.mark.timeout(600)
def test_every_seed_holds_and_together_they_reach_everything() -> None:
    marks: Counter[str] = Counter()
    failures = []
    for seed in range(1, NUM_SEEDS + 1):
        result = run(Plan.of(seed))
        marks += result.marks
        if result.failure is not None:
            failures.append(f"{command(result.plan)}: {result.failure}")
        if seed % REPEATED == 0:
            assert run(Plan.of(seed)).digest == result.digest, f"seed {seed} has two histories"
    assert not failures, "\n".join(failures)
    assert [mark for mark in MARKS.strip().splitlines() if not marks[mark]] == []


@pytest.mark.timeout(600)
@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.name)
def test_a_defect_is_found(defect: Defect) -> None:
    with defect.planted():
        # The seed shows it at once, as long as no change of the product has given it another history.
        assert any(run(Plan.of(seed)).failure is not None for seed in [defect.seed, *range(1, MAX_SEEDS)])


def test_a_failing_seed_shrinks_to_a_command_that_fails() -> None:
    defect = next(each for each in DEFECTS if each.name == "a restarted learner goes on in its lineage")
    with defect.planted():
        plan = next(plan for seed in [defect.seed, *range(1, MAX_SEEDS)] if run(plan := Plan.of(seed)).failure is not None)
        smallest = shrink(plan, lambda smaller: run(smaller).failure is not None)
        assert 1 <= len(smallest.faults) < len(plan.faults)
        _, _, numbers = command(smallest).partition("--only ")
        assert run(Plan.of(plan.seed, frozenset(map(int, numbers.split(","))))).failure is not None
        assert run(replace(plan, faults=())).failure is None
