"""Checks before the first process of a run starts, so that a run that would certainly fail is refused in one line."""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from herd.cli.options import CommandError
from herd.components.user_code import UserCodeError
from herd.topology import COMPONENTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from herd.config.run import RunSettings

MAX_PROCESSES_PER_CPU = 64
"""Each process takes two to ten CPU-seconds to start: with more of them, the last one starts after minutes."""
MANY_ACTORS_PER_CPU = 4
"""With more actors per CPU there is a warning, because they share the CPU and unrolls become older."""
RUN_FILES_BYTES = 32 << 20
"""Logs, curve, pictures and two checkpoints of a short run with a small network."""
# Package -> the extra of herd-rl that installs it.
_EXTRAS = {
    "torch": "learner",
    "lz4": "learner",
    "zstandard": "learner",
    "matplotlib": "plot",
    "imageio": "plot",
    "jinja2": "plot",
    "kubernetes": "kube",
    "onnx": "export",
    "onnxruntime": "export",
    "onnxscript": "export",
    "optuna": "optuna",
}


def require(*packages: str) -> None:
    """Check, without importing them, that all ``packages`` are installed.

    Raises:
        CommandError: some are missing; the line names them and the command that installs them.

    """
    missing = [package for package in packages if find_spec(package) is None]
    if missing:
        extras = ",".join(dict.fromkeys(_EXTRAS[package] for package in missing))
        raise CommandError(f"needs {', '.join(missing)}: pip install 'herd-rl[{extras}]'")


def check_before_start(settings: RunSettings, *, plays_tasks: bool = True, asked: Callable[[], bool] = lambda: False) -> list[str]:
    """Run all checks; returns warnings to print at the start.

    ``plays_tasks``: whether own environments are tried out, and own torsos, losses and hooks checked, in another process. In a debugger
    nothing is tried out, and everything is in this process, because the user's breakpoints would stop the trial instead of the training.
    ``asked``: whether to end early.

    Raises:
        CommandError: one line that names the setting or the resource.

    """
    check_installed(settings)
    check_descriptors()
    check_processes(settings)
    check_device(settings)
    check_memory(settings)
    check_disk(settings)
    is_own = "custom" in {settings.network.torso.kind, settings.network.core.kind, settings.loss.kind} or settings.logging.hooks
    if plays_tasks and is_own:
        check_user_code_apart(settings, asked)
    else:
        check_user_code(settings)
    uneven = check_dealing(settings)
    tried = check_tasks(settings, asked) if plays_tasks else ()
    return [*tried, *(note for note in (uneven, crowded(settings), lonely(settings), outlasted(settings)) if note is not None)]


def check_installed(settings: RunSettings) -> None:
    """Check that the packages and data of all processes are installed; CommandError names what is missing."""
    from herd.components.suites import what_is_missing  # noqa: PLC0415  loads numpy; not needed for --help
    from herd.components.trackers.publishing import what_is_missing as viewers_lack  # noqa: PLC0415

    require("torch", *{"lz4": ["lz4"], "zstd": ["zstandard"], "none": []}[settings.actor.compression])
    missing = what_is_missing(settings.env) or viewers_lack(settings.logging.model_copy(update={"hooks": {}}))
    if missing is not None:
        raise CommandError(missing)


def check_tasks(settings: RunSettings, asked: Callable[[], bool] = lambda: False) -> list[str]:
    """Check that a user's own environments can be played; returns a line about each, and what the user may not expect of them.

    Raises:
        CommandError: one of them raises an error, or returns something that cannot be learned from.

    """
    from herd.components.suites.checking import NOTE, PROBLEM, QUICK, SUMMARY, learn_spaces  # noqa: PLC0415  loads numpy

    told = []
    for finding in learn_spaces(settings.env, QUICK, asked=asked):
        if finding.level == PROBLEM:
            raise CommandError(f"env.tasks {finding.what}")
        if finding.level in {NOTE, SUMMARY}:
            told.append("; ".join(filter(None, (finding.what, finding.advice))))
    return told


def check_descriptors() -> None:
    """Check that this process and its children may open enough files; CommandError if the limit is too low."""
    from herd.service.startup import BadInputError, ensure_descriptors  # noqa: PLC0415  not needed for --help

    try:
        ensure_descriptors()
    except BadInputError as error:
        raise CommandError(str(error)) from error


def check_processes(settings: RunSettings) -> None:
    """Check that the machine is not asked for an absurd number of processes; CommandError names the setting."""
    from herd.service.host import usable_cpus  # noqa: PLC0415  not needed for --help

    counts = {component.name: component.count(settings) for component in COMPONENTS}
    cpus = usable_cpus()
    most = MAX_PROCESSES_PER_CPU * cpus
    if (number := sum(counts.values())) > most:
        largest = max(counts, key=lambda name: counts[name])
        raise CommandError(
            f"{largest} x {_shown(counts[largest])}: the run would have {_shown(number)} processes, but herd train starts at most {most} "
            f"on {_cpus(cpus)} (actor.count, agents, learner.shards)"
        )


def check_device(settings: RunSettings) -> None:
    """Check that the device exists, and the compiler that torch.compile needs on a CPU; CommandError if not.

    Torch is loaded only to find a GPU.
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


def check_memory(settings: RunSettings) -> None:
    """Check that the buffers of unrolls fit into memory: they are allocated at the start. CommandError if they do not.

    Networks, activations and emulators need more, which is not known here.
    """
    from herd.components.suites import environment_spec  # noqa: PLC0415  loads numpy; not needed for --help
    from herd.config.run_contract import run_layout  # noqa: PLC0415
    from herd.service.host import available_memory  # noqa: PLC0415

    learner, actor = settings.learner, settings.actor
    replayed = settings.replay.capacity_unrolls if settings.replay.kind == "local" else 0
    unrolls = (
        settings.agents * (settings.credit_capacity * learner.shards + learner.batch_size + replayed) + actor.count * actor.environments
    )
    size = run_layout(settings, environment_spec(settings.env)).bytes_per_unroll
    if (needed := unrolls * size) > (available := available_memory()):
        raise CommandError(
            f"queues, batches and replay need {needed / 2**30:,.1f} GiB of memory for {_shown(unrolls)} unrolls of {_shown(size)} bytes, "
            f"but {available / 2**30:,.1f} GiB are free (learner.batch_size, learner.queue_batches, replay.capacity_unrolls, "
            "algorithm.unroll_length, frames)"
        )


def check_disk(settings: RunSettings) -> None:
    """Check that the disk of the run directory has some space; CommandError if not."""
    folder = settings.directory.absolute()
    while not folder.is_dir() and folder != folder.parent:
        folder = folder.parent
    try:
        free = shutil.disk_usage(folder).free
    except OSError as error:
        raise CommandError(f"run_dir {settings.directory}: {error.strerror or error}") from None
    if free < RUN_FILES_BYTES:
        raise CommandError(f"run_dir {settings.directory}: only {free >> 20} MiB are free in {folder}; a run needs {RUN_FILES_BYTES >> 20}")


def check_user_code(settings: RunSettings) -> None:
    """Check that the torso fits the observations, and that a user's own torso, loss and hooks can be imported and have the interface.

    Torch is loaded only where this cannot be decided without it.

    Raises:
        CommandError: they do not, or a population's fitness cannot be computed on these tasks.

    """
    from herd.components.suites import environment_spec  # noqa: PLC0415  loads numpy; not needed for --help

    if (objection := settings.population.objection(settings.env)) is not None:
        raise CommandError(objection)
    spec, network = environment_spec(settings.env), settings.network
    from herd.components.trackers.publishing import what_is_missing  # noqa: PLC0415

    try:
        if (missing := what_is_missing(settings.logging)) is not None:
            raise CommandError(missing)
        if "custom" in {network.torso.kind, network.core.kind}:
            from herd.agent import build_agent  # noqa: PLC0415

            build_agent(settings, spec)
        settings.loss.check()
    except (UserCodeError, ValueError) as error:
        raise CommandError(str(error)) from error


def check_user_code_apart(settings: RunSettings, asked: Callable[[], bool]) -> None:
    """As `check_user_code`, in a process of its own; CommandError also if that ends or hangs."""
    from herd.components.suites import environment_spec  # noqa: PLC0415  loads numpy; not needed for --help
    from herd.components.user_code import START_SECONDS, call_apart  # noqa: PLC0415

    values = (settings.model_dump_json(), environment_spec(settings.env).as_json())
    answer = call_apart(f"{__name__}:objections", values, 3 * START_SECONDS, asked)
    if (objection := next(iter(answer.values), answer.problem and f"own torso, core, loss or hook: {answer.problem}")) is not None:
        raise CommandError(objection)


def objections(settings_json: str, spaces: dict[str, Any]) -> Iterator[str]:
    """Report, in the process of `check_user_code_apart`, what is wrong."""
    from herd.components.suites import remember_spaces  # noqa: PLC0415  as above
    from herd.config.run import RunSettings  # noqa: PLC0415
    from herd.contract.spaces import EnvSpec  # noqa: PLC0415

    settings = RunSettings.model_validate_json(settings_json)
    remember_spaces(settings.env, EnvSpec.from_json(spaces))
    try:
        check_user_code(settings)
    except CommandError as error:
        yield str(error)


def check_dealing(settings: RunSettings) -> str | None:
    """Check that every task has an environment; returns a warning if some tasks have one more than others.

    Raises:
        CommandError: there are more tasks than environments.

    """
    from herd.components.suites import environment_spec  # noqa: PLC0415  loads numpy; not needed for --help

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
    from herd.service.host import usable_cpus  # noqa: PLC0415  not needed for --help

    cpus = usable_cpus()
    if settings.actor.count <= MANY_ACTORS_PER_CPU * cpus:
        return None
    return f"actor.count {settings.actor.count}: these actors share {_cpus(cpus)}; one actor per CPU is usually fastest"


def lonely(settings: RunSettings) -> str | None:
    """Return a warning if there are fewer actors than agents."""
    if settings.actor.count >= settings.agents:
        return None
    return f"actor.count {settings.actor.count} is below agents {settings.agents}: agents without an actor wait until another agent ends"


def outlasted(settings: RunSettings) -> str | None:
    """Return a warning if the learning rate is 0 before the run ends."""
    end, stop = settings.optimizer.last_env_frame, settings.stop.env_frames
    if end is None or stop is None or stop <= end:
        return None
    return f"optimizer.schedule_env_frames {_shown(end)}: from there to stop.env_frames {_shown(stop)} the learning rate is 0"


def _shown(number: int) -> str:
    return f"{number:,}" if number < 10**9 else f"{number:.3g}"


def _cpus(number: int) -> str:
    return f"{number} CPU{'s' if number != 1 else ''}"
