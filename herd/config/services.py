"""The settings of each service's processes: one section for each program, and where ``herd train`` places them.

Processes of a service read the same settings; who a process is, and whom it connects to, is its `herd.service.identity.Identity`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field, model_validator

from herd.components.settings import Fraction, NonNegativeFloat, NonNegativeInt, Port, PositiveFloat, PositiveInt, Section
from herd.components.suites import environment_spec, suite_of
from herd.config.addresses import ServerName, ServiceName

if TYPE_CHECKING:
    from herd.components.suites import SuiteSettings

MAX_TILES = 400
"""Largest number of tiles of a bandit: ten times the default; 1/tau is then resolved to 1 %."""
MAX_REPLICAS = 256
MIN_MEMORY_BYTES = 64 << 20
OPEN_SHARE = 0.25
"""Largest share of ``memory_bytes`` for episodes that have not ended. By default, Atari needs an eighth."""


class ActorSettings(Section):
    """One actor process."""

    count: PositiveInt = 2
    """Number of actor processes that ``herd train`` starts on this machine."""
    environments: PositiveInt = 32
    """Number of environments that are stepped together (E)."""
    environment_threads: PositiveInt = 1
    """Number of threads that step the environments. Two processes with one thread each are faster than one process with two."""
    inference_threads: PositiveInt = 1
    """Number of torch threads for the policy."""
    pin_to_cpu: bool = False
    """Pin each actor to one CPU, round-robin by index. Use it on a dedicated machine with one actor per CPU: environments and policy
    alternate, and on the same CPU they share its cache."""
    inference_precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Precision of the policy's network. ``auto``: bfloat16 if the CPU is faster with it. The difference does no harm, because the learner
    corrects for it with the logits that actions were sampled from."""
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
    """Longest wait for the parameter server at the start of an unroll, in seconds. After this time, the actor continues with the weights it
    has, and does not wait again until the server answers."""
    links: PositiveInt = 2
    """Number of shards that an actor connects to. It sends each message to a shard that has granted credit."""
    bandit_timeout_seconds: PositiveFloat = 1.0
    """Longest wait for a temperature at the start of a game, in seconds. After this time, the game is played at the last temperature of its
    environment, and later games do not wait until the service answers again."""
    inference: Literal["local", "remote"] = "local"
    """Where actions are chosen. ``local``: in the actor itself. ``remote``: by the inference service, for many actors at once. The actor
    then plays its environments in two halves, so that one half is answered while the other is stepped."""
    inference_timeout_seconds: PositiveFloat = 2.0
    """Time without an answer after which an actor reports that the inference service is down. It goes on waiting for it."""


class LearnerSettings(Section):
    """The learner process."""

    batch_size: PositiveInt = 32
    """Number of unrolls per update, over all shards, including replayed ones (B)."""
    sample_reuse: PositiveInt = 1
    """Number of consecutive updates on each batch (DiCE: 2). Frames and credit count once."""
    queue_batches: PositiveInt = 2
    """Number of batches that may be queued or in flight. It limits both the queue of unrolls and the credit that actors get."""
    max_policy_lag: NonNegativeInt | None = None
    """Largest policy lag in learner updates. An unroll that began under an older policy is dropped as ``stale``. Null: no limit."""
    credit_expires_seconds: PositiveFloat = 60.0
    """If an actor is silent this long, or keeps credit unused while others wait for it, its credit goes to another actor."""
    shards: PositiveInt = 1
    """Number of processes that learn in lockstep (N), one per GPU, each on its share of every batch. ``herd train`` starts them on this
    machine; elsewhere torchrun does."""
    shard_timeout_seconds: PositiveFloat = 10.0
    """A shard that is silent this long is considered dead. The others end, and all start again from the newest checkpoint."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device that the learner trains on. ``auto``: a GPU if there is one."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Precision of convolutions and matrix products. Parameters, losses and statistics stay float32. ``auto``: bfloat16 if the processor is
    faster with it."""
    compile: Literal["off", "default", "reduce-overhead", "max-autotune"] = "off"
    """Mode of ``torch.compile`` for network and losses. It needs a C++ compiler, and the first update then takes up to a minute.
    ``reduce-overhead`` and ``max-autotune`` replay CUDA graphs on a GPU. On an H100 ``reduce-overhead`` makes updates of small networks and
    batches 2.2 times as fast, and those of the deep network 1.25 times. A compiled LSTM runs row by row instead of by the library's fused
    kernel."""
    work_ahead: Literal["auto", "on", "off"] = "auto"
    """Assemble the next batch and copy it to the device while the device computes. Such a batch is one update older. ``auto``: on a GPU,
    unless the policy lag is bounded (``max_policy_lag``, ``actor.credit``, ``actor.lockstep``)."""
    micro_batch_size: PositiveInt | None = None
    """Number of unrolls per forward and backward pass. Gradients are summed, so the update is the same. Null: chosen by network and
    device."""
    threads: PositiveInt | None = None
    """Number of torch threads. Null: one for each CPU that the process may use."""
    health_interval_updates: PositiveInt = 200
    """Number of updates between two measurements of learning diagnostics (explained variance, effective sample size, KL divergence of an
    update, dead units). A measurement costs as much as 1.4 updates, so the default costs less than 1%."""
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


class ParamserverSettings(Section):
    """The parameter servers: the root, and replicas below it."""

    replicas: NonNegativeInt = 0
    """Number of replicas that ``herd train`` starts on this machine below the root. Actors are assigned to them round-robin. 0: actors ask
    the root."""
    index_lease_seconds: PositiveFloat = 30.0
    """A leased actor index is released when its holder has been silent this long. Used by the root."""
    max_version_bytes: PositiveInt = 256 << 20
    """Largest version of the weights that is accepted, over all slices, in bytes. The default has room for 64 million parameters."""


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


class ReplayServiceSettings(Section):
    """One process of the replay service. A run has it if ``replay.kind`` is ``shared``."""

    replicas: Annotated[int, Field(ge=1, le=MAX_REPLICAS)] = 1
    """Number of processes that share the episodes, by a hash of each episode. ``herd train`` starts them on this machine. After a change of
    this number replay starts empty."""
    memory_bytes: Annotated[PositiveInt, Field(ge=MIN_MEMORY_BYTES)] = 8 << 30
    """Largest memory for episodes in each process, in bytes. Beyond it the oldest complete ones are dropped, regardless of
    ``replay.capacity_agent_steps``. Episodes that have not ended may take a quarter of it; beyond that, the one that has been silent
    longest is discarded. A million agent steps of Breakout take about 0.1 GB, of most Atari games 0.2 to 1 GB."""
    snapshot_interval_seconds: PositiveFloat = 300.0
    """Seconds between two writes of complete episodes to RUN/replay. One more, with open episodes, is made at the end. A killed service
    continues from the last one. Only new episodes are written."""


class InferenceSettings(Section):
    """One process of the inference service, which acts for many actors at once. A run has it if ``actor.inference`` is ``remote``."""

    replicas: Annotated[int, Field(ge=1, le=MAX_REPLICAS)] = 1
    """Number of processes that ``herd train`` starts on this machine. Actors are assigned to them round-robin."""
    batch_size: PositiveInt = 64
    """Number of environments in a batch. A larger request is a batch of its own."""
    deadline_milliseconds: NonNegativeFloat = 2.0
    """Longest time that a request waits for others to fill a batch. On Atari the default costs no time, because the actor steps its other
    games meanwhile, which takes 5 ms. 0: a batch contains what arrived while the previous one was computed."""
    max_environments: PositiveInt = 8192
    """Number of environments, of all agents together, whose frame stacks and recurrent states are kept. Each takes 30 kB on Atari. Beyond
    it, the states of those that were silent longest are dropped, and their actors send them again."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device that the service computes on. ``auto``: a GPU if there is one."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Precision of convolutions and matrix products. ``auto``: bfloat16 if the processor is faster with it."""
    threads: PositiveInt = 1
    """Number of torch threads on a CPU."""


class EvaluationSettings(Section):
    """The evaluator: at intervals, it freezes the newest weights and plays whole games of every task with them."""

    interval_seconds: PositiveFloat | None = None
    """Seconds between the starts of two evaluations. If one takes longer, the next starts immediately. Null: the run has no evaluator."""
    episodes: PositiveInt = 10
    """Number of games of each task in an evaluation."""
    protocol: Literal["dopamine", "impala-atari", "impala-dmlab", "machado", "saber"] | None = None
    """Protocol of the run's scores (docs/evaluation.md), which sets the environments of the evaluator. ``dopamine``, ``machado`` and
    ``saber`` also set those of training, unless a run file says otherwise. The number of games stays ``episodes``. Null: evaluated as
    trained."""
    final: bool = False
    """``herd train`` evaluates the last checkpoint before it exits, if the run reached its stop condition."""


class PopulationSettings(Section):
    """Population based training: the agents of a run are members of a population.

    ``sweep`` says which settings differ between members, and their first values.
    """

    strategy: Literal["none", "pbt"] = "none"
    """``none``: every agent keeps its values, so the run is a sweep. ``pbt``: a member that has played enough games may copy a better one,
    and its numeric settings are perturbed."""
    fitness: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")] = "human_normalised"
    """``human_normalised``: mean over tasks of the human-normalised score, each at most 1. ``episode_return``: mean raw return. Both are
    taken over the newest ``fitness_episodes`` games. Any other name is looked up in the newest point of metrics.jsonl. Greater is better.
    """
    fitness_episodes: PositiveInt = 5000
    """Number of games, over all tasks, that the fitness covers and that a member plays between two decisions."""
    burn_in_env_frames: NonNegativeInt = 20_000_000
    """Env frames that a member must train on before the first decision about it."""
    threshold: NonNegativeFloat = 0.05
    """A member is copied if its fitness is greater by more than this, in units of the fitness."""
    perturb_probability: Fraction = 0.33
    """Probability that a numeric setting is perturbed at a decision, with or without a copy."""
    perturb_factor: Annotated[float, Field(gt=1.0, allow_inf_nan=False)] = 1.2
    """A perturbed setting is multiplied or divided by this, with equal probability."""
    report_interval_seconds: PositiveFloat = 1.0
    """Seconds between two reports of a learner, and so the longest time before a decision takes effect."""

    def objection(self, env: SuiteSettings) -> str | None:
        """Return why the fitness cannot be computed on the tasks of ``env``, in one sentence; None if it can.

        Raises:
            UnknownTaskError: a task does not exist or cannot be played.
        """
        if self.strategy == "none" or self.fitness != "human_normalised":
            return None
        references = suite_of(env).reference_scores()
        missing = [name for name in environment_spec(env).task_names if name not in references]
        if not missing:
            return None
        return (
            f"population.fitness human_normalised: there are no human scores for {', '.join(missing[:5])}; use episode_return, or a number "
            "of metrics.jsonl"
        )


class PlacementSettings(Section):
    """Where the processes of ``herd train`` listen (docs/two-machines.md). A process started by hand has options for this."""

    host: str = "127.0.0.1"
    """Network interface of all sockets. Set it if other machines join the run (docs/two-machines.md)."""
    ports: dict[ServerName, Port] = Field(default={})
    """Fixed port of a service's first process, such as ``{learner: 7100, paramserver: 7200}``. All other ports are chosen automatically."""
    metrics_host: str = "127.0.0.1"
    """Network interface of all metrics and health endpoints."""
    metrics_ports: dict[ServiceName, Port] = Field(default={})
    """Fixed metrics port of a service's first process, such as ``{learner: 9402}``. All other ports are chosen automatically."""
