"""One environment of gymnasium, with its observations as the parts of a row: a frame, a vector, words.

Shapes: H W C one frame, D numbers of a vector, L words.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from contextlib import closing
from functools import lru_cache
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate
from gymnasium.wrappers import AddRenderObservation, TimeLimit

from herd.components.suites.api import BrokenEnvironmentError, UnknownTaskError
from herd.components.suites.gymnasium.actions import Actions
from herd.components.suites.gymnasium.observations import MASK_KEY, read_space, told
from herd.components.suites.gymnasium.settings import AUTO, NO_MASK, RGB_ARRAY, GymnasiumSettings
from herd.components.suites.reading import MASK
from herd.components.suites.solo import Played
from herd.components.user_code import FAILURES, USER_CODE, Contained, UserCodeError, failure, load_user_code

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

_DEFAULT_FPS, _MAX_FPS = 30.0, 1000.0
_UNDRAWN = "cannot be drawn: it must take render_mode, keep it as an attribute, and return a picture from render() (docs/extending.md)"
MASK_METHOD = "action_masks"
"""Name of the method by which environments offer a mask."""
_INFO, _METHOD = f'info["{MASK_KEY}"]', f"{MASK_METHOD}()"
"""Where masks are that are not part of observations, as users call it."""
_ABSENT = f"no {_INFO}"
"""``auto`` found no mask, so that none may come later."""
_OUTSIDE = frozenset({AUTO, NO_MASK, _ABSENT, _INFO, _METHOD})
"""Values of a game's mask that are not an entry of its observations."""
_IN_SOME_ROWS = "is in some rows and not in others: return it from reset() and from every step(), or ignore it with env.mask: none"
_log = logging.getLogger(__name__)


class Game:
    """A `SoloEnvironment` of a `gymnasium.Env`, with the actions of policies and with repeated actions."""

    def __init__(self, environment: gymnasium.Env[Any, Any], settings: GymnasiumSettings, task: str, folder: str | None = None) -> None:
        """``folder``: the working directory in which the environment wants to be called; None: it does not care."""
        self.environment = environment
        self._folder = folder
        self.task = task
        self._action_repeat = settings.action_repeat
        try:
            self.actions = Actions(environment.action_space)
        except ValueError as error:
            raise UnknownTaskError(f"env.tasks {task}: {error}") from error
        self._mask = _mask_of(environment, self.actions, settings, task)
        self._parts = read_space(_without_mask(environment.observation_space, self._mask), settings, task)
        self.shapes = {name: part.shape for name, part in self._parts.items()}
        self.has_bounds = all(part.is_bounded for part in self._parts.values())
        notes = [*(note for part in self._parts.values() for note in part.notes), *self.actions.notes]
        self.notes = [f"{task}: {note}" for note in notes]
        """What a user may not expect, one line each."""
        self._is_seeded = False
        if not _takes(environment.unwrapped.reset, "seed"):
            self.notes.append(f"{task}: its reset() takes no seed, so its games cannot be repeated")

    def reset(self, seed: int) -> dict[str, NDArray[Any]]:
        """See `SoloEnvironment`: the first game's ``seed`` is also that of the environment's own random stream for later games.

        Raises:
            BrokenEnvironmentError: the result is not that of an environment with this space.
        """
        if self._is_seeded and self._folder is None:
            observation, info = self._started(None)
        else:
            # What an environment does to its process, it does when it is made or first reset.
            with Contained(self._folder) as container:
                observation, info = self._started(None if self._is_seeded else seed)
            self._folder = container.folder
            self._is_seeded = True
        self.settle_mask(is_offered=_offers(info))
        return self._read(observation, info)

    @property
    def awaits_reset(self) -> bool:
        """Whether only `settle_mask` or the first `reset` tells if there is a mask."""
        return self._mask == AUTO

    def settle_mask(self, *, is_offered: bool) -> None:
        """Decide whether ``info`` has a mask, if that is open. From then on a row that differs in this is an error."""
        if self._mask == AUTO:
            self._mask = _INFO if is_offered else _ABSENT

    @property
    def offered_mask(self) -> str | None:
        """Where the environment offers the mask that is obeyed; None without one. It is known after the first `reset`."""
        if self._mask in {AUTO, NO_MASK, _ABSENT}:
            return None
        return self._mask if self._mask in {_INFO, _METHOD} else f"the entry {self._mask} of its observations"

    def step(self, action: Any) -> Played:
        """Repeat ``action`` until the game ends; return the sum of the rewards and the last observation.

        Raises:
            BrokenEnvironmentError: the result is not that of an environment with this space, or the reward is not one number.
        """
        total, own = 0.0, self.actions.own(action)
        for _ in range(self._action_repeat):
            if self._folder is None:
                result: Any = self.environment.step(own)
            else:
                with Contained(self._folder):
                    result = self.environment.step(own)
            if not isinstance(result, tuple) or len(result) != 5:
                said = "(observation, reward, terminated, truncated, info)"
                raise self._broken(f"step() returned {told(result)}, not {said}; is it written for gym below 0.26?")
            observation, reward, terminated, truncated, info = result
            total += self._number(reward)
            if terminated or truncated:
                break
        is_over = bool(terminated or truncated)
        return Played(self._read(observation, info, is_over=is_over), total, bool(terminated), bool(truncated))

    def close(self) -> None:
        """Close the environment; an error of its own code is logged, because nothing depends on it."""
        try:
            self.environment.close()
        except FAILURES as error:
            _warn_once(f"{self.task}: close() failed: {failure(error)}")

    def picture(self) -> NDArray[np.uint8]:
        """Draw the present state, [H, W, 3]; BrokenEnvironmentError if the environment cannot."""
        try:
            drawn: Any = self.environment.render()
        except FAILURES as error:
            raise self._broken(f"render() failed: {failure(error)}") from error
        if not isinstance(drawn, np.ndarray) or drawn.dtype != np.uint8 or drawn.ndim != 3 or drawn.shape[2] not in {3, 4}:
            raise self._broken(f"render() returned {told(drawn)}, not an array of uint8 [H, W, 3]")
        return drawn[..., :3]

    def parts(self, observation: Any) -> dict[str, NDArray[Any]]:
        """Return the parts of one observation of the environment; any error if the observation is not of its space.

        The mask is one of them if the observation contains it.
        """
        parts = {name: part.convert(observation) for name, part in self._parts.items()}
        if self._mask not in _OUTSIDE:
            parts[MASK] = self.actions.mask(observation[self._mask])
        return parts

    def _started(self, seed: int | None) -> tuple[Any, Any]:
        result: Any = self.environment.reset(seed=seed)
        if not isinstance(result, tuple) or len(result) != 2:
            raise self._broken(f"reset() returned {told(result)}, not (observation, info); is it written for gym below 0.26?")
        return result

    def _read(self, observation: Any, info: Any, *, is_over: bool = False) -> dict[str, NDArray[Any]]:
        try:
            parts = self.parts(observation)
        except Exception as error:  # any error of a space about an invalid observation
            raise self._broken(str(error) if type(error) is ValueError else f"its observation: {type(error).__name__}: {error}") from error
        if self._mask == _ABSENT:
            if _offers(info):
                raise self._broken(f"{_INFO} {_IN_SOME_ROWS}")
        elif self._mask != NO_MASK:
            parts[MASK] = self._allowed(parts, info, is_over=is_over)
        return parts

    def _allowed(self, parts: Mapping[str, NDArray[Any]], info: Any, *, is_over: bool) -> NDArray[np.bool_]:
        """Return what is allowed, [M]. No action follows the end of a game, so its mask may be missing or empty: then all are allowed."""
        try:
            if self._mask == _METHOD:
                offered = self.environment.get_wrapper_attr(MASK_METHOD)()
            else:
                offered = info[MASK_KEY] if self._mask == _INFO else parts[MASK]
            mask = self.actions.mask(offered)
            problem = "" if self.actions.leaves_a_choice(mask) else "allows no action in a game that goes on"
        except Exception as error:  # of the user's code, or about what it returned
            is_missing = self._mask == _INFO and not _offers(info)
            problem = _IN_SOME_ROWS if is_missing else f"cannot be obeyed (env.mask: none ignores it): {failure(error)}"
        if not problem:
            return mask
        if not is_over:
            raise self._broken(f"{self.offered_mask} {problem}")
        return np.ones(sum(self.actions.space.num_choices), np.bool_)

    def _number(self, reward: Any) -> float:
        if type(reward) is float:
            return reward
        array = np.asarray(reward)
        if array.size == 1 and array.dtype.kind in "biufO":
            try:
                return float(array.item())
            except TypeError:
                pass
        advice = ": return their weighted sum" if array.size > 1 and array.dtype.kind in "biuf" else ""
        raise self._broken(f"returned the reward {reward!r}, not a number{advice}")

    def _broken(self, problem: str) -> BrokenEnvironmentError:
        return BrokenEnvironmentError(" ".join(f"{self.task}: {problem}".split()))


class PlainReset(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment whose ``reset`` lacks gymnasium's ``seed`` or ``options``, which is called without them."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:  # noqa: ARG002
        """See `gymnasium.Env.reset`."""
        reset: Callable[..., Any] = self.env.reset
        result: tuple[Any, dict[str, Any]] = reset(seed=seed) if _takes(reset, "seed") else reset()
        return result


class GameReader:
    """Reads observations of the original environment; a `Reader`."""

    def __init__(self, settings: GymnasiumSettings, task: str) -> None:
        """Create the environment to read its spaces, and close it.

        Raises:
            UnknownTaskError: see `make_game`.
        """
        self._game = make_game(settings, task)
        self._game.close()
        self._space = self._game.environment.observation_space

    def rows(self, observations: Any, num_environments: int) -> list[Any]:
        """See `Reader`: the result of a vector environment of gymnasium, or a list."""
        rows = observations if isinstance(observations, list) else list(iterate(batch_space(self._space, num_environments), observations))
        if len(rows) != num_environments:
            raise ValueError(f"expected observations of {num_environments} environments, not of {len(rows)}")
        return rows

    def parts(self, observation: Any) -> dict[str, NDArray[Any]]:
        """See `Reader`."""
        # Not `contains`, because environments that leave their own bounds can also be trained on and played.
        try:
            return self._game.parts(observation)
        except Exception as error:  # any error of a space about an invalid observation
            raise ValueError(f"expected an observation of {self._space}: {error}") from error

    def mask(self, value: Any) -> NDArray[np.bool_]:
        """See `Reader`."""
        return self._game.actions.mask(value)

    def actions(self, actions: NDArray[Any]) -> list[Any]:
        """See `Reader`."""
        return [self._game.actions.own(action) for action in actions]

    def batched(self, actions: Sequence[Any]) -> Any:
        """See `Reader`: as `gymnasium.vector` batches the space of the actions."""
        space = self._game.environment.action_space
        empty: Any = create_empty_array(space, len(actions))
        return concatenate(space, actions, empty)


@lru_cache(maxsize=1024)
def _warn_once(message: str) -> None:
    """Log a warning that every environment of a batch would repeat."""
    _log.warning(message)


def mask_is_obeyed(game: Game, settings: GymnasiumSettings) -> bool:
    """Return whether the environment offers a mask that is obeyed. Whether ``info`` has one is known after a `reset` only.

    Raises:
        UnknownTaskError: the environment failed, or its mask cannot be obeyed; one line.
    """
    if game.awaits_reset:
        try:
            game.reset(seed=0)
        except BrokenEnvironmentError as error:
            raise UnknownTaskError(f"env.tasks {error}") from error
        except FAILURES as error:
            raise UnknownTaskError(f"env.tasks {game.task}: {failure(error)}") from error
    if game.offered_mask is not None and settings.action_repeat > 1:
        raise UnknownTaskError(f"env.action_repeat must be 1, as {game.offered_mask} of {game.task} may forbid what is repeated")
    return game.offered_mask is not None


def _mask_of(environment: gymnasium.Env[Any, Any], actions: Actions, settings: GymnasiumSettings, task: str) -> str:
    """Return where the mask is: an entry of the observations, _METHOD, AUTO if only ``info`` can tell, or NO_MASK."""
    space, chosen = environment.observation_space, settings.mask
    entries = space.spaces if isinstance(space, spaces.Dict) else {}
    if chosen not in {AUTO, NO_MASK}:
        if chosen not in entries:
            raise UnknownTaskError(f"env.mask: the observations of {task} have no entry {chosen}")
        if not actions.takes_masks:
            raise UnknownTaskError(f"env.mask: masks need discrete actions, but {task} has {actions.space}")
        return chosen
    if chosen == NO_MASK or not actions.takes_masks:
        return NO_MASK
    if MASK_KEY in entries:
        return MASK_KEY
    try:
        return _METHOD if callable(environment.get_wrapper_attr(MASK_METHOD)) else AUTO
    except AttributeError:
        return AUTO


def _offers(info: Any) -> bool:
    return isinstance(info, Mapping) and MASK_KEY in info


def _without_mask(space: spaces.Space[Any], mask: str) -> spaces.Space[Any]:
    """Return a space of observations without the entry that is the mask."""
    if not isinstance(space, spaces.Dict) or mask not in space.spaces:
        return space
    return spaces.Dict([(key, each) for key, each in space.spaces.items() if key != mask])  # a mapping would be sorted


def make_masked(settings: GymnasiumSettings, task: str) -> Game:
    """Create one environment of ``task``, whose actions have a mask; UnknownTaskError as from `make_game`."""
    return _settled(settings, task, is_offered=True)


def make_unmasked(settings: GymnasiumSettings, task: str) -> Game:
    """Create one environment of ``task``, whose actions have no mask; see `make_masked`."""
    return _settled(settings, task, is_offered=False)


def _settled(settings: GymnasiumSettings, task: str, *, is_offered: bool) -> Game:
    game = make_game(settings, task)
    game.settle_mask(is_offered=is_offered)
    return game


def make_game(settings: GymnasiumSettings, task: str) -> Game:
    """Create one environment of ``task``.

    Raises:
        UnknownTaskError: there is no such environment, it cannot be created, or its spaces cannot be learned in; one line.
    """
    try:
        with Contained() as container:
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
    except FAILURES as error:
        raise UnknownTaskError(f"env.tasks {task}: cannot be created: {failure(error)}") from error
    own = environment.spec.id if isinstance(environment, gymnasium.Env) and environment.spec is not None else None
    if own is not None and not re.fullmatch(USER_CODE, task) and own != task.rpartition(":")[2]:
        raise UnknownTaskError(f"env.tasks {task}: name the version, as in {own}: scores of different versions are not comparable")
    if not isinstance(environment, gymnasium.Env):
        raise UnknownTaskError(f"env.tasks {task}: must return a gymnasium.Env, not {_kind(environment)}")
    return Game(environment, settings, task, container.folder)


def _kind(value: object) -> str:
    """Return the type of a value, with its package: ``Env`` alone would not tell an environment of the old gym from one of gymnasium."""
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"


def render_fps(settings: GymnasiumSettings, task: str) -> float:
    """Return the speed at which an environment wants to be shown, ``metadata["render_fps"]``; without a valid one, 30."""
    with closing(make_game(settings, task)) as game:
        wanted = game.environment.metadata.get("render_fps")
    return float(wanted) if isinstance(wanted, int | float) and 0 < wanted <= _MAX_FPS else _DEFAULT_FPS


def _made(settings: GymnasiumSettings, task: str) -> gymnasium.Env[Any, Any]:
    kwargs = {"render_mode": RGB_ARRAY, **settings.kwargs} if settings.render else settings.kwargs
    is_drawn = settings.render or kwargs.get("render_mode") == RGB_ARRAY
    if re.fullmatch(USER_CODE, task):
        make = load_user_code(task, "env.tasks")
        if is_drawn and not _takes(make, "render_mode"):
            raise UnknownTaskError(f"env.tasks {task}: {_UNDRAWN}")
        environment: gymnasium.Env[Any, Any] = make(**kwargs)
        if isinstance(environment, gymnasium.Env) and not (_takes(environment.reset, "seed") and _takes(environment.reset, "options")):
            environment = PlainReset(environment)
        if settings.max_episode_steps is not None:
            environment = TimeLimit(environment, settings.max_episode_steps)
    else:
        # The checker looks for mistakes at every step, which costs a quarter of CartPole's speed.
        environment = gymnasium.make(task, max_episode_steps=settings.max_episode_steps, disable_env_checker=True, **kwargs)
    if is_drawn and isinstance(environment, gymnasium.Env) and environment.render_mode is None:
        raise UnknownTaskError(f"env.tasks {task}: {_UNDRAWN}")
    if settings.render:
        environment = AddRenderObservation(environment, render_only=True)
    return environment


def _takes(function: Callable[..., object], name: str) -> bool:
    parameters = signature(function).parameters
    return name in parameters or any(each.kind is Parameter.VAR_KEYWORD for each in parameters.values())
