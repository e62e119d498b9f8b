"""Members of a population without their processes: the parts that a learner has, which can be restored from its directory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from herd_learner.group.collectives import ShardGroup
from herd_learner.group.rendezvous import Place
from herd_learner.intake.ledger import Ledger
from herd_learner.population.link import PopulationLink
from herd_learner.population.member import FitnessWindow, Member, Membership
from herd_learner.record import checkpoints
from torch import Tensor

from herd.components.suites import environment_spec
from herd.config.run import RunSettings
from herd.config.run_contract import Origin
from herd.protocols.population.messages import MemberReport, Order
from herd.run.checkpoints import CheckpointError
from herd.run.paths import agent_directory
from herd.training.batch import BatchBuffer
from tests.training.small_runs import trainer_of


class HeardOrders:
    """The messages that the I/O thread would have received and would send."""

    order: Order | None = None
    standing: MemberReport | None = None


class MemberLearner:
    """A member: the parts of its process, restored from its directory if that has a checkpoint."""

    def __init__(self, whole: RunSettings, agent: int) -> None:
        """``whole``: settings of the whole run, in its own directory."""
        self.settings: RunSettings = whole.of_agent(agent)
        self.agent = agent
        self.directory = agent_directory(whole, agent)
        self.directory.mkdir(parents=True, exist_ok=True)
        spec = environment_spec(self.settings.env)
        self.origin = Origin.of(self.settings, spec)
        self.trainer = trainer_of(self.settings)
        group = ShardGroup(Place(0, 1))
        checkpoint = checkpoints.load_newest(self.directory, self.origin)
        self.statistics, _, _ = checkpoints.restore_counters(checkpoint, spec)
        self.statistics.fitness = FitnessWindow(spec.task_names, {}, num_games=whole.population.fitness_episodes)
        member = Member(Membership(settings=self.settings.own_values), self.statistics.fitness, fitness="episode_return")
        self.client = HeardOrders()
        self.link = PopulationLink(
            self.settings,
            self.agent,
            member=member,
            origin=self.origin,
            group=group,
            trainer=self.trainer,
            statistics=self.statistics,
            client=self.client,  # type: ignore[arg-type]
        )
        if checkpoint is not None:
            self.settings = self.link.restore(checkpoint)
            checkpoints.restore(checkpoint, self.trainer, replay=None)

    def update(self, buffer: BatchBuffer) -> dict[str, float]:
        """Do one update at the rates of the settings."""
        rates = self.settings.optimizer.rates(env_frames=0, learner_updates=self.statistics.learner_updates)
        update = self.trainer(buffer, rates)
        self.statistics.learner_updates += 1
        return {name: measured.value for name, measured in update.losses.items()} | {"norm": update.gradient_norm}

    def play(self, *episode_returns: float) -> None:
        for episode_return in episode_returns:
            self.statistics.record_episode(0, episode_return)

    def write(self, donor: Mapping[str, Mapping[str, Tensor]] | None = None, after: Membership | None = None) -> bool:
        tensors = checkpoints.tensors_of(self.trainer)
        if donor is not None:
            tensors = {file: dict(named) for file, named in donor.items()} | {"random": tensors["random"]}
        try:
            checkpoints.save(
                self.directory,
                tensors,
                origin=self.origin,
                learner_updates=self.statistics.learner_updates,
                lineage=1,
                ledger=Ledger().snapshot().as_json(),
                statistics=self.statistics.as_json(0.0),
                replay_random=[],
                population=self.link.member.as_json(after),
                keep=2,
            )
        except CheckpointError:
            return False
        return True

    def carry_out(self, order: Order) -> bool:
        self.client.order = order
        done = self.link.carry_out(order, self.write)
        if done is not None:
            self.settings = done.settings
        return done is not None

    def state(self) -> dict[str, Any]:
        """Everything that the next update depends on."""
        tensors = checkpoints.tensors_of(self.trainer)
        values = {f"{file}/{name}": tensor.tolist() for file in tensors if file != "random" for name, tensor in tensors[file].items()}
        return {**values, "settings": self.settings.own_values, "group": self._group()}

    def _group(self) -> dict[str, Any]:
        return {
            name: value for name, value in self.trainer.optimizer.param_groups[0].items() if name not in {"params", "lr", "weight_decay"}
        }

    @property
    def is_done(self) -> bool:
        return self.link.member.membership.applied is not None
