"""A learner's part in a population: it reports its agent's state and carries out orders atomically."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, NamedTuple

from herd.protocols.population.messages import Order
from herd.run.checkpoints import CheckpointError
from herd.run.paths import agent_directory
from herd_learner.population.member import Member, Membership
from herd_learner.record import checkpoints

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor

    from herd.config.run import RunSettings
    from herd.config.run_contract import Origin
    from herd.protocols.population.client import PopulationClient
    from herd.protocols.population.messages import Copied, MemberReport
    from herd.run.tensors import Checkpoint
    from herd.training.trainer import Trainer
    from herd_learner.group.collectives import ShardGroup
    from herd_learner.record.statistics import RunStatistics

LAST_REPORT_SECONDS = 2.0
"""Time at the end of a member's run for its last report to reach the population."""


class CarriedOut(NamedTuple):
    """The changes made by an order."""

    settings: RunSettings
    is_copy: bool
    """Whether the weights were copied from another member."""


class PopulationLink:
    """The link of one shard. All shards carry out orders together; only shard 0 receives them."""

    def __init__(
        self,
        settings: RunSettings,
        agent: int,
        *,
        member: Member,
        origin: Origin,
        group: ShardGroup,
        trainer: Trainer,
        statistics: RunStatistics,
        client: PopulationClient | None,
    ) -> None:
        """``settings`` are those of ``agent``; ``client`` is given on shard 0 and polled by another thread."""
        self.member = member
        self.client = client
        self._settings = settings
        self._agent = agent
        self._origin = origin
        self._group = group
        self._trainer = trainer
        self._statistics = statistics

    @property
    def order(self) -> Order | None:
        """Return the order still to be carried out."""
        order = None if self.client is None else self.client.order
        return order if self.member.is_new(order) else None

    def restore(self, checkpoint: Checkpoint) -> RunSettings:
        """Continue as the member that wrote a checkpoint; return its settings.

        Raises:
            CheckpointError: its settings are not valid here.
        """
        state = checkpoint.state.get(checkpoints.POPULATION)
        if state is None:
            return self._settings
        statistics = self._statistics
        try:
            self.member.restore(state, learner_updates=statistics.learner_updates, env_frames=statistics.env_frames)
            return self._use_settings_of(self.member.membership)
        except (KeyError, TypeError, ValueError) as error:
            reason = " ".join(str(error).split())[:200]
            raise CheckpointError(f"{checkpoint.path}: its state of the population member cannot be used: {reason}") from error

    def carry_out(
        self, order: Order | None, write: Callable[[Mapping[str, Mapping[str, Tensor]] | None, Membership], bool]
    ) -> CarriedOut | None:
        """Carry out the order; it is done when its checkpoint is on disk. All shards must call this together.

        ``order`` is that of shard 0; other shards have none. ``write`` writes a checkpoint with these tensors, or its own if None, as this
        member, and returns False if that fails. Returns None if the order was not carried out; the population is told why.
        """
        member, group = self.member, self._group
        received = group.broadcast_object(None if order is None else order.model_dump(mode="json"))
        order = Order.model_validate_json(json.dumps(received))
        reason, donor, theirs = "", None, None
        try:
            self._settings.with_values({setting.key: setting.value for setting in order.settings})
            if order.copied is not None:
                donor, theirs = self._load(order.copied)
        except (CheckpointError, ValueError) as error:
            reason = " ".join(str(error).split())
        statistics, agent = self._statistics, self._agent
        after = member.membership.after(
            order, theirs, agent=agent, learner_updates=statistics.learner_updates, env_frames=statistics.env_frames
        )
        reason = group.broadcast_object(reason)
        if not reason:
            is_written = write(None if donor is None else donor.tensors, after)
            reason = group.broadcast_object("" if is_written else "its checkpoint could not be written")
        if reason:
            member.decline(order, reason)
            return None
        settings = self._use_settings_of(after)
        if order.copied is not None:
            copied = checkpoints.broadcast(donor, group)
            assert copied is not None  # otherwise there was a reason
            checkpoints.adopt(copied, self._trainer)
        member.become(after)
        return CarriedOut(settings, is_copy=order.copied is not None)

    def report(self) -> None:
        """Set the member's current report, to be sent when due."""
        if self.client is not None:
            self.client.standing = self._report()

    def report_last(self, go_on: Callable[[], bool]) -> None:
        """Wait while ``go_on`` until the population has the last report. If it does not arrive, it is sent after a restart."""
        if self.client is None:
            return
        self.report()
        self.client.report_now()
        deadline = time.monotonic() + LAST_REPORT_SECONDS
        while not self.client.is_heard and time.monotonic() < deadline and go_on():
            time.sleep(0.02)

    def _load(self, copied: Copied) -> tuple[Checkpoint | None, Membership | None]:
        """Return the donor's checkpoint and membership; None if another shard reads it.

        Raises:
            CheckpointError: it cannot be read.
            ValueError: it was not written by a member.
        """
        own = checkpoints.tensors_of(self._trainer)
        if not self._group.is_first:
            return None, None
        donor = checkpoints.load_of_member(agent_directory(self._settings, copied.donor), copied.learner_updates, self._origin, own)
        theirs = Membership.model_validate(donor.state.get(checkpoints.POPULATION, {}).get("membership"))
        if copied.applied != (0 if theirs.applied is None else theirs.applied.number):
            raise CheckpointError(f"{donor.path}: has been replaced by a checkpoint with other orders")
        return donor, theirs

    def _use_settings_of(self, membership: Membership) -> RunSettings:
        self._settings = self._settings.with_values(membership.settings)
        self._trainer.update_hyperparameters(self._settings.loss, self._settings.optimizer)
        return self._settings

    def _report(self) -> MemberReport:
        statistics = self._statistics
        return self.member.member_report(
            run_id=self._settings.name,
            agent=self._agent,
            contract=self._origin.contract,
            env_frames=statistics.env_frames,
            learner_updates=statistics.learner_updates,
            num_episodes=statistics.episodes,
        )
