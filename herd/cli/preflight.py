"""What is knowable of a run before its first process starts: whether this machine can run it at all.

Needs are counted low, so that whatever is refused would certainly have failed: memory that settings promise to queues, batches, replay and
networks, without activations and emulators.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, NamedTuple

from herd.cli.errors import CommandError
from herd.cli.requirements import require
from herd.config.settings import TORSOS
from herd.topology import COMPONENTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from herd.config.contract import EnvSpec
    from herd.config.settings import RunSettings

SURELY_LARGE_ENOUGH = 84
"""Pixels of height and width that every torso of Herd's own was made for."""
MOST_PROCESSES_PER_CPU = 64
"""Each takes two to ten CPU-seconds to start: with more, the last one starts after minutes."""
LEAST_PROCESSES = 64
"""That any machine may run."""
MANY_ACTORS_PER_CPU = 4
"""Beyond it a word at the start: they take turns, and every unroll grows older meanwhile."""
TASKS_PER_PROCESS = 8
"""The main thread, those of ZeroMQ and metrics, and of torch or the emulators."""
TORCH_PROCESS_BYTES, PROCESS_BYTES = 160 << 20, 32 << 20
"""Of a process of its own, without what it shares with others: torch's heap after its import; Python with ZeroMQ and numpy."""
CHECKPOINTS_AT_ONCE = 2
"""On disk while the next one is written, whatever ``learner.keep_checkpoints`` is."""
RUN_FILES_BYTES = 16 << 20
"""Logs, curve and pictures of a short run."""
REPLAYED_STEP_BYTES = 64
"""Of an agent step that the replay service keeps: packed frames of a simple game."""


class Cause(NamedTuple):
    """A setting that a need grows with."""

    times_usual: float
    """Its value, in units of the default."""
    setting: str
    """Key and value."""


class Need(NamedTuple):
    """Bytes that a run needs for one thing."""

    num_bytes: int
    what: str
    causes: tuple[Cause, ...]


def check_before_start(settings: RunSettings) -> list[str]:
    """Check what can be known without starting anything; returns sentences to say at the start.

    Raises:
        CommandError: one line that names the setting or the resource.

    """
    check_installed(settings)
    check_descriptors()
    check_processes(settings)
    check_device(settings)
    check_torso(settings)
    uneven = check_dealing(settings)
    check_memory(settings)
    check_disk(settings)
    check_loss(settings)
    return [note for note in (uneven, crowded(settings), lonely(settings)) if note is not None]


def check_installed(settings: RunSettings) -> None:
    """Check that the processes will find their packages and data.

    Raises:
        CommandError: names the missing ones.

    """
    compression = {"lz4": ["lz4"], "zstd": ["zstandard"], "none": []}[settings.actor.compression]
    from herd.envs.make import what_is_missing  # noqa: PLC0415  numpy loads; --help does without

    require("torch", "safetensors", *compression)
    if (missing := what_is_missing(settings.env)) is not None:
        raise CommandError(missing)
    from herd.tracking.trackers import what_is_missing as viewers_lack  # noqa: PLC0415  --help does without

    if (missing := viewers_lack(settings.logging)) is not None:
        raise CommandError(missing)


def check_descriptors() -> None:
    """Check that this process and its children may open enough files.

    Raises:
        CommandError: they may not.

    """
    from herd.service.startup import BadInputError, ensure_descriptors  # noqa: PLC0415  --help does without

    try:
        ensure_descriptors()
    except BadInputError as error:
        raise CommandError(str(error)) from error


def check_processes(settings: RunSettings) -> None:
    """Check that the machine has room for so many processes and threads.

    Raises:
        CommandError: it has not.

    """
    from herd.service.hardware import usable_cpus  # noqa: PLC0415  as above
    from herd.service.limits import available_tasks  # noqa: PLC0415

    counts = {component.name: component.count(settings) for component in COMPONENTS}
    number, cpus = sum(counts.values()), usable_cpus()
    most = max(LEAST_PROCESSES, MOST_PROCESSES_PER_CPU * cpus)
    threads = {
        "actor.inference_threads": settings.actor.inference_threads,
        "actor.environment_threads": settings.actor.environment_threads,
        "learner.threads": settings.learner.threads or 1,
    }
    for key, wanted in threads.items():
        if wanted > most:
            raise CommandError(f"{key} {_shown(wanted)}: a process may have {most} of these threads on {_cpus(cpus)}")
    name = max(counts, key=lambda name: counts[name])
    key = {"actor": "actor.count", "learner": "learner.shards", "paramserver-replica": "paramserver.replicas"}.get(name, name)
    if name == "learner" and settings.agents > 1:
        key = "agents"
    of = {"actor.count": settings.actor.count, "agents": settings.agents}.get(key, counts[name])
    if number > most:
        raise CommandError(
            f"{key} {_shown(of)}: the run would have {_shown(number)} processes, and herd train starts at most {most} on {_cpus(cpus)}"
        )
    extra = threads["actor.inference_threads"] - 1 + threads["actor.environment_threads"] - 1
    tasks = number * TASKS_PER_PROCESS + settings.actor.count * extra + threads["learner.threads"] - 1
    left = available_tasks()
    if left is not None and tasks > left:
        raise CommandError(
            f"{key} {_shown(of)}: {number} processes need about {_shown(tasks)} tasks, and {left} more may be started here "
            "(ulimit -u, or the container's pids limit)"
        )


def check_device(settings: RunSettings) -> None:
    """Check that the device is there, and the compiler that torch.compile calls on a CPU. Torch is loaded only to ask for a GPU.

    Raises:
        CommandError: it is not.

    """
    learner = settings.learner
    if learner.device == "cuda":
        import torch  # noqa: PLC0415  only where a GPU is asked for

        if not torch.cuda.is_available():
            why = "this build of torch has no CUDA" if torch.version.cuda is None else "torch finds no usable GPU or driver"
            raise CommandError(f"learner.device cuda: {why} (torch {torch.__version__}); set learner.device auto or cpu")
        if learner.shards > (number := torch.cuda.device_count()):
            raise CommandError(f"learner.shards {learner.shards}: each shard needs a GPU of its own, and there are {number} here")
    elif learner.compile != "off" and learner.device == "cpu" and shutil.which(compiler := os.environ.get("CXX", "g++")) is None:
        raise CommandError(f"learner.compile {learner.compile}: needs a C++ compiler on a CPU, and there is no {compiler} here")


def check_torso(settings: RunSettings) -> None:
    """Check that the torso can be built for these observations; torch is loaded only where that is not known without it.

    Raises:
        CommandError: it does not fit them, or a user's own is not as it should be.

    """
    from herd.envs.make import environment_spec  # noqa: PLC0415  numpy loads; --help does without

    spec = environment_spec(settings.env)
    if settings.network.torso == "mlp" or (settings.network.torso in TORSOS and min(spec.frame_shape[:2]) >= SURELY_LARGE_ENOUGH):
        return
    check_memory(settings)  # before anything of this size is made
    from herd.networks.torsos import build_torso  # noqa: PLC0415

    try:
        build_torso(spec, settings.network)
    except ValueError as error:
        raise CommandError(str(error)) from error


def check_loss(settings: RunSettings) -> None:
    """Check that a loss of the user's own can be imported and takes its options.

    Raises:
        CommandError: it cannot.

    """
    if settings.loss.kind != "custom":
        return
    from herd.config.user_code import UserCodeError  # noqa: PLC0415
    from herd.learning.losses.custom import imported_loss  # noqa: PLC0415  torch loads

    try:
        imported_loss(settings.loss)
    except UserCodeError as error:
        raise CommandError(str(error)) from error


def check_dealing(settings: RunSettings) -> str | None:
    """Check that every task has an environment; returns a sentence where some tasks have one more than others.

    Raises:
        CommandError: there are more tasks than environments.

    """
    from herd.envs.make import environment_spec  # noqa: PLC0415  numpy loads; --help does without

    num_tasks, own = len(environment_spec(settings.env).task_names), settings.actor
    num_slots = settings.actors_per_agent * own.environments
    each, more = divmod(num_slots, num_tasks)
    if each and not more:
        return None
    dealt = f"{num_tasks} tasks are dealt to {num_slots} environments (actor.count {own.count} x actor.environments {own.environments}"
    dealt += f", of {settings.agents} agents)" if settings.agents > 1 else ")"
    if not each:
        raise CommandError(f"env.tasks: {dealt}: {num_tasks - more} would never be played; raise actor.environments to {num_tasks}")
    return (
        f"{dealt}: {more} of them are played {each + 1} times, the others {each}; a multiple of {num_tasks} in each actor makes them even"
    )


def crowded(settings: RunSettings) -> str | None:
    """A sentence where many actors share each CPU."""
    from herd.service.hardware import usable_cpus  # noqa: PLC0415  --help does without

    cpus = usable_cpus()
    if settings.actor.count <= MANY_ACTORS_PER_CPU * cpus:
        return None
    return f"actor.count {settings.actor.count}: these actors share {_cpus(cpus)}; one for each CPU is usually fastest"


def lonely(settings: RunSettings) -> str | None:
    """A sentence where there are fewer actors than agents."""
    if settings.actor.count >= settings.agents:
        return None
    return f"actor.count {settings.actor.count} for {settings.agents} agents: those without an actor wait until another agent ends"


def check_memory(settings: RunSettings) -> None:
    """Check that the run fits into the memory that is available.

    Raises:
        CommandError: it does not; names the largest need.

    """
    from herd.service.limits import available_memory  # noqa: PLC0415  --help does without

    _check_room(memory_needs(settings), available_memory(), "of memory", "here")


def check_disk(settings: RunSettings) -> None:
    """Check that the disk of the run directory has room for its checkpoints.

    Raises:
        CommandError: it has not.

    """
    folder = settings.directory.absolute()
    while not folder.is_dir():
        if folder == folder.parent:
            return
        folder = folder.parent
    try:
        free = shutil.disk_usage(folder).free
    except OSError as error:
        raise CommandError(f"run_dir {settings.directory}: {error.strerror or error}") from None
    _check_room(disk_needs(settings), free, "of disk", f"in {folder}")


def memory_needs(settings: RunSettings) -> list[Need]:
    """What the settings promise, at least, over all processes of the run."""
    from herd.envs.make import environment_spec  # noqa: PLC0415  numpy loads; --help does without
    from herd.wire.run_layout import run_layout  # noqa: PLC0415

    spec = environment_spec(settings.env)
    unroll = run_layout(settings, spec).bytes_per_unroll
    agents, learner, actor = settings.agents, settings.learner, settings.actor
    length = Cause(settings.algorithm.unroll_length / 20, f"algorithm.unroll_length {_shown(settings.algorithm.unroll_length)}")
    batch = Cause(learner.batch_size / 32, f"learner.batch_size {_shown(learner.batch_size)}")
    actors = Cause(actor.count / 2, f"actor.count {_shown(actor.count)}")
    population = Cause(agents, f"agents {agents}")
    common = (length, *_frames(spec), population)
    queue = settings.credit_capacity * learner.shards
    queued = Cause(learner.queue_batches / 2, f"learner.queue_batches {_shown(learner.queue_batches)}")
    played = Cause(actor.environments / 32, f"actor.environments {_shown(actor.environments)}")
    processes = {component: component.count(settings) for component in COMPONENTS}
    weights, copies = _weights_bytes(settings, spec), 2 * agents * learner.shards + actor.count  # parameters and gradients; the policy
    needs = [
        Need(
            sum(number * (TORCH_PROCESS_BYTES if part.service.has_torch else PROCESS_BYTES) for part, number in processes.items()),
            f"{sum(processes.values())} processes",
            (actors, population, Cause(learner.shards, f"learner.shards {learner.shards}")),
        ),
        Need(agents * queue * unroll, f"a queue of {_shown(queue)} unrolls of {shown_bytes(unroll)}", (queued, batch, *common)),
        Need(agents * learner.batch_size * unroll, f"a batch of unrolls of {shown_bytes(unroll)}", (batch, *common)),
        Need(
            actor.count * actor.environments * unroll,
            f"an unroll of {shown_bytes(unroll)} for each environment",
            (played, actors, length, *_frames(spec)),
        ),
        Need(
            copies * weights,
            f"{_shown(copies)} copies of a network of {shown_bytes(weights)}",
            (*_network(settings), *_frames(spec), actors, population),
        ),
    ]
    if settings.replay.kind == "uniform":
        number = settings.replay.capacity_unrolls
        capacity = Cause(number / 10_000, f"replay.capacity_unrolls {_shown(number)}")
        needs.append(Need(agents * number * unroll, f"replay of unrolls of {shown_bytes(unroll)}", (capacity, *common)))
    if settings.replay.kind == "shared":
        steps, service = settings.replay.capacity_agent_steps, settings.replay_service
        kept = min(steps * REPLAYED_STEP_BYTES, service.replicas * service.memory_bytes)
        needs.append(Need(kept, "replayed episodes", (Cause(steps / 1e6, f"replay.capacity_agent_steps {_shown(steps)}"),)))
    return needs


def disk_needs(settings: RunSettings) -> list[Need]:
    """What the run writes, at least: two checkpoints of parameters and one moment of each, logs and curve."""
    from herd.envs.make import environment_spec  # noqa: PLC0415  numpy loads; --help does without

    spec = environment_spec(settings.env)
    checkpoint = 2 * _weights_bytes(settings, spec)
    text = f"{CHECKPOINTS_AT_ONCE} checkpoints of {shown_bytes(checkpoint)}"
    causes = (*_network(settings), *_frames(spec), Cause(settings.agents, f"agents {settings.agents}"))
    return [
        Need(settings.agents * CHECKPOINTS_AT_ONCE * checkpoint, text, causes),
        Need(RUN_FILES_BYTES, "logs and curve", (Cause(1, f"run_dir {settings.directory}"),)),
    ]


def _frames(spec: EnvSpec) -> tuple[Cause, Cause]:
    height, width, _ = spec.frame_shape
    size = Cause(height * width / SURELY_LARGE_ENOUGH**2, f"frames of {height} x {width} pixels")
    return size, Cause(spec.frame_stack / 4, f"env.frame_stack {_shown(spec.frame_stack)}")


def _network(settings: RunSettings) -> tuple[Cause, ...]:
    network = settings.network
    core = (Cause((network.core_size / 256) ** 2, f"network.core_size {_shown(network.core_size)}"),) if network.core == "lstm" else ()
    wide = Cause(network.width_multiplier, f"network.width_multiplier {_shown(network.width_multiplier)}")
    return (*core, wide, Cause(0, f"network.torso {network.torso}"))


def shown_bytes(number: float) -> str:
    """``170 kB``, ``95 TB``."""
    for size, unit in ((1e18, "EB"), (1e15, "PB"), (1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if number >= size:
            value = number / size
            return f"{value:.3g} {unit}" if value < 1000 else f"{value:.1e} {unit}"
    return f"{number:.0f} B"


def _weights_bytes(settings: RunSettings, spec: EnvSpec) -> int:
    """Of a network, about; 0 of a user's own torso, of which nothing is known."""
    from herd.config.network_size import LEAST_BYTES, MARGIN, max_weights_bytes  # noqa: PLC0415

    if ":" in settings.network.torso:
        return 0
    own = settings.paramserver.model_copy(update={"max_version_bytes": None})
    most = max_weights_bytes(settings.model_copy(update={"paramserver": own}), spec)
    return max(0, int((most - LEAST_BYTES) / MARGIN))


def _check_room(needs: Sequence[Need], available: int, of: str, where: str) -> None:
    """The line begins with the setting that is furthest from its default, of those that the largest need grows with."""
    needed, largest = sum(need.num_bytes for need in needs), max(needs)
    if needed > available:
        raise CommandError(
            f"{max(largest.causes).setting}: {shown_bytes(largest.num_bytes)} {of} for {largest.what}; "
            f"the run needs {shown_bytes(needed)} at least, and {shown_bytes(available)} are free {where}"
        )


def _shown(number: int) -> str:
    return f"{number:,}" if number < 10**9 else f"{number:.3g}"


def _cpus(number: int) -> str:
    return f"{number} CPU{'s' if number != 1 else ''}"
