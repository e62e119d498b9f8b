"""Checks before the first process of a run starts: whether this machine can run it.

Requirements are lower bounds, so that every refused run would certainly have failed. The memory, for example, is that of queues, batches,
replay and networks, without activations and emulators.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, NamedTuple

from herd.bench.plan_sheet import shown_bytes
from herd.cli.errors import CommandError
from herd.cli.requirements import require
from herd.config.settings import TORSOS
from herd.topology import COMPONENTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from herd.config.settings import RunSettings
    from herd.contract.spaces import EnvSpec

SURELY_LARGE_ENOUGH = 84
"""Height and width in pixels that are large enough for all of Herd's own torsos."""
MOST_PROCESSES_PER_CPU = 64
"""Each process takes two to ten CPU-seconds to start: with more of them, the last one starts after minutes."""
LEAST_PROCESSES = 64
"""Number of processes that is allowed on any machine."""
MANY_ACTORS_PER_CPU = 4
"""With more actors per CPU there is a warning, because they share the CPU and unrolls become older."""
TASKS_PER_PROCESS = 8
"""The main thread and the threads of ZeroMQ, metrics, and torch or the emulators."""
TORCH_PROCESS_BYTES, PROCESS_BYTES = 160 << 20, 32 << 20
"""Private memory of a process, without shared pages: torch's heap after its import; Python with ZeroMQ and numpy."""
CHECKPOINTS_AT_ONCE = 2
"""Checkpoints on disk while the next one is written, even with ``learner.keep_checkpoints`` 1."""
RUN_FILES_BYTES = 16 << 20
"""Logs, curve and pictures of a short run."""
REPLAYED_STEP_BYTES = 64
"""Bytes of one agent step in the replay service: packed frames of a simple game."""


class Cause(NamedTuple):
    """A setting that a requirement grows with."""

    times_usual: float
    """The setting's value in units of its default."""
    setting: str
    """Key and value."""


class Need(NamedTuple):
    """The number of bytes that a run needs for one purpose."""

    num_bytes: int
    what: str
    causes: tuple[Cause, ...]


def check_before_start(settings: RunSettings) -> list[str]:
    """Run all checks; returns warnings to print at the start.

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
    check_fitness(settings)
    return [*check_tasks(settings), *(note for note in (uneven, crowded(settings), lonely(settings)) if note is not None)]


def check_installed(settings: RunSettings) -> None:
    """Check that the packages and data of all processes are installed.

    Raises:
        CommandError: some are missing; the line names them.

    """
    compression = {"lz4": ["lz4"], "zstd": ["zstandard"], "none": []}[settings.actor.compression]
    from herd.envs.make import what_is_missing  # noqa: PLC0415  loads numpy; not needed for --help

    require("torch", "safetensors", *compression)
    if (missing := what_is_missing(settings.env)) is not None:
        raise CommandError(missing)
    from herd.tracking.trackers import what_is_missing as viewers_lack  # noqa: PLC0415  not needed for --help

    if (missing := viewers_lack(settings.logging)) is not None:
        raise CommandError(missing)


def check_tasks(settings: RunSettings) -> Sequence[str]:
    """Check that a user's own environments can be played; returns what the user may not expect of them.

    Raises:
        CommandError: one of them raises an error, or returns something that cannot be learned from.

    """
    from herd.envs.make import suite_of  # noqa: PLC0415  loads numpy; not needed for --help

    try:
        return suite_of(settings.env).try_out(settings.env)
    except ValueError as error:  # UnknownTaskError is one
        raise CommandError(str(error)) from error


def check_descriptors() -> None:
    """Check that this process and its children may open enough files.

    Raises:
        CommandError: the limit is too low.

    """
    from herd.service.startup import BadInputError, ensure_descriptors  # noqa: PLC0415  not needed for --help

    try:
        ensure_descriptors()
    except BadInputError as error:
        raise CommandError(str(error)) from error


def check_processes(settings: RunSettings) -> None:
    """Check that the machine can run this number of processes and threads.

    Raises:
        CommandError: it cannot.

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
            raise CommandError(f"{key} {_shown(wanted)}: at most {most} of these threads per process are allowed on {_cpus(cpus)}")
    name = max(counts, key=lambda name: counts[name])
    key = {"actor": "actor.count", "learner": "learner.shards", "paramserver-replica": "paramserver.replicas"}.get(name, name)
    if name == "learner" and settings.agents > 1:
        key = "agents"
    of = {"actor.count": settings.actor.count, "agents": settings.agents}.get(key, counts[name])
    if number > most:
        raise CommandError(
            f"{key} {_shown(of)}: the run would have {_shown(number)} processes, but herd train starts at most {most} on {_cpus(cpus)}"
        )
    extra = threads["actor.inference_threads"] - 1 + threads["actor.environment_threads"] - 1
    tasks = number * TASKS_PER_PROCESS + settings.actor.count * extra + threads["learner.threads"] - 1
    left = available_tasks()
    if left is not None and tasks > left:
        raise CommandError(
            f"{key} {_shown(of)}: {number} processes need about {_shown(tasks)} threads, but the limit allows only {left} more "
            "(ulimit -u, or the container's pids limit)"
        )


def check_device(settings: RunSettings) -> None:
    """Check that the device exists, and the compiler that torch.compile needs on a CPU. Torch is loaded only to find a GPU.

    Raises:
        CommandError: it does not.

    """
    learner = settings.learner
    if learner.device == "cuda":
        import torch  # noqa: PLC0415  only if the settings want a GPU

        if not torch.cuda.is_available():
            why = "this build of torch has no CUDA" if torch.version.cuda is None else "torch finds no usable GPU or driver"
            raise CommandError(f"learner.device cuda: {why} (torch {torch.__version__}); set learner.device auto or cpu")
        if learner.shards > (number := torch.cuda.device_count()):
            raise CommandError(f"learner.shards {learner.shards}: each shard needs its own GPU, and this machine has {number}")
    elif learner.compile != "off" and learner.device == "cpu" and shutil.which(compiler := os.environ.get("CXX", "g++")) is None:
        raise CommandError(f"learner.compile {learner.compile}: needs a C++ compiler on a CPU, and {compiler} is not installed")


def check_torso(settings: RunSettings) -> None:
    """Check that the torso can be built for these observations. Torch is loaded only if this cannot be decided without it.

    Raises:
        CommandError: the torso does not fit the observations, or a user's own torso does not meet the requirements.

    """
    from herd.envs.make import environment_spec  # noqa: PLC0415  loads numpy; not needed for --help

    spec = environment_spec(settings.env)
    if settings.network.torso == "mlp" or (settings.network.torso in TORSOS and min(spec.frame_shape[:2]) >= SURELY_LARGE_ENOUGH):
        return
    check_memory(settings)  # before a network of this size is built
    from herd.networks.torsos import build_torso  # noqa: PLC0415

    try:
        build_torso(spec, settings.network)
    except ValueError as error:
        raise CommandError(str(error)) from error


def check_loss(settings: RunSettings) -> None:
    """Check that a user's own loss can be imported and accepts its options.

    Raises:
        CommandError: it does not.

    """
    if settings.loss.kind != "custom":
        return
    from herd.config.user_code import UserCodeError  # noqa: PLC0415
    from herd.learning.losses.custom import imported_loss  # noqa: PLC0415  loads torch

    try:
        imported_loss(settings.loss)
    except UserCodeError as error:
        raise CommandError(str(error)) from error


def check_fitness(settings: RunSettings) -> None:
    """Check that a population can compute its fitness.

    Raises:
        CommandError: a task has no human score.

    """
    from herd.envs.make import fitness_objection  # noqa: PLC0415  loads numpy; not needed for --help

    if (objection := fitness_objection(settings)) is not None:
        raise CommandError(objection)


def check_dealing(settings: RunSettings) -> str | None:
    """Check that every task has an environment; returns a warning if some tasks have one more than others.

    Raises:
        CommandError: there are more tasks than environments.

    """
    from herd.envs.make import environment_spec  # noqa: PLC0415  loads numpy; not needed for --help

    num_tasks, own = len(environment_spec(settings.env).task_names), settings.actor
    num_slots = settings.actors_per_agent * own.environments
    each, more = divmod(num_slots, num_tasks)
    if each and not more:
        return None
    dealt = f"there are {num_tasks} tasks for {num_slots} environments (actor.count {own.count} x actor.environments {own.environments}"
    dealt += f", of {settings.agents} agents)" if settings.agents > 1 else ")"
    if not each:
        raise CommandError(
            f"env.tasks: {dealt}: {num_tasks - more} of the tasks would never be played; set actor.environments to {num_tasks} or more"
        )
    return (
        f"{dealt}: {more} tasks have {each + 1} environments, the others {each}; "
        f"with actor.environments a multiple of {num_tasks} all tasks have equally many"
    )


def crowded(settings: RunSettings) -> str | None:
    """Return a warning if many actors share each CPU."""
    from herd.service.hardware import usable_cpus  # noqa: PLC0415  not needed for --help

    cpus = usable_cpus()
    if settings.actor.count <= MANY_ACTORS_PER_CPU * cpus:
        return None
    return f"actor.count {settings.actor.count}: these actors share {_cpus(cpus)}; one actor per CPU is usually fastest"


def lonely(settings: RunSettings) -> str | None:
    """Return a warning if there are fewer actors than agents."""
    if settings.actor.count >= settings.agents:
        return None
    return f"actor.count {settings.actor.count} is below agents {settings.agents}: agents without an actor wait until another agent ends"


def check_memory(settings: RunSettings) -> None:
    """Check that the run fits into the available memory.

    Raises:
        CommandError: it does not; the line names the largest requirement.

    """
    from herd.service.limits import available_memory  # noqa: PLC0415  not needed for --help

    _check_room(memory_needs(settings), available_memory(), "of memory", "here")


def check_disk(settings: RunSettings) -> None:
    """Check that the disk of the run directory has enough space for the checkpoints.

    Raises:
        CommandError: it does not.

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
    """Return lower bounds of the memory that all processes of the run need together."""
    from herd.config.run_contract import run_layout  # noqa: PLC0415
    from herd.envs.make import environment_spec  # noqa: PLC0415  loads numpy; not needed for --help

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
    """Return lower bounds of the disk space: two checkpoints of parameters and one moment each, logs and curve."""
    from herd.envs.make import environment_spec  # noqa: PLC0415  loads numpy; not needed for --help

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


def _weights_bytes(settings: RunSettings, spec: EnvSpec) -> int:
    """Return the approximate size of a network; 0 for a user's own torso, whose size is unknown."""
    from herd.config.network_size import LEAST_BYTES, MARGIN, max_weights_bytes  # noqa: PLC0415

    if ":" in settings.network.torso:
        return 0
    own = settings.paramserver.model_copy(update={"max_version_bytes": None})
    most = max_weights_bytes(settings.model_copy(update={"paramserver": own}), spec)
    return max(0, int((most - LEAST_BYTES) / MARGIN))


def _check_room(needs: Sequence[Need], available: int, of: str, where: str) -> None:
    """Refuse a run that needs more than ``available``.

    The line begins with a setting that the largest requirement grows with: the one that is furthest above its default.
    """
    needed, largest = sum(need.num_bytes for need in needs), max(needs)
    if needed > available:
        raise CommandError(
            f"{max(largest.causes).setting}: {shown_bytes(largest.num_bytes)} {of} for {largest.what}; "
            f"the run needs at least {shown_bytes(needed)}, but {shown_bytes(available)} are free {where}"
        )


def _shown(number: int) -> str:
    return f"{number:,}" if number < 10**9 else f"{number:.3g}"


def _cpus(number: int) -> str:
    return f"{number} CPU{'s' if number != 1 else ''}"
