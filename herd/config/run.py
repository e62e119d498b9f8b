"""Every setting of a run, by owner. One experiment file fills this model; every process reads the same one.

All models are frozen and refuse unknown keys. The docstring under a field is its help text and names its unit.
``env_frames`` always counts emulator frames: agent steps times ``env.action_repeat``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, cast

from pydantic import Field, field_validator, model_validator

from herd.components.actions import ACTIONS
from herd.components.auxiliary import AUXILIARIES
from herd.components.cores import CORES
from herd.components.losses import LOSSES
from herd.components.optimizers import OPTIMIZERS
from herd.components.replay import REPLAYS
from herd.components.settings import Fraction, NonNegativeInt, PositiveFloat, PositiveInt, Section
from herd.components.suites import SUITES, SuiteSettings, with_reward_shaping
from herd.components.torsos import TORSOS
from herd.components.trackers import logging_section
from herd.components.value_scaling import VALUE_SCALINGS
from herd.config.addresses import is_storage_address
from herd.config.services import (
    ActorSettings,
    BanditSettings,
    EvaluationSettings,
    InferenceSettings,
    LearnerSettings,
    ParamserverSettings,
    PlacementSettings,
    PopulationSettings,
    ReplayServiceSettings,
)
from herd.config.sweep import SECTIONS, Sweep, check_keys, has_lists, num_combinations, swept_section, swept_values

if TYPE_CHECKING:
    from herd.components.actions import ActionSettings
    from herd.components.auxiliary import AuxiliarySettings
    from herd.components.cores import CoreSettings
    from herd.components.losses import LossSettings
    from herd.components.optimizers import OptimizerSettings
    from herd.components.registry import Registry
    from herd.components.replay.local import LocalReplay
    from herd.components.replay.none import NoReplay
    from herd.components.replay.shared import SharedReplay
    from herd.components.torsos import TorsoSettings
    from herd.components.trackers import LoggingSettings
    from herd.components.value_scaling import ValueScalingSettings
    from herd.config.sweep import Value
    from herd.contract.spaces import EnvSpec

    EnvSettings = SuiteSettings
    ReplaySettings = NoReplay | LocalReplay | SharedReplay
else:
    ActionSettings = ACTIONS.union()
    CoreSettings = CORES.union()
    EnvSettings = SUITES.union()
    AuxiliarySettings = AUXILIARIES.union()
    LoggingSettings = logging_section()
    LossSettings = LOSSES.union()
    OptimizerSettings = OPTIMIZERS.union()
    ReplaySettings = REPLAYS.union()
    ValueScalingSettings = VALUE_SCALINGS.union()
    TorsoSettings = TORSOS.union()


CLIENT_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
"""A client's name: valid in the name of a key file and as a key of a Kubernetes Secret."""
MAX_AGENTS = 256
"""Largest number of agents in a run: ten times the paper's population of 24."""


class NetworkSettings(Section):
    """The agent's network (IMPALA Fig. 3)."""

    torso: TorsoSettings = TORSOS.default()
    """Turns observations into features."""
    core: CoreSettings = CORES.default()
    """Memory between torso and heads."""
    width_multiplier: PositiveInt = 1
    """Multiplies the number of channels of the convolutions (LASER: 4 on Atari)."""
    last_action_and_reward: bool = False
    """Feed the last reward and the one-hot last action to the network, in addition to the torso's output. This reward is clipped to
    [-1, 1], whatever reward the loss uses."""
    language: bool = False
    """Feed the words of the level's instruction to the network through an LSTM. Only for suites with instructions."""
    initialization: Literal["orthogonal", "truncated_normal"] = "orthogonal"
    """How weights are initialised. ``orthogonal``: gain sqrt(2) before a ReLU, 0.01 for the policy head. ``truncated_normal``: Sonnet's
    default, 1 / sqrt(fan-in), which IMPALA's authors used (docs/decisions/0014)."""
    input_centering: Literal["none", "filters", "mean"] = "none"
    """Keeps a constant background from silencing filters of the first layer. ``none``: pixels are used as they are, from 0 to 1. ``mean``
    subtracts from each pixel its running mean, divides by its running standard deviation, and limits the result to 5. ``filters``
    subtracts from each filter the mean of its weights. Both need a torso with convolutions."""
    vector_normalization: Literal["auto", "running", "none"] = "auto"
    """Normalise the numbers of the observations' vector by their mean and deviation over the learner's batches. ``auto``: ``running`` if
    an environment declares wide or infinite bounds and the torso is Herd's own, otherwise ``none``."""
    layer_norm: bool = False
    """Add a layer norm before every ReLU, over all units of a layer; for images, over channels and positions (PQN, arXiv:2407.04811)."""

    @model_validator(mode="before")
    @classmethod
    def _user_code_is_custom(cls, values: Any) -> Any:
        """``module:Class`` for a whole part is short for the kind ``custom`` with this code."""
        if not isinstance(values, Mapping):
            return values
        parts = {}
        for name in ("torso", "core"):
            section = values.get(name)
            given = dict(section) if isinstance(section, Mapping) else {"kind": section}
            if ":" in str(kind := given.pop("kind", None)):
                parts[name] = {"kind": "custom", "code": kind, **given}
        return {**values, **parts}

    def normalizes_vector(self, spec: EnvSpec) -> bool:
        """Whether the agent normalises the vector of these observations."""
        if self.vector_normalization == "auto":
            return self.torso.follows_design and not spec.vector_is_bounded and spec.vector_size > 0
        return self.vector_normalization == "running" and spec.vector_size > 0

    @model_validator(mode="after")
    def _layers_are_herds_own(self) -> Self:
        torso = self.torso
        if torso.follows_design and not torso.has_convolutions and self.input_centering != "none":
            raise ValueError(f"input_centering {self.input_centering} needs convolutions: with torso {torso.kind} use none")
        if not torso.follows_design and (self.input_centering != "none" or self.layer_norm or self.initialization != "orthogonal"):
            raise ValueError("initialization, input_centering and layer_norm apply to Herd's own torsos only: yours must do this itself")
        return self


class AlgorithmSettings(Section):
    """Settings that all losses share: unrolls and rewards."""

    unroll_length: PositiveInt = 20
    """Number of agent steps of an unroll that are trained on (T)."""
    burn_in: NonNegativeInt = 0
    """Number of agent steps before the trained ones, repeated from the previous unroll. They only update the stored state of the recurrent
    core (DiCE: 40)."""
    discount: Fraction = 0.99
    """Discount per agent step (gamma)."""
    reward_shaping: Literal["clip", "soft_asymmetric", "soft_asymmetric_printed", "log_asymmetric", "none"] = "none"
    """How rewards are shaped for the loss; unless it is set, ``clip`` in the suites atari and dmlab, and ``none`` in others. ``none``: as
    the environment gives them. ``clip``: clipped to [-1, 1]. ``soft_asymmetric``: as in the authors' code for DMLab.
    ``soft_asymmetric_printed``: the formula of IMPALA's Fig. D.1. ``log_asymmetric``: DiCE's log(abs(r) + 1), times 2 for rewards >= 0 and
    times -1 for negative ones."""

    @model_validator(mode="after")
    def _burn_in_repeats_one_unroll(self) -> Self:
        if self.burn_in > self.unroll_length:
            raise ValueError(f"burn_in {self.burn_in} must not exceed unroll_length {self.unroll_length}: it repeats only one unroll")
        return self


class SecuritySettings(Section):
    """Encryption and authentication of all connections between processes (CURVE; docs/messaging.md). Keys themselves are never settings."""

    curve_keys: Path | None = None
    """Folder of keys, made by ``herd keys``. Null, without keys in the environment: connections are neither encrypted nor authenticated by
    keys."""
    curve_client: str = Field(default="default", pattern=CLIENT_NAME)
    """Name of this process's client key in the folder: ``client-<name>.secret``."""
    curve_keys_from_environment: bool = False
    """Read the keys from the environment variables ``HERD_CURVE_...`` instead of a folder."""

    @property
    def curve(self) -> bool:
        """Whether connections are encrypted and authenticated."""
        return self.curve_keys is not None or self.curve_keys_from_environment

    @model_validator(mode="after")
    def _keys_come_from_one_place(self) -> Self:
        if self.curve_keys is not None and self.curve_keys_from_environment:
            raise ValueError("curve_keys and curve_keys_from_environment cannot be combined: set one of them")
        return self


class StopSettings(Section):
    """Conditions that end a run; the first one that is met applies. Null: the condition is not used."""

    env_frames: PositiveInt | None = None
    """Env frames that the learner has consumed since the run's first start."""
    wall_seconds: PositiveFloat | None = None
    """Seconds of training in this session, counted from its first update. Starting the processes does not count."""
    wait_for_signal: bool = False
    """After the end of the run, the learner keeps its metrics and probes available until it is told to stop, and actors wait. For pods,
    which are restarted whenever they end."""


REGISTRIES: dict[str, Registry[Any]] = {
    "loss": LOSSES,
    "value_scaling": VALUE_SCALINGS,
    "auxiliary": AUXILIARIES,
    "optimizer": OPTIMIZERS,
    "replay": REPLAYS,
}
"""The sections that choose a part by ``kind``."""


class RunSettings(Section):
    """All settings of a run. An experiment file sets some of them."""

    name: str = Field(default="run", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    """Names the run directory and labels metrics."""
    seed: NonNegativeInt = 1
    """Random seed. Environments, exploration and initial parameters derive their seeds from it."""
    deterministic: bool | None = None
    """Make the run repeatable: the same seed on the same machine then gives the same actions, losses and weights, bit for bit. To achieve
    this, the actor does not play with the newest policy but with the one that has learned from all messages of unrolls except the last.
    Null: on if ``herd train`` starts a run that allows it, which needs one actor with its own policy, one learner that does not work ahead,
    no replay service and no temperatures."""
    run_dir: Path | None = None
    """Folder of the run's files. Null: ``runs/<name>``."""
    resume: bool = False
    """Continue from the newest checkpoint in ``run_dir`` or in ``copy_to``."""
    copy_to: str | None = None
    """Address in object storage, such as ``s3://bucket/runs/pong``, that gets a copy of settings, curve, report and checkpoints, so that
    the run outlives its disk (docs/curves.md). Needs herd-rl[storage]. Null: no copy."""
    agents: Annotated[int, Field(ge=1, le=MAX_AGENTS)] = 1
    """Number of agents that learn in this run. Each has its own learner; all share parameter servers, bandit and actors. Agents are
    numbered from 0."""
    sweep: Sweep = Field(default={})
    """Settings that differ between agents. A list of values, such as ``optimizer.learning_rate: [3.0e-4, 6.0e-4]``, gives each agent a
    different combination; the last key varies fastest, and there must be as many agents as combinations. With a rule, each agent draws its
    own value: ``{draw: log_uniform, low: 5.0e-6, high: 5.0e-3}``, ``{draw: uniform, low: 10, high: 100}`` or ``{draw: choice, values: [0.1,
    0.001]}``. Only settings of ``loss`` and ``optimizer`` that actors do not read are allowed. ``population`` decides whether the values
    change during the run."""
    population: PopulationSettings = PopulationSettings()
    env: EnvSettings = SUITES.default()
    network: NetworkSettings = NetworkSettings()
    action: ActionSettings = ACTIONS.default()
    algorithm: AlgorithmSettings = AlgorithmSettings()
    loss: LossSettings = LOSSES.default()
    value_scaling: ValueScalingSettings = VALUE_SCALINGS.default()
    auxiliary: AuxiliarySettings = AUXILIARIES.default()
    optimizer: OptimizerSettings = OPTIMIZERS.default()
    replay: ReplaySettings = cast("NoReplay", REPLAYS.default())
    actor: ActorSettings = ActorSettings()
    learner: LearnerSettings = LearnerSettings()
    paramserver: ParamserverSettings = ParamserverSettings()
    bandit: BanditSettings = BanditSettings()
    replay_service: ReplayServiceSettings = ReplayServiceSettings()
    inference: InferenceSettings = InferenceSettings()
    evaluation: EvaluationSettings = EvaluationSettings()
    logging: LoggingSettings = LoggingSettings()
    placement: PlacementSettings = PlacementSettings()
    security: SecuritySettings = SecuritySettings()
    stop: StopSettings = StopSettings()

    @property
    def directory(self) -> Path:
        """The run directory."""
        return self.run_dir if self.run_dir is not None else Path("runs") / self.name

    @property
    def actors_per_agent(self) -> int:
        """Least number of the actors started by ``herd train`` that play for each agent. Some agents may have one more."""
        return max(1, self.actor.count // self.agents)

    def of_agent(self, agent: int) -> Self:
        """The settings of an agent's learner: with its own seed and its own initial values of the swept settings."""
        return self.with_values(swept_values(self.sweep, agent, self.seed)).model_copy(update={"seed": self.seed + agent})

    def with_values(self, values: Mapping[str, Value]) -> Self:
        """The same run with other values of the swept settings, by dotted key.

        Raises:
            ValueError: a section does not accept its value; one line.
        """
        return self.model_copy(update={name: swept_section(name, getattr(self, name), values) for name in SECTIONS})

    @property
    def own_values(self) -> dict[str, Value]:
        """The swept settings by dotted key, with the values that they have here."""
        return {key: getattr(getattr(self, section), name) for key in self.sweep for section, _, name in [key.partition(".")]}

    @property
    def repeats(self) -> bool:
        """Whether this process acts so that the seed decides everything that is learned."""
        return self.deterministic is True

    @property
    def can_repeat(self) -> bool:
        """Whether the seed decides everything that is learned if these settings describe all processes of the run."""
        return self.deterministic is not False and self.what_cannot_repeat is None

    @property
    def what_cannot_repeat(self) -> str | None:
        """The settings because of which two runs with one seed differ, with the reason; None if the seed can decide."""
        causes = {
            f"actor.count {self.actor.count}: actors race": self.actor.count != 1,
            f"agents {self.agents}: agents race": self.agents > 1,
            f"learner.shards {self.learner.shards}: unrolls go to the shard that is free": self.learner.shards > 1,
            "actor.inference remote: the service takes new weights between any two steps": self.actor.inference == "remote",
            "actor.pull_interval_steps: weights change between any two steps": self.actor.pull_interval_steps is not None,
            "learner.max_policy_lag: unrolls are dropped by their age": self.learner.max_policy_lag is not None,
            "learner.work_ahead on: the next batch is taken early": self.learner.work_ahead == "on",
            "replay.kind shared: the service is asked while games arrive": self.replay.kind == "shared",
            f"loss.kind {self.loss.kind}: the bandit is asked while games end": self.loss.draws_temperatures,
        }
        return next((cause for cause, applies in causes.items() if applies), None)

    @property
    def bounds_policy_lag(self) -> bool:
        """Whether a setting limits the policy lag of the unrolls that are trained on."""
        return self.learner.max_policy_lag is not None or self.actor.credit == "before_unroll" or self.actor.lockstep

    def works_ahead(self, device_type: str) -> bool:
        """Whether a learner on ``device_type``, ``cpu`` or ``cuda``, prepares the next batch while the device computes."""
        if self.learner.work_ahead == "auto":
            return device_type == "cuda" and not self.bounds_policy_lag and not self.repeats
        return self.learner.work_ahead == "on"

    @property
    def num_online_unrolls(self) -> int:
        """Number of unrolls of each batch that come fresh from actors."""
        return self.learner.batch_size - self.num_replayed_unrolls

    @property
    def num_replayed_unrolls(self) -> int:
        """Number of unrolls of each batch that come from replay."""
        return round(self.learner.batch_size * self.replay.fraction)

    @property
    def credit_capacity(self) -> int:
        """Number of unrolls that one shard may have granted, under way or queued.

        It bounds the learner's memory, or the policy lag if credit is granted before the unroll. A shard's part of a batch may be smaller
        than a message; there is room for one more message nevertheless.
        """
        batches = self.learner.queue_batches
        if self.actor.credit == "before_unroll" and self.learner.max_policy_lag is not None:
            batches = max(1, self.learner.max_policy_lag // self.learner.sample_reuse)
        if self.learner.shards == 1:
            return batches * self.num_online_unrolls
        part = math.ceil(self.num_online_unrolls / self.learner.shards)
        return max(batches * part, part + self.actor.environments - 1)

    @field_validator("copy_to")
    @classmethod
    def _copy_to_is_an_address(cls, value: str | None) -> str | None:
        if value is not None and not is_storage_address(value):
            raise ValueError("should be an address without credentials, such as s3://bucket/runs/pong")
        return value

    @model_validator(mode="before")
    @classmethod
    def _shape_rewards_as_the_suite(cls, values: Any) -> Any:
        return with_reward_shaping(values)

    @model_validator(mode="after")
    def _a_sweep_is_of_its_agents(self) -> Self:
        if self.sweep:
            check_keys(self.sweep)
            if has_lists(self.sweep) and (number := num_combinations(self.sweep)) != self.agents:
                raise ValueError(f"sweep has {number} combinations of values, but agents is {self.agents}: make them equal")
            for agent in range(self.agents):
                self.of_agent(agent)._check_sections()
        return self

    @model_validator(mode="after")
    def _a_population_has_members(self) -> Self:
        if self.population.strategy == "none":
            return self
        if self.agents < 2 or not self.sweep:
            raise ValueError("population.strategy pbt needs agents of at least 2, and a sweep with the settings that it changes")
        if self.learner.compile != "off":
            raise ValueError("population.strategy pbt needs learner.compile off: every changed setting would recompile the update")
        return self

    @model_validator(mode="after")
    def _sections_fit_together(self) -> Self:
        self._check_sections()
        return self

    def _check_sections(self) -> None:
        if self.algorithm.burn_in and not self.network.core.state_size():
            raise ValueError("algorithm.burn_in needs network.core lstm: without a recurrent core there is no state to update")
        if self.loss.needs_whole_batch and self.learner.micro_batch_size is not None:
            raise ValueError("loss.advantage_normalization batch needs learner.micro_batch_size null: it normalises over the whole batch")
        if self.action.mixes_with_uniform and self.loss.head == "dueling":
            raise ValueError(f"action.uniform_share does not go with loss.kind {self.loss.kind}, whose policy is softmax(A / tau)")
        if self.actor.inference == "remote" and self.inference.max_environments < self.actor.environments:
            raise ValueError(
                f"inference.max_environments {self.inference.max_environments} must be at least actor.environments, which is "
                f"{self.actor.environments}: the service keeps the states of all environments of an actor"
            )
        self._check_replay()
        if self.num_online_unrolls < self.learner.shards or 0 < self.num_replayed_unrolls < self.learner.shards:
            raise ValueError(
                f"learner.shards {self.learner.shards} is too large: each shard needs an online unroll of every batch, and a replayed one "
                f"if there are any, but a batch has {self.num_online_unrolls} online and {self.num_replayed_unrolls} replayed unrolls"
            )
        if self.actor.credit == "before_unroll" and self.learner.max_policy_lag is None:
            raise ValueError("actor.credit before_unroll needs learner.max_policy_lag, which is the amount of credit in batches")
        # One more message must fit when the queue is one unroll short of a batch; otherwise learner and actors deadlock.
        needed = self.num_online_unrolls + self.actor.environments - 1
        if self.learner.shards == 1 and self.credit_capacity < needed:
            bound = "learner.queue_batches" if self.actor.credit == "at_send" else "learner.max_policy_lag"
            raise ValueError(
                f"{bound} x {self.num_online_unrolls} online unrolls per batch leaves room for {self.credit_capacity} unrolls, but "
                f"messages of actor.environments = {self.actor.environments} unrolls need {needed}: increase {bound}"
            )

    def _check_replay(self) -> None:
        if (
            incompatibility := self.value_scaling.incompatibility(
                has_replay=self.replay.kind != "none", train_online=self.replay.train_online
            )
        ) is not None:
            raise ValueError(incompatibility)
        if self.num_online_unrolls < 1:
            raise ValueError("replay.fraction is too large: a batch of learner.batch_size needs at least one online unroll")
        if self.replay.fraction and self.num_replayed_unrolls < 1:
            raise ValueError(
                f"replay.fraction {self.replay.fraction:g} of learner.batch_size {self.learner.batch_size} is not a whole number of unrolls"
            )

    @model_validator(mode="after")
    def _can_repeat(self) -> Self:
        if self.deterministic and (cause := self.what_cannot_repeat) is not None:
            raise ValueError(f"deterministic true is not possible with {cause}")
        return self

    @model_validator(mode="after")
    def _no_bounded_lag_ahead(self) -> Self:
        if self.learner.work_ahead == "on" and self.bounds_policy_lag:
            raise ValueError(
                "learner.work_ahead on cannot be combined with learner.max_policy_lag, actor.credit before_unroll or actor.lockstep: "
                "each batch would be one update older; use auto"
            )
        return self

    @model_validator(mode="after")
    def _rounds_of_lockstep_are_updates(self) -> Self:
        for key, number in (("agents", self.agents), ("learner.shards", self.learner.shards)):
            if self.actor.lockstep and number > 1:
                raise ValueError(f"actor.lockstep needs {key} 1, not {number}: each round is one whole batch of one learner")
        if self.actor.lockstep and self.actor.count * self.actor.environments != self.num_online_unrolls:
            raise ValueError(
                "actor.lockstep needs actor.count x actor.environments to equal the online unrolls of one batch "
                f"({self.actor.count} x {self.actor.environments} != {self.num_online_unrolls}): each round is one update"
            )
        if self.actor.lockstep and self.learner.sample_reuse != 1:
            raise ValueError("actor.lockstep needs learner.sample_reuse 1: each round is one update")
        if self.actor.lockstep and self.actor.inference == "remote":
            raise ValueError("actor.lockstep needs actor.inference local: the service may change the policy during a round")
        if self.actor.lockstep and self.actor.pull_interval_steps is not None:
            raise ValueError("actor.lockstep needs actor.pull_interval_steps null: a round uses one policy")
        if self.actor.lockstep and self.learner.publish_interval_updates != 1:
            raise ValueError("actor.lockstep needs learner.publish_interval_updates 1: actors wait for every version")
        return self
