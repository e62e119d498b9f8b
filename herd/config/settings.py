"""Every setting of a run, by owner. One experiment file fills this model; every process reads the same one.

All models are frozen and refuse unknown keys. The docstring under a field is its help text and names its unit.
``env_frames`` always counts emulator frames: agent steps times ``env.action_repeat``.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, model_validator

from herd.config.addresses import Address, tcp_address
from herd.config.auxiliary import AuxiliarySettings, NoAuxiliarySettings
from herd.config.evaluation import EvaluationSettings
from herd.config.inference import InferenceSettings
from herd.config.losses import ImpalaSettings, LossSettings
from herd.config.optimizers import OptimizerSettings, RMSPropSettings
from herd.config.population import PopulationSettings
from herd.config.replay import NoReplay, ReplaySettings
from herd.config.replay_service import ReplayServiceSettings
from herd.config.run_files import AGENTS
from herd.config.section import Fraction, NonNegativeFloat, NonNegativeInt, Port, PositiveFloat, PositiveInt, Section
from herd.config.suites import SuiteSettings, default_suite, suite_union, with_reward_shaping
from herd.config.sweep import SECTIONS, Sweep, check_keys, has_lists, num_combinations, swept_section, swept_values
from herd.config.trackers import LoggingSettings
from herd.config.user_code import USER_CODE
from herd.config.value_scaling import NoValueScaling, PopArtSettings, ValueScalingSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from herd.config.draws import Value

    EnvSettings = SuiteSettings
else:
    EnvSettings = suite_union()


def _one_or_several(value: object) -> object:
    return (value,) if isinstance(value, str) else value


def _known_torso(name: str) -> str:
    if name not in TORSOS and re.fullmatch(USER_CODE, name) is None:
        raise ValueError(f"should be {', '.join(TORSOS)} or module:Class of your own")
    return name


TORSOS = ("shallow", "nature", "deep", "mlp")
"""Herd's own torsos."""
Torso = Annotated[
    str, AfterValidator(_known_torso), WithJsonSchema({"anyOf": [{"enum": list(TORSOS)}, {"type": "string", "pattern": USER_CODE}]})
]
CLIENT_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
"""A client's name: valid in the name of a key file and as a key of a Kubernetes Secret."""
MAX_TILES = 400
"""Largest number of tiles of a bandit: ten times the default; 1/tau is then resolved to 1 %."""
MAX_AGENTS = 256
"""Largest number of agents in a run: ten times the paper's population of 24."""


class NetworkSettings(Section):
    """The agent's network (IMPALA Fig. 3)."""

    torso: Torso = "shallow"
    """``shallow``: IMPALA's Fig. 3 left. ``nature``: three convolutions. ``deep``: the residual network of Fig. 3 right. ``mlp``: for
    vectors and for boards such as Catch. ``module:Class``: your own (docs/extending.md)."""
    width_multiplier: PositiveInt = 1
    """Multiplies the number of channels of the convolutions (LASER: 4 on Atari)."""
    core: Literal["none", "lstm"] = "none"
    """Recurrent core between torso and heads."""
    core_size: PositiveInt = 256
    """Number of units of the LSTM core."""
    last_action_and_reward: bool = False
    """Feed the last reward and the one-hot last action to the network, in addition to the torso's output. This reward is clipped to
    [-1, 1], whatever reward the loss uses."""
    language: bool = False
    """Feed the words of the level's instruction to the network through an LSTM. Only for suites with instructions."""
    initialization: Literal["orthogonal", "truncated_normal"] = "orthogonal"
    """How weights are initialised. ``orthogonal``: gain sqrt(2) before a ReLU, 0.01 for the policy head. ``truncated_normal``: Sonnet's
    default, 1 / sqrt(fan-in), which IMPALA's authors used (docs/decisions/0014)."""
    input_centering: Literal["none", "half", "filters", "mean"] = "none"
    """Keeps a constant background from silencing filters of the first layer. ``half`` subtracts 1/2 from pixels. ``filters`` subtracts its
    mean from each filter (convolutions only)."""
    layer_norm: bool = False
    """Add a layer norm before every ReLU, over all units of a layer; for images, over channels and positions (PQN, arXiv:2407.04811)."""

    @property
    def state_size(self) -> int:
        """Number of floats of the core's state (S); 0 without a recurrent core."""
        return 2 * self.core_size if self.core == "lstm" else 0

    @model_validator(mode="after")
    def _layers_are_herds_own(self) -> Self:
        if self.torso == "mlp" and self.input_centering in {"filters", "mean"}:
            raise ValueError(f"input_centering {self.input_centering} needs convolutions: with torso mlp use half")
        if ":" in self.torso and (self.input_centering != "none" or self.layer_norm or self.initialization != "orthogonal"):
            raise ValueError(
                f"initialization, input_centering and layer_norm apply to Herd's own torsos only: {self.torso} must do this itself"
            )
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


class ActorSettings(Section):
    """One actor process."""

    count: PositiveInt = 2
    """Number of actor processes that ``herd train`` starts on this machine."""
    agent: NonNegativeInt | None = None
    """Agent of the run that this actor plays for. Null: it is leased together with the index. Set it only if the index is set."""
    index: NonNegativeInt | None = None
    """Index of this actor. It determines seeds and tasks. Null: it is leased from the parameter server. In a run of several agents with
    ``agent`` null, both are leased in any case, and this only numbers the process."""
    environments: PositiveInt = 32
    """Number of environments that are stepped together (E)."""
    environment_threads: PositiveInt = 1
    """Number of threads that step the environments. Two processes with one thread each are faster than one process with two."""
    inference_threads: PositiveInt = 1
    """Number of torch threads for the policy."""
    pin_to_cpu: bool = False
    """Pin each actor to one CPU, round-robin by index. Use it on a machine of its own with one actor per CPU: environments and policy take
    turns, and on one CPU they share a cache."""
    inference_precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Precision of the policy's network. ``auto``: bfloat16 if the CPU is faster with it. The learner corrects with the logits that actions
    were sampled from."""
    lockstep: bool = False
    """Batched A2C: wait for the policy that has learned from the last unrolls before the next unrolls start."""
    credit: Literal["at_send", "before_unroll"] = "at_send"
    """When an actor waits for credit, which is permission to send unrolls. ``at_send``: before it sends, as in the papers.
    ``before_unroll``: before an unroll starts, which bounds the policy lag (docs/messaging.md)."""
    compression: Literal["none", "lz4", "zstd"] = "none"
    """Compression of frames on the wire."""
    pull_interval_steps: PositiveInt | None = None
    """Number of agent steps between two requests for newer weights, at any step of an unroll and without waiting for the answer (DiCE: 64).
    Null: at the start of each unroll."""
    weights_timeout_seconds: PositiveFloat = 1.0
    """Longest wait for the parameter server at the start of an unroll, in seconds. After it the actor continues with the weights it has,
    and does not wait until the server answers again."""
    learner: Annotated[tuple[Address, ...], BeforeValidator(_one_or_several), Field(min_length=1)] = ("tcp://127.0.0.1:7100",)
    """Addresses of the unroll sockets of the learner's shards, in the order of their ranks, agent 0 first. A single address may be given
    without a list."""
    links: PositiveInt = 2
    """Number of shards that an actor connects to. It sends each message to a shard that has granted credit."""
    paramserver: Address = "tcp://127.0.0.1:7200"
    """Address of the parameter server."""
    bandit: Address = "tcp://127.0.0.1:7300"
    """Address of the bandit service. It is used if ``loss.kind`` is dice, except in the ablation ``baseline``."""
    bandit_timeout_seconds: PositiveFloat = 1.0
    """Longest wait for a temperature at the start of a game, in seconds. After it the game is played under the last temperature of its
    environment, and games do not wait until the service answers again."""
    inference: Literal["local", "remote"] = "local"
    """Where actions are chosen. ``local``: in the actor itself. ``remote``: by the inference service, for many actors at once. The actor
    then plays its environments in two halves, so that one half is answered while the other is stepped."""
    inference_service: Address = "tcp://127.0.0.1:7600"
    """Address of the inference service. Used with ``inference: remote``."""
    inference_fallback: Literal["wait", "local"] = "wait"
    """What the actor does while the inference service is down. ``wait``: wait for it. ``local``: fetch weights and choose actions itself
    until the service answers again."""
    inference_timeout_seconds: PositiveFloat = 2.0
    """Time without an answer after which the inference service is considered down."""
    metrics_host: str = "127.0.0.1"
    """Network interface of the metrics and health endpoint."""
    metrics_port: Port = 0
    """Port of the metrics and health endpoint; 0 takes a free port."""


class LearnerSettings(Section):
    """The learner process."""

    agent: NonNegativeInt = 0
    """Agent of the run that this process trains."""
    batch_size: PositiveInt = 32
    """Number of unrolls per update, over all shards, including replayed ones (B)."""
    sample_reuse: PositiveInt = 1
    """Number of consecutive updates on each batch (DiCE: 2). Frames and credit count once."""
    queue_batches: PositiveInt = 2
    """Number of batches that may wait or be under way. It bounds the queue of unrolls and all credit."""
    max_policy_lag: NonNegativeInt | None = None
    """Largest policy lag in learner updates. An unroll that began under an older policy is dropped as ``stale``. Null: no bound."""
    credit_expires_seconds: PositiveFloat = 60.0
    """If an actor is silent this long, or keeps credit unused while others wait for it, its credit goes to another actor."""
    shards: PositiveInt = 1
    """Number of processes that learn in lockstep (N), one per GPU, each on its part of every batch. ``herd train`` starts them on this
    machine; elsewhere torchrun does."""
    shard_timeout_seconds: PositiveFloat = 10.0
    """A shard that is silent this long is considered dead. The others end, and all start again from the newest checkpoint."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device that the learner trains on. ``auto``: a GPU if there is one."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Precision of convolutions and matrix products. Parameters, losses and statistics stay float32. ``auto``: bfloat16 if the processor is
    faster with it."""
    compile: Literal["off", "default", "reduce-overhead", "max-autotune"] = "off"
    """Mode of ``torch.compile`` for network and losses. On a CPU it needs a C++ compiler. The first update then takes a minute.
    ``reduce-overhead`` and ``max-autotune`` replay CUDA graphs on a GPU; neither has been measured on one. A compiled LSTM runs row by row
    instead of by the library's fused kernel."""
    work_ahead: Literal["auto", "on", "off"] = "auto"
    """Assemble the next batch and copy it to the device while the device computes. Such a batch is one update older. ``auto``: on a GPU,
    unless the policy lag is bounded (``max_policy_lag``, ``actor.credit``, ``actor.lockstep``)."""
    micro_batch_size: PositiveInt | None = None
    """Number of unrolls per forward and backward pass. Gradients are summed, so the update is the same. Null: chosen by network and
    device."""
    threads: PositiveInt | None = None
    """Number of torch threads. Null: as many as the process may use CPUs."""
    health_interval_updates: PositiveInt = 200
    """Number of updates between two measurements of the health of learning (explained variance, effective sample size, KL divergence of an
    update, dead units). One costs about as much as 1.4 updates, so the default costs less than 1 %."""
    publish_interval_updates: PositiveInt = 1
    """Number of updates between two published versions of the weights."""
    weights_dtype: Literal["float32", "bfloat16"] = "float32"
    """Data type of published weights."""
    checkpoint_interval_seconds: PositiveFloat = 300.0
    """Seconds between two checkpoints. One more is written at the end."""
    keep_checkpoints: PositiveInt = 2
    """Number of checkpoints to keep; older ones are removed."""
    log_interval_seconds: PositiveFloat = 5.0
    """Seconds between two points of the learning curve (metrics.jsonl)."""
    host: str = "127.0.0.1"
    """Network interface that the unroll socket listens on."""
    port: Port = 0
    """Port of the unroll socket. 0 takes a free port."""
    paramserver: Address = "tcp://127.0.0.1:7200"
    """Address of the parameter server."""
    replay: Annotated[tuple[Address, ...], BeforeValidator(_one_or_several), Field(min_length=1)] = ("tcp://127.0.0.1:7400",)
    """Addresses of all replicas of the replay service, in order. Used with ``replay.kind: shared``."""
    population: Address = "tcp://127.0.0.1:7500"
    """Address of the controller of the population. Used with ``population.strategy: pbt``."""
    metrics_host: str = "127.0.0.1"
    """Network interface of the metrics and health endpoint."""
    metrics_port: Port = 0
    """Port of the metrics and health endpoint; 0 takes a free port."""


class ParamserverSettings(Section):
    """One parameter server process: the root, or a replica below it."""

    upstream: Address | None = None
    """Address of the parent. With a parent this process is a replica: it follows the parent's weights and passes index leases on. Null: it
    is the root, to which the learner publishes."""
    replicas: NonNegativeInt = 0
    """Number of replicas that ``herd train`` starts on this machine below the root. Actors are assigned to them round-robin. 0: actors ask
    the root."""
    index: NonNegativeInt = 0
    """Number of this process in the run directory. ``herd train`` gives 0 to the root and 1, 2, ... to its replicas."""
    host: str = "127.0.0.1"
    """Network interface that the request socket listens on."""
    port: Port = 0
    """Port of the request socket. 0 takes a free port. Every replica that ``herd train`` starts has a free port."""
    index_lease_seconds: PositiveFloat = 30.0
    """A leased actor index is free again when its holder has been silent this long. Used by the root."""
    max_version_bytes: PositiveInt | None = None
    """Largest version of the weights that is accepted, over all slices. Null: the size of the network's weights, or 256 MiB with a torso of
    your own."""
    metrics_host: str = "127.0.0.1"
    """Network interface of the metrics and health endpoint."""
    metrics_port: Port = 0
    """Port of the metrics and health endpoint; 0 takes a free port."""

    @model_validator(mode="after")
    def _is_not_its_own_parent(self) -> Self:
        if self.port and self.upstream == tcp_address(self.host, self.port):
            raise ValueError("upstream is this parameter server's own address; set its parent's address, or null for the root")
        return self


class BanditSettings(Section):
    """The bandit service: a temperature per episode by Bandits Vote (DiCE, appendix A; Table 5 for the defaults).

    ``loss.kind`` and ``loss.ablation`` decide whether a run has one, and whether it learns.
    """

    bandits: Annotated[int, Field(ge=1, le=100)] = 7
    """Number of bandits per agent and task (M)."""
    modes: tuple[Literal["argmax", "random"], ...] = Field(default=("argmax", "random"), min_length=1)
    """Each bandit draws one of these modes at its start. ``argmax`` proposes the tiles of highest score. ``random`` samples tiles by their
    scores."""
    learning_rates: tuple[Fraction, ...] = Field(default=(0.05, 0.1, 0.2), min_length=1)
    """Each bandit draws one of these learning rates at its start."""
    tile_widths: tuple[NonNegativeInt, ...] = Field(default=(1, 2, 3), min_length=1)
    """Each bandit draws one of these at its start: the number of neighbours on either side over which a tile's value is averaged."""
    candidates: PositiveInt = 7
    """Number of candidates that each bandit proposes at each draw (d). At most the number of tiles."""
    ucb_scale: NonNegativeFloat = 1.0
    """Weight c of the bonus for tiles that were seldom tried. The paper uses 1.0 for ensembles that see a few hundred games each. An
    ensemble that sees 24,000 games needs about 6 for the same bonus."""
    ensembles: Literal["task", "actor", "environment"] = "task"
    """Games that one ensemble of bandits sees. ``task``: all games of an agent on that task. ``actor``: those of one actor.
    ``environment``: those of one environment, as in the paper, whose actors play one game at a time (algorithms 1 and 3)."""
    max_ensembles: Annotated[int, Field(ge=1, le=16_384)] = 1024
    """Largest number of ensembles over all agents and tasks. Each takes about 6 kB in memory and on disk. Beyond it, environments share
    ensembles by their numbers."""
    min_inverse_temperature: NonNegativeFloat = 0.0
    """Lower bound of 1/tau; 0 is the uniform policy."""
    max_inverse_temperature: PositiveFloat = 50.0
    """Upper bound of 1/tau."""
    tile_accuracy: PositiveFloat = 0.1
    """Width of a tile in x = log(1 + 1/tau). The paper does not give it; 0.1 makes 39 tiles."""
    snapshot_interval_seconds: PositiveFloat = 30.0
    """Seconds between two writes of the state to RUN/bandit/state.json. One more is made at the end. A killed service continues from the
    last one."""
    history_interval_seconds: PositiveFloat = 60.0
    """Seconds between two records in RUN/bandit/history.jsonl, which ``herd plot --bandit`` draws. A record takes about 1.4 kB per task."""
    host: str = "127.0.0.1"
    """Network interface that the request socket listens on."""
    port: Port = 0
    """Port of the request socket. 0 takes a free port."""
    metrics_host: str = "127.0.0.1"
    """Network interface of the metrics and health endpoint."""
    metrics_port: Port = 0
    """Port of the metrics and health endpoint; 0 takes a free port."""

    @model_validator(mode="after")
    def _every_bandit_has_enough_tiles(self) -> Self:
        span = math.log1p(self.max_inverse_temperature) - math.log1p(self.min_inverse_temperature)
        num_tiles = math.floor(span / self.tile_accuracy)
        if num_tiles < self.candidates:
            raise ValueError(
                f"candidates {self.candidates} must not exceed the number of tiles, {max(num_tiles, 0)}, which follows from tile_accuracy, "
                "min_inverse_temperature and max_inverse_temperature"
            )
        if num_tiles > MAX_TILES:
            raise ValueError(f"tile_accuracy gives {num_tiles} tiles; at most {MAX_TILES} are allowed, because each adds metrics")
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


class RunSettings(Section):
    """All settings of a run. An experiment file sets some of them."""

    name: str = Field(default="run", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    """Names the run directory and labels metrics."""
    seed: NonNegativeInt = 1
    """Random seed. Environments, exploration and initial parameters derive their seeds from it."""
    run_dir: Path | None = None
    """Folder of the run's files. Null: ``runs/<name>``."""
    resume: bool = False
    """Continue from the newest checkpoint in ``run_dir``."""
    agents: Annotated[int, Field(ge=1, le=MAX_AGENTS)] = 1
    """Number of agents that learn in this run. Each has its own learner; all share parameter servers, bandit and actors. Agents are
    numbered from 0."""
    sweep: Sweep = Field(default={})
    """Settings that differ between agents. A list of values, such as ``optimizer.learning_rate: [3.0e-4, 6.0e-4]``, gives each agent
    another combination; the last key varies fastest, and there must be as many agents as combinations. A rule lets each agent draw its
    value, such as ``{draw: log_uniform, low: 5.0e-6, high: 5.0e-3}``, ``{draw: uniform, low: 10, high: 100}`` or ``{draw: choice, values:
    [0.1, 0.001]}``. Only settings of ``loss`` and ``optimizer`` that actors do not read are allowed. ``population`` says whether the values
    change during the run."""
    population: PopulationSettings = PopulationSettings()
    env: EnvSettings = default_suite()
    network: NetworkSettings = NetworkSettings()
    algorithm: AlgorithmSettings = AlgorithmSettings()
    loss: LossSettings = ImpalaSettings()
    value_scaling: ValueScalingSettings = NoValueScaling()
    auxiliary: AuxiliarySettings = NoAuxiliarySettings()
    optimizer: OptimizerSettings = RMSPropSettings()
    replay: ReplaySettings = NoReplay()
    actor: ActorSettings = ActorSettings()
    learner: LearnerSettings = LearnerSettings()
    paramserver: ParamserverSettings = ParamserverSettings()
    bandit: BanditSettings = BanditSettings()
    replay_service: ReplayServiceSettings = ReplayServiceSettings()
    inference: InferenceSettings = InferenceSettings()
    evaluation: EvaluationSettings = EvaluationSettings()
    logging: LoggingSettings = LoggingSettings()
    security: SecuritySettings = SecuritySettings()
    stop: StopSettings = StopSettings()

    @property
    def directory(self) -> Path:
        """The run directory."""
        return self.run_dir if self.run_dir is not None else Path("runs") / self.name

    @property
    def agent_directories(self) -> list[Path]:
        """The directory of each agent, in order."""
        return [self.agent_directory(agent) for agent in range(self.agents)]

    @property
    def actors_per_agent(self) -> int:
        """Least number of the actors started by ``herd train`` that play for each agent. Some agents may have one more."""
        return max(1, self.actor.count // self.agents)

    def agent_directory(self, agent: int) -> Path:
        """The directory for the files of an agent's learner: the run directory itself if there is only one agent."""
        return self.directory if self.agents == 1 else self.directory / AGENTS / str(agent)

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
    def bounds_policy_lag(self) -> bool:
        """Whether a setting limits the policy lag of the unrolls that are trained on."""
        return self.learner.max_policy_lag is not None or self.actor.credit == "before_unroll" or self.actor.lockstep

    def works_ahead(self, device_type: str) -> bool:
        """Whether a learner on ``device_type``, ``cpu`` or ``cuda``, prepares the next batch while the device computes."""
        if self.learner.work_ahead == "auto":
            return device_type == "cuda" and not self.bounds_policy_lag
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

    @model_validator(mode="before")
    @classmethod
    def _shape_rewards_as_the_suite(cls, values: Any) -> Any:
        return with_reward_shaping(values)

    @model_validator(mode="after")
    def _agents_are_of_this_run(self) -> Self:
        for key, agent in (("learner.agent", self.learner.agent), ("actor.agent", self.actor.agent)):
            if agent is not None and agent >= self.agents:
                raise ValueError(f"{key} {agent} must be below agents, which is {self.agents}")
        if self.actor.agent is not None and self.actor.index is None:
            raise ValueError("actor.agent and actor.index are leased together: set both or neither")
        return self

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
        if self.algorithm.burn_in and not self.network.state_size:
            raise ValueError("algorithm.burn_in needs network.core lstm: without a recurrent core there is no state to update")
        if self.loss.needs_whole_batch and self.learner.micro_batch_size is not None:
            raise ValueError("loss.advantage_normalization batch needs learner.micro_batch_size null: it normalises over the whole batch")
        if (objection := self.env.objection(self.network)) is not None:
            raise ValueError(objection)
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
        if isinstance(self.value_scaling, PopArtSettings):
            if self.value_scaling.replayed and self.replay.kind == "none":
                raise ValueError("value_scaling.replayed needs a replay.kind other than none")
            if not self.value_scaling.replayed and not self.replay.train_online:
                raise ValueError("replay.train_online false needs value_scaling.replayed true: PopArt's statistics would never change")
        if self.num_online_unrolls < 1:
            raise ValueError("replay.fraction is too large: a batch of learner.batch_size needs at least one online unroll")
        if self.replay.fraction and self.num_replayed_unrolls < 1:
            raise ValueError(
                f"replay.fraction {self.replay.fraction:g} of learner.batch_size {self.learner.batch_size} is not a whole number of unrolls"
            )

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
