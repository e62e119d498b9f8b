"""The format of a saved state: converts the service's memory to JSON, and validated JSON back. No I/O."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from herd.protocols.bandit.tiling import Tiling, inverse_temperature_of
from herd.rpc.envelope import Identifier
from herd_bandit.bandits_vote import BanditsVote, Mode, ensemble_of
from herd_bandit.task_bandit import Groups, Tally, TaskBandit
from herd_bandit.window import RememberedClient

if TYPE_CHECKING:
    from collections.abc import Iterable

Count = Annotated[int, Field(ge=0, le=2**63 - 1)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class SavedTiling(_Model):
    """See ``Tiling``."""

    accuracy: float
    min_inverse_temperature: float
    max_inverse_temperature: float

    def restore(self) -> Tiling:
        """Return the tiling."""
        return Tiling(self.accuracy, self.min_inverse_temperature, self.max_inverse_temperature)


class SavedGroups(_Model):
    """See ``Groups``."""

    slots_each: Annotated[int, Field(ge=1)] | None = None
    most: Annotated[int, Field(ge=1)] = 1

    def restore(self) -> Groups:
        """Return which environments share an ensemble."""
        return Groups(self.slots_each, self.most)


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
    others: tuple[SavedGroup, ...] = ()
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
    """One ``RememberedClient``: number of the last counted game by environment slot."""

    name: Identifier
    request_id: Count
    slots: tuple[Count, ...]
    episodes: tuple[Count, ...]

    def restore(self) -> RememberedClient:
        """Return the restored client.

        Raises:
            ValueError: the numbers of games and slots differ.

        """
        return RememberedClient(self.name, self.request_id, dict(zip(self.slots, self.episodes, strict=True)))


class SavedState(_Model):
    """The complete state of a service."""

    format: Literal["herd-bandit"]
    version: Literal[1]
    run: str
    """Name of the run, for readers of the file; a run may be resumed under another name."""
    tiling: SavedTiling
    groups: SavedGroups = SavedGroups()
    bandits: tuple[SavedBandit, ...]
    clients: tuple[SavedClient, ...]


def state_text(*, run: str, tiling: Tiling, groups: Groups, bandits: Iterable[TaskBandit], clients: Iterable[RememberedClient]) -> str:
    """Return the JSON that ``SavedState`` reads. Not by pydantic, which would block the service for 0.3 s with 160,000 slots."""
    state = {
        "format": "herd-bandit",
        "version": 1,
        "run": run,
        "tiling": {
            "accuracy": tiling.accuracy,
            "min_inverse_temperature": tiling.min_inverse_temperature,
            "max_inverse_temperature": tiling.max_inverse_temperature,
        },
        "groups": groups._asdict(),
        "bandits": [_describe(bandit) for bandit in bandits],
        "clients": [
            {"name": name, "request_id": request_id, "slots": list(episodes), "episodes": list(episodes.values())}
            for name, request_id, episodes in clients
        ],
    }
    return json.dumps(state, separators=(",", ":"))


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
