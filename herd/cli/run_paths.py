"""Checks of run directories, made before torch is loaded, so that a mistyped directory is reported at once."""

from __future__ import annotations

import sys
import zipfile
from contextlib import suppress
from typing import TYPE_CHECKING, TypeGuard

from herd.cli.options import CommandError
from herd.config.errors import SettingsError, close_match
from herd.files import FileError
from herd.run.checkpoints import CheckpointError, read_state
from herd.run.paths import AGENTS, CONFIG, RUNS, agent_directories, checkpoint_folders, config_file, planned_agent_directories

if TYPE_CHECKING:
    from pathlib import Path

    from herd.config.run import RunSettings
    from herd.config.run_contract import Origin


def existing_run(directory: Path | str, *, fetches_checkpoints: bool = True) -> Path:
    """Check that ``directory`` holds a run; returns it. A name alone is also looked for in ``runs/``.

    A pack is unpacked. A run at an address in object storage is fetched to the user's cache, with its newest checkpoints if
    ``fetches_checkpoints``.

    Raises:
        CommandError: the directory does not exist or contains no run, or the storage cannot be used.

    """
    if isinstance(directory, str):
        from herd.run.copies import fetch_run  # noqa: PLC0415  few commands need it

        try:
            return fetch_run(directory, has_checkpoints=fetches_checkpoints)
        except FileError as error:
            raise CommandError(str(error)) from error
    if is_pack(directory):
        from herd.evaluation.pack import unpack  # noqa: PLC0415  not needed for directories

        return unpack(directory)
    if directory.is_file():
        raise CommandError(f"{directory}: neither the directory of a run nor an intact file of herd pack")
    if not directory.exists() and len(directory.parts) == 1 and config_file(RUNS / directory).is_file():
        return RUNS / directory
    if not directory.is_dir():
        siblings = [str(path) for path in sorted(directory.parent.glob("*")) if path.is_dir()]
        raise CommandError(f"{directory}: no such run{close_match(str(directory), siblings)}")
    if not config_file(directory).is_file():
        raise CommandError(f"{directory}: not a run: it contains no {CONFIG}")
    return directory


def is_pack(path: Path | str) -> TypeGuard[Path]:
    """Whether ``path`` is a file of ``herd pack``, or another zip archive."""
    return not isinstance(path, str) and path.is_file() and zipfile.is_zipfile(path)


def place_for_results(given: Path | str, run_dir: Path, name: str) -> Path:
    """Return where a result goes by default: into the run, or for a pack next to it, with its name in front."""
    return given.with_name(f"{given.stem}-{name}") if is_pack(given) else run_dir / name


def run_with_checkpoint(directory: Path | str) -> Path:
    """Check that ``directory`` holds a run with at least one checkpoint; returns it, as ``existing_run``.

    Raises:
        CommandError: as ``existing_run``, or no checkpoint yet.

    """
    directory = existing_run(directory)
    agents = agent_directories(directory)
    if len(agents) > 1:
        raise CommandError(f"{directory}: this run has {len(agents)} agents; name one of them: {directory / AGENTS / '0'}")
    if not checkpoint_folders(directory):
        raise CommandError(f"{directory}: contains no checkpoint yet")
    return directory


def check_checkpoint(directory: Path | None, run_dir: Path) -> None:
    """Check that the folder given by ``--checkpoint``, if any, exists, and that its network is that of the run in ``run_dir``.

    Raises:
        CommandError: it does not, or it is not.

    """
    if directory is None:
        return
    if not directory.is_dir():
        siblings = [str(path) for path in sorted(directory.parent.glob("*")) if path.is_dir()]
        raise CommandError(f"--checkpoint: {directory}: no such folder{close_match(str(directory), siblings)}")
    from herd.components.suites import environment_spec  # noqa: PLC0415  loads numpy; not needed for --help
    from herd.config.loading import load_settings  # noqa: PLC0415  as above
    from herd.config.run_contract import Origin  # noqa: PLC0415  as above

    try:
        settings = load_settings([config_file(run_dir)], [], {})
        objection = Origin.of(settings, environment_spec(settings.env)).objection(read_state(directory))
    except (CheckpointError, SettingsError, ValueError):
        return  # what cannot be read is refused with its reason where it is loaded
    if objection is not None:
        raise CommandError(f"--checkpoint: {directory}: {objection}")


def prepare_copy(settings: RunSettings) -> None:
    """Fetch what a resumption needs from the copy of the run, if it is ahead of the disk. Without ``resume``, refuse a used copy.

    Raises:
        CommandError: the copy cannot be used, and the run directory has no checkpoint to continue from; one line.

    """
    if settings.copy_to is None:
        return
    from herd.run.copies import AGENT_FILES, RUN_FILES, Storage, check_unused, folder_of, restore  # noqa: PLC0415  few runs have a copy

    try:
        storage = Storage(settings.copy_to)
        if not settings.resume:
            check_unused(storage)
            return
        for number, directory in enumerate(planned_agent_directories(settings)):
            folder = folder_of(directory, settings.directory)
            restore(storage, directory, AGENT_FILES, folder=folder, extra=RUN_FILES if not folder else ())
            if folder and number == 0:
                restore(storage, settings.directory, (), extra=RUN_FILES)
    except FileError as error:
        if not settings.resume or not any(map(checkpoint_folders, planned_agent_directories(settings))):
            raise CommandError(f"copy_to: {error}") from error
        print(f"herd: continuing from the disk: the copy of the run cannot be used: {error}", file=sys.stderr)


def check_resumable(settings: RunSettings) -> str:
    """Check that the run in ``settings.directory`` can be resumed with these settings, before its config.yaml is replaced.

    Returns a line that names the checkpoint. The learner repeats this check and makes more; unreadable checkpoints are left to it.

    Raises:
        CommandError: there is no such run, or every checkpoint belongs to another network, environment or run.

    """
    from herd.components.suites import environment_spec  # noqa: PLC0415  as above
    from herd.config.run_contract import Origin  # noqa: PLC0415  loads numpy with the spec; not needed for --help

    if settings.copy_to is None and not settings.directory.is_dir():
        raise CommandError(f"{settings.directory}: no such run to resume")
    origin = Origin.of(settings, environment_spec(settings.env))
    for directory in planned_agent_directories(settings):
        _check_checkpoints(directory, settings.directory / CONFIG, origin)
    newest = [next(reversed(checkpoint_folders(directory)), None) for directory in planned_agent_directories(settings)]
    found = [checkpoint for checkpoint in newest if checkpoint is not None]
    if not found:
        return f"{settings.directory} contains no checkpoint: training starts at 0 updates"
    more = f", and {len(found) - 1} more" if len(found) > 1 else ""
    return f"resumes from {found[0]} ({int(found[0].name):,} updates){more}"


def finished(settings: RunSettings) -> str | None:
    """Return a line if the run in ``settings.directory`` has reached ``stop.env_frames``, so that nothing is left to train; else None."""
    limit = settings.stop.env_frames
    if limit is None:
        return None
    frames = [_trained_frames(directory) for directory in planned_agent_directories(settings)]
    if min(frames) < limit:
        return None
    return f"{settings.directory}: finished at {min(frames):,} of {limit:,} frames: raise --stop.env_frames to train it further"


def _trained_frames(directory: Path) -> int:
    """Return the env frames of an agent's newest checkpoint; 0 if there is none that can be read."""
    for checkpoint in reversed(checkpoint_folders(directory)):
        with suppress(CheckpointError, LookupError, TypeError, ValueError):
            return int(read_state(checkpoint)["statistics"]["env_frames"])
    return 0


def _check_checkpoints(directory: Path, config: Path, origin: Origin) -> None:
    refusal: str | None = None
    for checkpoint in reversed(checkpoint_folders(directory)):
        try:
            objection = origin.objection(read_state(checkpoint))
        except CheckpointError:
            return
        if objection is None:
            return
        refusal = refusal or f"{checkpoint}: {objection}; resume with the settings of {config}"
    if refusal is not None:
        raise CommandError(refusal)
