"""DeepMind Lab: DMLab-30 and its other levels, in first person, with instructions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from herd.components.suites import Suite, require_known
from herd.components.suites.dmlab.levels import ACTIONS, ALL_LEVELS, OTHERS, dmlab30, reference_scores
from herd.components.suites.dmlab.settings import DMLabSettings
from herd.components.suites.reading import MAX_WORDS
from herd.contract.spaces import EnvSpec, discrete

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from herd.components.suites.api import BatchedEnvironment


def _spec(settings: DMLabSettings) -> EnvSpec:
    named = [task for task in settings.tasks if "/" not in task]
    require_known(named, [ALL_LEVELS, *dmlab30(), *OTHERS], "DeepMind Lab level")
    return EnvSpec(
        task_names=settings.tasks,
        frame_shape=(settings.frame_height, settings.frame_width, 3),
        frame_stack=1,
        actions=discrete(len(ACTIONS[settings.action_set])),
        action_repeat=settings.action_repeat,
        instruction_length=MAX_WORDS,
    )


def _make(
    settings: DMLabSettings, spec: EnvSpec, *, num_environments: int, first_slot: int, seed: int, num_threads: int
) -> BatchedEnvironment:
    from herd.components.suites.batch import SoloEnvironments  # noqa: PLC0415  only processes that play need it

    maker = f"{__name__}.level:make_level"
    return SoloEnvironments(
        settings,
        spec,
        maker,
        num_environments=num_environments,
        first_slot=first_slot,
        seed=seed,
        num_threads=num_threads,
        standby=settings.prepare_games,
    )


def _lacks(settings: DMLabSettings) -> str | None:
    showing = [task for task in settings.tasks if task in dmlab30() and dmlab30()[task].needs_dataset]
    if not showing or settings.dataset_path == "dummy":
        return None
    if settings.dataset_path is None:
        return f"env.dataset_path: {showing[0]} needs a folder of photographs, or dummy for plain pictures (docs/suites.md)"
    if not Path(settings.dataset_path).is_dir():
        return f"env.dataset_path {settings.dataset_path}: no such folder, and {showing[0]} needs its photographs"
    return None


def _protocol(env: Mapping[str, Any]) -> Sequence[str]:
    says = [f"{env['action_set']} actions", "held out" if env["hold_out"] else "as in training"]
    if env["dataset_path"] == "dummy":
        says.append("dummy pictures")
    if env["level_seeds"] is not None:
        says.append(f"{env['level_seeds']} games a level")
    return says


def _on_screen(settings: DMLabSettings) -> DMLabSettings:
    return settings.model_copy(update={"frame_height": 240, "frame_width": 320})


PART = Suite(
    kind="dmlab",
    settings=DMLabSettings,
    spec=_spec,
    make=_make,
    packages=("deepmind_lab",),
    install="no wheel of it exists; build it, or the actor's image with it (docs/suites.md)",
    lacks=_lacks,
    reference_scores=reference_scores,
    protocol=_protocol,
    on_screen=_on_screen,
)
