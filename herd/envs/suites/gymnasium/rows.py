"""One environment of gymnasium, with its observations as the parts of a row: a frame, a vector, words.

Shapes: H W C one frame, D numbers of a vector, L words.
"""

from __future__ import annotations

import re
from functools import lru_cache
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any, SupportsFloat, cast

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import batch_space, iterate
from gymnasium.wrappers import AddRenderObservation, TimeLimit

from herd.config.user_code import USER_CODE, UserCodeError, failure, load_user_code
from herd.envs.api import UnknownTaskError
from herd.envs.instructions import MAX_WORDS, NUM_BUCKETS, hash_instruction
from herd.envs.reading import FRAME, VECTOR, WORDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from herd.envs.suites.gymnasium.settings import GymnasiumSettings

_UNDRAWN = "cannot be drawn: it must take render_mode, keep it as an attribute, and return a picture from render() (docs/extending.md)"
_LUMINANCE = np.array([0.299, 0.587, 0.114], np.float32)
"""Weights of red, green and blue (ITU-R BT.601), as in the Atari suite's emulator."""
_hashed = lru_cache(maxsize=1024)(hash_instruction)


class Rows(gymnasium.Wrapper[dict[str, Any], int, Any, int]):
    """The environment with observations {part: array} and actions 0..A-1, and with repeated actions."""

    def __init__(self, environment: gymnasium.Env[Any, Any], settings: GymnasiumSettings, task: str) -> None:
        super().__init__(environment)
        self._action_repeat = settings.action_repeat
        actions = environment.action_space
        if not isinstance(actions, spaces.Discrete):
            raise UnknownTaskError(f"env.tasks {task}: its actions are {actions}; only discrete actions (Discrete) are supported")
        self.first_action = int(actions.start)
        """The environment's own number of action 0."""
        self.num_actions = int(actions.n)
        self._parts = _parts(environment.observation_space, settings, task)
        self.shapes = {part: tuple(space.shape or ()) for part, (space, _) in self._parts.items()}
        # Gymnasium's own spaces do not exactly have the declared types of these attributes.
        self.action_space = cast("spaces.Space[int]", spaces.Discrete(self.num_actions))
        self.observation_space = spaces.Dict({part: space for part, (space, _) in self._parts.items()})

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
        """See `gymnasium.Env.reset`."""
        observation, _ = self.env.reset(seed=seed, options=options)
        return self.parts(observation), {}

    def step(self, action: int) -> tuple[dict[str, Any], SupportsFloat, bool, bool, dict[str, Any]]:
        """Repeat ``action`` until the game ends; return the sum of the rewards and the last observation."""
        total = 0.0
        for _ in range(self._action_repeat):
            observation, reward, terminated, truncated, _ = self.env.step(self.first_action + int(action))
            total += float(reward)
            if terminated or truncated:
                break
        # The info dictionary is not used, and collecting it is slow in a vector environment.
        return self.parts(observation), total, bool(terminated), bool(truncated), {}

    def parts(self, observation: Any) -> dict[str, NDArray[Any]]:
        """Return the parts of one observation of the environment."""
        return {part: convert(observation) for part, (_, convert) in self._parts.items()}


class RowsReader:
    """Reads observations of the original environment; a `Reader`."""

    def __init__(self, settings: GymnasiumSettings, task: str) -> None:
        """Create the environment to read its spaces, and close it.

        Raises:
            UnknownTaskError: see `make_rows`.
        """
        self._rows = make_rows(settings, task)
        self._rows.close()
        self._space = self._rows.env.observation_space
        self.first_action = self._rows.first_action

    def rows(self, observations: Any, num_environments: int) -> list[Any]:
        """See `Reader`: the result of a vector environment of gymnasium, or a list."""
        rows = observations if isinstance(observations, list) else list(iterate(batch_space(self._space, num_environments), observations))
        if len(rows) != num_environments:
            raise ValueError(f"expected observations of {num_environments} environments, not of {len(rows)}")
        return rows

    def parts(self, observation: Any) -> dict[str, NDArray[Any]]:
        """See `Reader`."""
        # Not `contains`, because environments that leave their own bounds can also be trained on and played.
        refusal = f"expected an observation of {self._space}, not {_told(observation)}"
        try:
            parts = self._rows.parts(observation)
        except Exception as error:  # any error of a space about an invalid observation
            raise ValueError(refusal) from error
        if {name: part.shape for name, part in parts.items()} != self._rows.shapes:
            raise ValueError(refusal)
        return parts


def _told(observation: Any) -> str:
    if isinstance(observation, np.ndarray):
        return f"an array of {observation.dtype} {observation.shape}"
    return f"a {type(observation).__name__}"


def make_rows(settings: GymnasiumSettings, task: str) -> Rows:
    """Create one environment of ``task``.

    Raises:
        UnknownTaskError: there is no such environment, it cannot be created, or its spaces cannot be learned in; one line.
    """
    try:
        environment = _made(settings, task)
    except UserCodeError as error:
        raise UnknownTaskError(str(error)) from error
    except UnknownTaskError:
        raise
    except (gymnasium.error.NameNotFound, gymnasium.error.NamespaceNotFound) as error:
        elsewhere = "an id that another package registers is module:id, such as minigrid:MiniGrid-Empty-5x5-v0"
        raise UnknownTaskError(f"env.tasks {task}: {' '.join(str(error).split())}; {elsewhere}") from error
    except gymnasium.error.Error as error:
        raise UnknownTaskError(f"env.tasks {task}: {' '.join(str(error).split())}") from error
    except Exception as error:
        raise UnknownTaskError(f"env.tasks {task}: cannot be created: {failure(error)}") from error
    if not isinstance(environment, gymnasium.Env):
        raise UnknownTaskError(f"env.tasks {task}: must return a gymnasium.Env, not {type(environment).__name__}")
    return Rows(environment, settings, task)


def _made(settings: GymnasiumSettings, task: str) -> gymnasium.Env[Any, Any]:
    kwargs = {"render_mode": "rgb_array", **settings.kwargs} if settings.render else settings.kwargs
    if re.fullmatch(USER_CODE, task):
        make = load_user_code(task, "env.tasks")
        if settings.render and not _takes_render_mode(make):
            raise UnknownTaskError(f"env.tasks {task}: {_UNDRAWN}")
        environment: gymnasium.Env[Any, Any] = make(**kwargs)
        if settings.max_episode_steps is not None:
            environment = TimeLimit(environment, settings.max_episode_steps)
    else:
        # The checker looks for mistakes at every step, which costs a quarter of CartPole's speed.
        environment = gymnasium.make(task, max_episode_steps=settings.max_episode_steps, disable_env_checker=True, **kwargs)
    if settings.render:
        if environment.render_mode is None:
            raise UnknownTaskError(f"env.tasks {task}: {_UNDRAWN}")
        environment = AddRenderObservation(environment, render_only=True)
    return environment


def _takes_render_mode(make: Callable[..., object]) -> bool:
    parameters = signature(make).parameters
    return "render_mode" in parameters or any(each.kind is Parameter.VAR_KEYWORD for each in parameters.values())


_Part = tuple[spaces.Space[Any], "Callable[[Any], NDArray[Any]]"]


def _parts(space: spaces.Space[Any], settings: GymnasiumSettings, task: str) -> dict[str, _Part]:
    """Return the parts of an observation: the space of each, and the function that extracts it."""
    by_key = settings.image_key is not None or settings.vector_keys or settings.instruction_key is not None
    if by_key and not settings.render:
        return _keyed_parts(space, settings, task)
    if _is_picture(space):
        return {FRAME: _picture(space, settings)}
    if isinstance(space, spaces.Dict | spaces.Tuple) and not settings.flatten:
        entries = f" with the entries {', '.join(space)}" if isinstance(space, spaces.Dict) else ""
        keys = "choose some with env.image_key, env.vector_keys and env.instruction_key, or " if entries else ""
        raise UnknownTaskError(
            f"env.tasks {task}: its observations are a {type(space).__name__}{entries}: {keys}set env.flatten to make them one vector"
        )
    return {VECTOR: _vector(space, task)}


def _keyed_parts(space: spaces.Space[Any], settings: GymnasiumSettings, task: str) -> dict[str, _Part]:
    if not isinstance(space, spaces.Dict):
        raise UnknownTaskError(f"env.tasks {task}: its observations are a {type(space).__name__}, which has no entries to choose by key")
    chosen = {"env.image_key": settings.image_key, "env.instruction_key": settings.instruction_key}
    for setting, key in [*chosen.items(), *(("env.vector_keys", key) for key in settings.vector_keys)]:
        if key is not None and key not in space.spaces:
            raise UnknownTaskError(f"{setting}: the observations of {task} have no entry {key}; they have {', '.join(space)}")
    parts: dict[str, _Part] = {}
    if settings.image_key is not None:
        if not _is_picture(space[settings.image_key]):
            raise UnknownTaskError(f"env.image_key: {settings.image_key} of {task} is {space[settings.image_key]}, not a picture of uint8")
        parts[FRAME] = _of_entry(settings.image_key, _picture(space[settings.image_key], settings))
    if settings.vector_keys:
        entries = [_of_entry(key, _vector(space[key], task)) for key in settings.vector_keys]
        size = sum(int(np.prod(entry.shape or ())) for entry, _ in entries)
        parts[VECTOR] = (_numbers(size), lambda observation: np.concatenate([convert(observation) for _, convert in entries]))
    if settings.instruction_key is not None:
        words = spaces.Box(0, NUM_BUCKETS - 1, (MAX_WORDS,), np.int64)
        parts[WORDS] = _of_entry(settings.instruction_key, (words, lambda text: np.array(_hashed(str(text)), np.int64)))
    if parts.keys() == {WORDS}:
        raise UnknownTaskError("env.instruction_key alone is not an observation of the game: add env.image_key or env.vector_keys")
    return parts


def _of_entry(key: str, part: _Part) -> _Part:
    space, convert = part
    return space, lambda observation: convert(observation[key])


def _is_picture(space: spaces.Space[Any]) -> bool:
    return isinstance(space, spaces.Box) and space.dtype == np.uint8 and len(space.shape) in {2, 3}


def _picture(space: spaces.Space[Any], settings: GymnasiumSettings) -> _Part:
    """Convert [H, W] or [H, W, C] to [H', W', C']."""
    assert space.shape is not None
    height, width, *channels = space.shape
    gray = settings.grayscale and channels == [3]
    size = (settings.frame_height or height, settings.frame_width or width)
    shape = (*size, 1 if gray else channels[0] if channels else 1)
    resized = size != (height, width)

    def convert(picture: NDArray[Any]) -> NDArray[Any]:
        if gray:
            picture = (picture @ _LUMINANCE + 0.5).astype(np.uint8)
        if resized:
            import cv2  # noqa: PLC0415  only who resizes needs it

            picture = cv2.resize(picture, (size[1], size[0]), interpolation=cv2.INTER_AREA)
        return picture.reshape(shape)

    return spaces.Box(0, 255, shape, np.uint8), convert


def _vector(space: spaces.Space[Any], task: str) -> _Part:
    """Convert anything that gymnasium can flatten to numbers; a Discrete becomes one-hot."""
    try:
        size = spaces.flatdim(space)
    except (NotImplementedError, ValueError) as error:  # an unknown kind of space, or one without a fixed size
        raise UnknownTaskError(f"env.tasks {task}: observations of {space} cannot be converted to a vector") from error
    return _numbers(size), lambda value: np.asarray(spaces.flatten(space, value), np.float32)


def _numbers(size: int) -> spaces.Box:
    return spaces.Box(-np.inf, np.inf, (size,), np.float32)
