"""Atari 2600: the games of Atari-57 and the rest of ale-py's, with the switches of IMPALA's Table G.1."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from herd.components.suites import Suite, require_known
from herd.components.suites.atari.settings import AtariSettings, atari_scores
from herd.contract.spaces import EnvSpec, discrete

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from herd.components.suites.api import BatchedEnvironment

NUM_FULL_ACTIONS = 18
"""Number of actions of the console: nine joystick positions, with and without the button."""
SCREEN_HEIGHT, SCREEN_WIDTH = 210, 160


def _spec(settings: AtariSettings) -> EnvSpec:
    table = atari_scores()
    require_known(settings.tasks, table, "Atari game", _plain_name)
    minimal = table[settings.tasks[0]].minimal_actions
    assert minimal is not None
    return EnvSpec(
        task_names=settings.tasks,
        frame_shape=(settings.frame_height, settings.frame_width, 1 if settings.grayscale else 3),
        frame_stack=settings.frame_stack,
        actions=discrete(minimal if settings.action_set == "minimal" else NUM_FULL_ACTIONS),
        action_repeat=settings.action_repeat,
        instruction_length=0,
    )


def _make(
    settings: AtariSettings, spec: EnvSpec, *, num_environments: int, first_slot: int, seed: int, num_threads: int
) -> BatchedEnvironment:
    from herd.components.suites.atari.environments import AtariEnvironments  # noqa: PLC0415  only processes that play need the emulator

    return AtariEnvironments(settings, spec, num_environments=num_environments, first_slot=first_slot, seed=seed, num_threads=num_threads)


def _plain_name(task: str) -> str:
    """Gymnasium's ids as plain names: ``ALE/MsPacman-v5`` and ``MsPacmanNoFrameskip-v4`` become ``ms_pacman``."""
    name = re.sub(r"(NoFrameskip|Deterministic)?-v\d+$", "", task.removeprefix("ALE/"))
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[\s-]+", "_", name).lower()


def _inspect() -> tuple[bool, str]:
    """Return the games of the package ale-py, which contains them."""
    found = find_spec("ale_py")
    roms = len(list((Path(found.origin).parent / "roms").glob("*.bin"))) if found is not None and found.origin is not None else 0
    return roms > 0, f"{roms} games"


def _protocol(env: Mapping[str, Any]) -> Sequence[str]:
    starts = f"1..{env['noop_max']} no-op frames" if env["noop_max"] else "no no-ops"
    return starts, f"sticky {env['sticky_action_probability']:g}", f"cap {env['max_episode_frames']:,} frames"


def _action_names(settings: AtariSettings) -> Sequence[str] | None:
    if settings.action_set == "full" or find_spec("ale_py") is None:
        return None
    from herd.components.suites.atari.start import minimal_actions  # noqa: PLC0415  as in _make

    return minimal_actions(settings.tasks[0])


def _on_screen(settings: AtariSettings) -> AtariSettings:
    # The emulator draws all random numbers from the seed, so it plays the same game again.
    screen = {"grayscale": False, "frame_height": SCREEN_HEIGHT, "frame_width": SCREEN_WIDTH, "frame_stack": 1}
    return settings.model_copy(update=screen)


PART = Suite(
    kind="atari",
    settings=AtariSettings,
    spec=_spec,
    make=_make,
    packages=("ale_py", "gymnasium"),
    install="pip install 'herd-rl[actor]'",
    inspect=_inspect,
    presets=Path(__file__).parent / "presets",
    reference_scores=atari_scores,
    protocol=_protocol,
    on_screen=_on_screen,
    action_names=_action_names,
)
