"""Defects planted to show that the world can fail: mistakes of the past, and those that such protocols are known for."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from textwrap import dedent
from typing import Any
from unittest.mock import patch

import herd_learner.record.lineage
from herd_bandit.keeper import Keeper
from herd_learner.group.turns import VersionSchedule
from herd_learner.intake.ingest import Ingest
from herd_learner.intake.ledger import LedgerSnapshot
from herd_learner.population.member import Membership
from herd_paramserver.leases import PlaceLeases
from herd_paramserver.store import WeightsStore
from herd_population.journal import Journal

import herd.files
import herd.run.checkpoints
from herd.protocols.unrolls.credit import CreditPool
from herd.protocols.unrolls.outbox import UnrollOutbox
from herd.rpc.request import RetryingRequest


@dataclass(frozen=True)
class Defect:
    """A few words of one function of the product, replaced by others."""

    name: str
    owner: Any
    function: str
    right: str
    wrong: str
    seed: int
    """One that shows it."""

    @contextmanager
    def planted(self) -> Iterator[None]:
        """Let the product have it."""
        function = inspect.unwrap(getattr(self.owner, self.function))
        source = dedent(inspect.getsource(function))
        assert source.count(self.right) == 1, f"{self.function} no longer has {self.right!r}: plant {self.name!r} elsewhere"
        code = compile("from __future__ import annotations\n" + source.replace(self.right, self.wrong), "<defect>", "exec")
        names: dict[str, Any] = {}
        exec(code, function.__globals__, names)
        wrong = names[self.function]
        modules = [module for name, module in list(sys.modules.items()) if name.startswith(("herd", "tests.simulation"))]
        users = [self.owner, *(module for module in modules if vars(module).get(self.function) is function)]
        patches = [patch.object(user, self.function, wrong) for user in users]
        for each in patches:
            each.start()
        try:
            yield
        finally:
            for each in reversed(patches):
                each.stop()


DEFECTS = (
    Defect(
        "a message beyond the credit is dropped and acknowledged",
        Ingest,
        "_on_unrolls_message",
        'self._hello_required(peer, "credit", f"no credit for {message.num_unrolls} unrolls")',
        "[self._ack(peer, message.sequence)]",
        119,
    ),
    Defect(
        "messages under way when a session ends are not sent again",
        UnrollOutbox,
        "begin_hello",
        "self._used = self._num_sent = 0",
        "self._used = 0",
        3,
    ),
    Defect(
        "unused credit of a session that ended is not granted again",
        CreditPool,
        "_forget",
        "self.granted_unused -= known.unused",
        "pass",
        2,
    ),
    Defect("a lost request is never repeated", RetryingRequest, "advance", "is_overdue = self._timer.due", "is_overdue = False", 3),
    Defect(
        "each shard continues the totals of the whole ledger",
        LedgerSnapshot,
        "without_totals",
        "LedgerSnapshot(accounts=self.accounts)",
        "self",
        12,
    ),
    Defect(
        "a restarted learner goes on in its lineage",
        herd_learner.record.lineage,
        "open_lineage",
        "max((last or 0) + 1, at_least)",
        "max(last or 0, at_least)",
        24,
    ),
    Defect("a file is renamed before its contents are on disk", herd.files, "replace_file", "os.fsync(file.fileno())", "pass", 1),
    Defect("the name of a new file is not flushed", herd.files, "replace_file", "flush_directory(path.parent)", "pass", 71),
    Defect("the name of a new folder is not flushed", herd.files, "make_folder", "flush_directory(path.parent)", "pass", 65),
    Defect(
        "a checkpoint is renamed before its files are on disk",
        herd.run.checkpoints,
        "_write_durably",
        "os.fsync(file.fileno())",
        "pass",
        1,
    ),
    Defect("an order goes out before it is on disk", Journal, "append", "os.fsync(descriptor)", "pass", 96),
    Defect("a copy has the ancestors of its receiver", Membership, "after", "(*donor.ancestry, copy)", "(*ancestry, copy)", 2),
    Defect(
        "a lease is renewed after its expiry, although its place is another's",
        PlaceLeases,
        "_take",
        " and wanted[1] not in self._taken[wanted[0]]",
        "",
        7,
    ),
    Defect(
        "slices of two lineages become one version",
        WeightsStore,
        "publish",
        "version > assembly.version:",
        "version.updates > assembly.version.updates:",
        168,
    ),
    Defect(
        "the bandit does not restore which reports it has counted",
        Keeper,
        "restore",
        "self._window.answered(client, number, ClientGames(dict(episodes)))",
        "pass",
        49,
    ),
    Defect("the other shards do not follow the first one's lineage", VersionSchedule, "adopt", "self.lineage = turn.lineage", "pass", 43),
    Defect(
        "nothing is published when a lineage begins",
        VersionSchedule,
        "enter",
        "turn.lineage == self._published_lineage or turn.newer_lineage >= turn.lineage",
        "True",
        1,
    ),
)
