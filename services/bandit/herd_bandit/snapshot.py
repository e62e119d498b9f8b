"""The state on disk: RUN/bandit/state.json, and the previous state next to it.

Snapshots are written atomically, and a digest detects later damage. Ensembles and the window of counted requests are in one file, so that
they always match.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from herd.files import FileError, make_folder, read_sealed, replace_file, sealed
from herd.protocols.bandit.tiling import Tiling, inverse_temperature_of
from herd.rpc.envelope import Count, Identifier
from herd_bandit.bandits_vote import BanditsVote, Mode, ensemble_of
from herd_bandit.task_bandit import CENTRAL, Groups, Tally, TaskBandit

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from herd_bandit.exchange import ClientGames, Window

DIRECTORY = "bandit"
STATE = "state.json"
PREVIOUS = "state.previous.json"


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class SavedEnsemble(_Model):
    """One ``BanditsVote``."""

    modes: tuple[Mode, ...]
    learning_rates: tuple[float, ...]
    widths: tuple[Count, ...]
    weights: tuple[tuple[float, ...], ...]
    counts: tuple[Count, ...]

    def ensemble(self, tiling: Tiling) -> BanditsVote:
        """Return the restored ensemble.

        Raises:
            ValueError: it does not fit the tiling.

        """
        return ensemble_of(
            tiling,
            modes=self.modes,
            learning_rates=self.learning_rates,
            widths=self.widths,
            weights=np.array(self.weights, np.float64),
            counts=np.array(self.counts, np.int64),
        )


class SavedGroup(SavedEnsemble):
    """The ensemble of one group."""

    group: Annotated[int, Field(ge=1)]


class SavedBandit(SavedEnsemble):
    """One ``TaskBandit``: the ensemble of group 0, and those of the others."""

    agent: Count
    task: str
    others: tuple[SavedGroup, ...]
    votes: tuple[Count, ...]
    handed_out: tuple[Count, ...]
    reports: tuple[Count, ...]
    return_sums: tuple[float, ...]
    env_frames: Annotated[int, Field(ge=0)]
    best_inverse_temperatures: tuple[float, float] | None
    """Edges of the best tile among those tried, for readers of the file; None before the first return."""

    def restore(self, tiling: Tiling, groups: Groups) -> TaskBandit:
        """Return the restored bandit, without the function that makes new groups.

        Raises:
            ValueError: it does not fit the tiling, or has too many groups.

        """
        if any(saved.group >= groups.most for saved in self.others):
            raise ValueError(f"has groups above {groups.most}")
        votes, handed_out, reports = (np.array(counts, np.int64) for counts in (self.votes, self.handed_out, self.reports))
        if not len(votes) == len(handed_out) == len(reports) == len(self.return_sums) == tiling.num_tiles:
            raise ValueError(f"tallies do not fit {tiling.num_tiles} tiles")
        tally = Tally(votes, handed_out, reports, np.array(self.return_sums, np.float64), self.env_frames)
        others = {saved.group: saved.ensemble(tiling) for saved in self.others}
        return TaskBandit(self.agent, self.task, self.ensemble(tiling), tally, groups, others=others)


class SavedClient(_Model):
    """A client of the window, with the number of the last counted game by environment slot."""

    name: Identifier
    request_id: Count
    slots: tuple[Count, ...]
    episodes: tuple[Count, ...]

    def restore(self) -> tuple[str, int, dict[int, int]]:
        """Return name, number of the newest request, and games by slot. Raises ``ValueError`` if the numbers of games and slots differ."""
        return self.name, self.request_id, dict(zip(self.slots, self.episodes, strict=True))


class SavedState(_Model):
    """The complete state of a service."""

    format: Literal["herd-bandit"]
    version: Literal[1]
    run: str
    """Name of the run, for readers of the file; a run may be resumed under another name."""
    tiling: Tiling
    groups: Groups
    bandits: tuple[SavedBandit, ...]
    clients: tuple[SavedClient, ...]


class SnapshotError(Exception):
    """A snapshot cannot be used; one line that names the file."""


class ForeignSnapshotError(SnapshotError):
    """An intact snapshot of other settings. Whether to continue without it is the operator's decision."""


class Restored(NamedTuple):
    """The contents of a snapshot."""

    path: Path
    bandits: dict[tuple[int, str], TaskBandit]
    """By (agent, task name). Task ids are not used, because they are positions in ``env.tasks``, which may grow."""
    clients: tuple[tuple[str, int, Mapping[int, int]], ...]
    """(name, newest request, environment slot -> last counted game), the client that was silent longest first."""


def save(
    directory: Path,
    *,
    run: str,
    tiling: Tiling,
    bandits: Iterable[TaskBandit],
    window: Window,
    groups: Groups = CENTRAL,
) -> None:
    """Write a snapshot; the last one becomes the previous one.

    Raises:
        SnapshotError: the disk is full or there is no permission; existing snapshots are unchanged.

    """
    content = sealed(state_text(run=run, tiling=tiling, groups=groups, bandits=bandits, window=window))
    newest, previous = directory / STATE, directory / PREVIOUS
    try:
        make_folder(directory)
        with suppress(FileNotFoundError):
            newest.replace(previous)
        replace_file(newest, content)
    except OSError as error:
        with suppress(OSError):  # for a moment there is no newest snapshot; readers handle this
            if not newest.exists():
                previous.replace(newest)
        raise SnapshotError(f"{newest}: cannot be written: {error.strerror or error}; the previous state is kept") from error


def load(directory: Path, *, tiling: Tiling, num_bandits: int, groups: Groups = CENTRAL) -> tuple[Restored | None, list[str]]:
    """Return the newest intact snapshot, or None, and a line for each damaged snapshot that was skipped.

    Raises:
        ForeignSnapshotError: an intact snapshot has other tiles, another number of bandits, or ensembles of other environments.

    """
    damaged: list[str] = []
    for path in (directory / STATE, directory / PREVIOUS):
        try:
            return _restored(path, read_sealed(path), tiling=tiling, num_bandits=num_bandits, groups=groups), damaged
        except FileNotFoundError:
            continue
        except ForeignSnapshotError:
            raise
        except (FileError, SnapshotError) as error:
            damaged.append(str(error))
    return None, damaged


def _restored(path: Path, content: bytes, *, tiling: Tiling, num_bandits: int, groups: Groups) -> Restored:
    try:
        state = SavedState.model_validate_json(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        raise SnapshotError(f"{path}: is not a bandit's state: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    _check_fit(path, state, tiling=tiling, num_bandits=num_bandits, groups=groups)
    try:
        bandits = {(saved.agent, saved.task): saved.restore(tiling, groups) for saved in state.bandits}
        return Restored(path, bandits, tuple(client.restore() for client in state.clients))
    except (ArithmeticError, ValueError) as error:
        raise SnapshotError(f"{path}: is damaged: {error}") from error


def _check_fit(path: Path, state: SavedState, *, tiling: Tiling, num_bandits: int, groups: Groups) -> None:
    if state.groups != groups:
        raise ForeignSnapshotError(
            f"{path}: made with other bandit.ensembles, bandit.max_ensembles or actor.environments; resume with those, or remove "
            f"{path.parent} to start without a state"
        )
    if state.tiling != tiling or any(len(saved.modes) != num_bandits for saved in state.bandits):
        raise ForeignSnapshotError(
            f"{path}: made with other bandit.bandits, tile_accuracy, min_inverse_temperature or max_inverse_temperature; resume with "
            f"those, or remove {path.parent} to start without a state"
        )


def state_text(*, run: str, tiling: Tiling, groups: Groups, bandits: Iterable[TaskBandit], window: Window) -> str:
    """Return the JSON that ``SavedState`` reads. Not by pydantic, which would block the service for 0.3 s with 160,000 slots."""
    state = {
        "format": "herd-bandit",
        "version": 1,
        "run": run,
        "tiling": asdict(tiling),
        "groups": groups._asdict(),
        "bandits": [_describe(bandit) for bandit in bandits],
        "clients": [_describe_client(client, number, window.reply(client)) for client, number in window.all()],
    }
    return json.dumps(state, separators=(",", ":"))


def _describe_client(client: str, number: int, games: ClientGames | None) -> dict[str, Any]:
    episodes = games.episodes if games is not None else {}
    return {"name": client, "request_id": number, "slots": list(episodes), "episodes": list(episodes.values())}


def _describe(bandit: TaskBandit) -> dict[str, Any]:
    tally = bandit.tally
    return {
        "agent": bandit.agent,
        "task": bandit.task,
        **_describe_ensemble(bandit.ensemble),
        "others": [{"group": group, **_describe_ensemble(ensemble)} for group, ensemble in bandit.others.items()],
        "votes": tally.votes.tolist(),
        "handed_out": tally.handed_out.tolist(),
        "reports": tally.reports.tolist(),
        "return_sums": tally.return_sums.tolist(),
        "env_frames": tally.env_frames,
        "best_inverse_temperatures": _best_inverse_temperatures(bandit),
    }


def _describe_ensemble(ensemble: BanditsVote) -> dict[str, Any]:
    return {
        "modes": ensemble.modes,
        "learning_rates": ensemble.learning_rates,
        "widths": ensemble.widths,
        "weights": ensemble.weights.tolist(),
        "counts": ensemble.counts.tolist(),
    }


def _best_inverse_temperatures(bandit: TaskBandit) -> tuple[float, float] | None:
    if not any(ensemble.counts.any() for ensemble in bandit.ensembles):
        return None
    tile = int(bandit.best_tiles[0])
    low, high = bandit.ensemble.tiling.edges()[tile : tile + 2]
    return inverse_temperature_of(low), inverse_temperature_of(high)
