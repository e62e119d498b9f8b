"""Do the tests notice when a promise is switched off? ``python -m benchmarks.soak.mutations [NAME ...] [--only fast]``.

Each mutation is an exact replacement in the source, or a few. It is made in a copy of the working tree, never in the tree itself; then the
named tests run there and must go red. Exit code 1 where a mutation stayed unnoticed
by all of its tests, or where its text is no longer found: then this table is out of date.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parents[2]
COPIED = ("herd", "services", "tests", "benchmarks", "experiments", "pyproject.toml")
SECONDS = 1200.0
"""For all tests of one mutation: runs that never recover wait for their limits."""


class Edit(NamedTuple):
    """One exact replacement."""

    file: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Mutation:
    """One promise switched off."""

    name: str
    what: str
    edits: tuple[Edit, ...]
    fast: tuple[str, ...]
    """Tests without whole runs."""
    whole: tuple[str, ...]
    """Tests with real processes."""


_INGEST = ("tests/learner/test_ingest_rules.py", "tests/learner/test_ingest_simulation.py")
_OUTBOX = ("tests/wire/test_wire_outbox.py", "tests/wire/test_wire_unroll_client.py")
_TAKEN_ONCE = "tests/system/test_faults_actor.py::test_what_breaks_off_under_way_is_sent_again_and_taken_once"
_LEARNER = "tests/system/test_faults_learner.py::test_the_learner_is_struck_in_every_way"
_OLDER = "tests/system/test_faults_learner.py::test_a_learner_restored_from_an_older_checkpoint_is_followed_by_all"
_BY_UPDATES = """    lineage: int
    updates: int

    def __lt__(self, other):
        return self.updates < other[1]

    def __le__(self, other):
        return self.updates <= other[1]

    def __gt__(self, other):
        return self.updates > other[1]

    def __ge__(self, other):
        return self.updates >= other[1]
"""

MUTATIONS = (
    Mutation(
        name="no-resend",
        what="actors forget a message when it is written, and do not wait for its acknowledgement",
        edits=(
            Edit(
                "herd/wire/outbox.py",
                "        self._used += message.num_unrolls\n        self._num_sent += 1\n",
                "        self._used += message.num_unrolls\n        self._kept.popleft()\n",
            ),
        ),
        fast=(*_OUTBOX, "tests/learner/test_ingest_simulation.py"),
        whole=(_TAKEN_ONCE,),
    ),
    Mutation(
        name="no-acknowledgement",
        what="the learner takes messages and never acknowledges them",
        edits=(
            Edit("services/learner/herd_learner/ingest.py", "        return [self._ack(peer, message.sequence)]\n", "        return []\n"),
        ),
        fast=_INGEST,
        whole=(_TAKEN_ONCE,),
    ),
    Mutation(
        name="acknowledged-unread",
        what="the learner acknowledges messages out of sequence, which it does not take",
        edits=(
            Edit(
                "services/learner/herd_learner/ingest.py",
                '            return self._hello_required(peer, "sequence", f"message {message.sequence} is out of sequence")\n',
                "            return [self._ack(peer, message.sequence)]\n",
            ),
        ),
        fast=_INGEST,
        whole=(),
    ),
    Mutation(
        name="no-deduplication",
        what="the learner takes a message again that it took before, and does not tell a returning actor what it has",
        edits=(
            Edit(
                "services/learner/herd_learner/ledger.py",
                "                return Verdict.DUPLICATE\n",
                "                return Verdict.NEXT\n",
            ),
            Edit(
                "services/learner/herd_learner/ledger.py",
                "            accepted = max(known.sequence if known is not None else 0, oldest_sequence - 1)\n",
                "            accepted = oldest_sequence - 1\n",
            ),
        ),
        fast=(*_INGEST, "tests/learner/test_learner_ledger.py"),
        whole=(_TAKEN_ONCE,),
    ),
    Mutation(
        name="accounts-not-restored",
        what="a restored learner does not know what it took before",
        edits=(
            Edit(
                "services/learner/herd_learner/ledger.py",
                "        self._accounts = OrderedDict((key, Account(*account)) for key, account in restored.accounts.items())\n",
                "        self._accounts: OrderedDict[ActorKey, Account] = OrderedDict()\n",
            ),
        ),
        fast=("tests/learner/test_learner_ledger.py", "tests/learner/test_ingest_simulation.py"),
        whole=(_LEARNER,),
    ),
    Mutation(
        name="no-lineage",
        what="a restored learner goes on in the lineage that it was in",
        edits=(
            Edit(
                "services/learner/herd_learner/lineage.py",
                "    lineage = max((last or 0) + 1, at_least)\n",
                "    lineage = max(last or 1, at_least - 1)\n",
            ),
        ),
        fast=("tests/learner/test_learner_lineage.py",),
        whole=(_LEARNER, _OLDER),
    ),
    Mutation(
        name="lineage-not-compared",
        what="the parameter server compares learner updates only",
        edits=(Edit("services/paramserver/herd_paramserver/store.py", "    lineage: int\n    updates: int\n", _BY_UPDATES),),
        fast=("tests/paramserver/test_paramserver_store.py",),
        whole=(_OLDER,),
    ),
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the tests said to one mutation."""

    name: str
    what: str
    red: list[str]
    """Tests that failed."""
    num_passed: int

    @property
    def noticed(self) -> bool:
        """Whether any test failed."""
        return bool(self.red)


def check(mutation: Mutation, tests: Sequence[str]) -> Outcome:
    """Run ``tests`` in a copy of the tree with the mutation.

    Raises:
        ValueError: its text is not in the file exactly once.

    """
    with tempfile.TemporaryDirectory(prefix="herd-mutation-") as folder:
        copy = Path(folder) / "tree"
        for name in COPIED:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(ROOT / name, copy / name)
        apply(mutation, copy)
        command = [sys.executable, "-m", "pytest", "-q", "-rfE", "--tb=no", "-p", "no:cacheprovider", *tests]
        environment = os.environ | {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False)
    if done.returncode not in {0, 1}:
        raise ValueError(f"{mutation.name}: pytest ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    red = re.findall(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    passed = re.search(r"(\d+) passed", done.stdout)
    return Outcome(mutation.name, mutation.what, red, int(passed[1]) if passed else 0)


def apply(mutation: Mutation, tree: Path) -> None:
    """Make the replacement in ``tree``.

    Raises:
        ValueError: the text is not there exactly once.

    """
    for file, old, new in mutation.edits:
        path = tree / file
        text = path.read_text()
        if text.count(old) != 1:
            raise ValueError(f"{mutation.name}: its text is {text.count(old)} times in {file}; bring the mutation up to date")
        path.write_text(text.replace(old, new))


def main() -> int:
    """Check all mutations, or those named."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak.mutations", description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", help=", ".join(mutation.name for mutation in MUTATIONS))
    parser.add_argument("--only", choices=("fast", "whole"), help="tests without, or with whole runs")
    parser.add_argument("--json", type=Path, help="write the outcomes here")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - {mutation.name for mutation in MUTATIONS}
    if unknown:
        parser.error(f"no such mutation: {', '.join(sorted(unknown))}")
    outcomes = []
    for mutation in MUTATIONS:
        if arguments.names and mutation.name not in arguments.names:
            continue
        tests = [*(mutation.fast if arguments.only != "whole" else ()), *(mutation.whole if arguments.only != "fast" else ())]
        if not tests:
            continue
        outcome = check(mutation, tests)
        outcomes.append(outcome)
        print(f"{outcome.name}: {len(outcome.red)} red, {outcome.num_passed} green" + ("" if outcome.noticed else "  UNNOTICED"))
        print(*(f"  {test}" for test in outcome.red), sep="\n", flush=True)
    if arguments.json is not None:
        found = [{"mutation": one.name, "what": one.what, "red": one.red, "green": one.num_passed} for one in outcomes]
        arguments.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0 if all(outcome.noticed for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
