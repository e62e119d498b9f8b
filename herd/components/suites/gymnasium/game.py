"""One environment of gymnasium, with its observations as the parts of a row: a frame, a vector, words.

Shapes: H W C one frame, D numbers of a vector, L words.
"""

from __future__ import annotations

import logging
import re
from functools import lru_cache
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import batch_space, iterate
from gymnasium.wrappers import AddRenderObservation, TimeLimit

from herd.components.suites.api import BrokenEnvironmentError, UnknownTaskError
from herd.components.suites.gymnasium.observations import read_space, told
from herd.components.suites.gymnasium.settings import GymnasiumSettings
from herd.components.suites.solo import Played
from herd.components.user_code import USER_CODE, UserCodeError, failure, load_user_code

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

_UNDRAWN = "cannot be drawn: it must take render_mode, keep it as an attribute, and return a picture from render() (docs/extending.md)"
_log = logging.getLogger(__name__)


class Game:
    """A `SoloEnvironment` of a `gymnasium.Env`, with actions 0..A-1 and with repeated actions."""

    def __init__(self, environment: gymnasium.Env[Any, Any], settings: GymnasiumSettings, task: str) -> None:
        self.environment = environment
        self._task = task
        self._action_repeat = settings.action_repeat
        actions = environment.action_space
        if not isinstance(actions, spaces.Discrete):
            raise UnknownTaskError(f"env.tasks {task}: its actions are {actions}; only discrete actions (Discrete) are supported")
        self.first_action = int(actions.start)
        """The environment's own number of action 0."""
        self.num_actions = int(actions.n)
        self._parts = read_space(environment.observation_space, settings, task)
        self.shapes = {name: part.shape for name, part in self._parts.items()}
        self.has_bounds = all(part.is_bounded for part in self._parts.values())
        self.notes = [f"{task}: {note}" for part in self._parts.values() for note in part.notes]
        """What a user may not expect, one line each."""
        self._is_seeded = False
        if not _takes(environment.unwrapped.reset, "seed"):
            self.notes.append(f"{task}: its reset() takes no seed, so its games cannot be repeated")

    def reset(self, seed: int) -> dict[str, NDArray[Any]]:
        """See `SoloEnvironment`: the first game's ``seed`` is also that of the environment's own random stream for later games.

        Raises:
            BrokenEnvironmentError: the result is not that of an environment with this space.
        """
        observation, _ = self.start(None if self._is_seeded else seed)
        self._is_seeded = True
        return self.read(observation)

    def step(self, action: int) -> Played:
        """Repeat ``action`` until the game ends; return the sum of the rewards and the last observation.

        Raises:
            BrokenEnvironmentError: the result is not that of an environment with this space, or the reward is not one number.
        """
        total = 0.0
        for _ in range(self._action_repeat):
            observation, reward, terminated, truncated, _ = self.frame(self.first_action + action)
            total += reward
            if terminated or truncated:
                break
        return Played(self.read(observation), total, bool(terminated), bool(truncated))

    def close(self) -> None:
        """Close the environment; an error of its own code is logged, because nothing depends on it."""
        try:
            self.environment.close()
        except Exception as error:
            _warn_once(f"{self._task}: close() failed: {failure(error)}")

    def parts(self, observation: Any) -> dict[str, NDArray[Any]]:
        """Return the parts of one observation of the environment; any error if the observation is not of its space."""
        return {name: part.convert(observation) for name, part in self._parts.items()}

    def frame(self, action: Any) -> tuple[Any, float, Any, Any, Any]:
        """Take one step with the environment's own ``action``; return what it returned, with the reward as a number."""
        result: Any = self.environment.step(action)
        if not isinstance(result, tuple) or len(result) != 5:
            said = "(observation, reward, terminated, truncated, info)"
            raise self._broken(f"step() returned {told(result)}, not {said}; is it written for gym below 0.26?")
        observation, reward, terminated, truncated, info = result
        return observation, self._number(reward), terminated, truncated, info

    def start(self, seed: int | None) -> tuple[Any, Any]:
        """Start a new game; return what the environment returned."""
        result: Any = self.environment.reset(seed=seed)
        if not isinstance(result, tuple) or len(result) != 2:
            raise self._broken(f"reset() returned {told(result)}, not (observation, info); is it written for gym below 0.26?")
        return result

    def read(self, observation: Any) -> dict[str, NDArray[Any]]:
        """Return `parts`; BrokenEnvironmentError if the observation is not of its space."""
        try:
            return self.parts(observation)
        except Exception as error:  # any error of a space about an invalid observation
            raise self._broken(str(error) if type(error) is ValueError else f"its observation: {type(error).__name__}: {error}") from error

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
        return BrokenEnvironmentError(" ".join(f"{self._task}: {problem}".split()))


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
        self.first_action = self._game.first_action

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


@lru_cache(maxsize=1024)
def _warn_once(message: str) -> None:
    """Log a warning that every environment of a batch would repeat."""
    _log.warning(message)


def make_solo(settings: str, task: str) -> Game:
    """Create one environment of ``task`` from settings as JSON; UnknownTaskError as from `make_game`."""
    return make_game(GymnasiumSettings.model_validate_json(settings), task)


def make_game(settings: GymnasiumSettings, task: str) -> Game:
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
    return Game(environment, settings, task)


def _made(settings: GymnasiumSettings, task: str) -> gymnasium.Env[Any, Any]:
    kwargs = {"render_mode": "rgb_array", **settings.kwargs} if settings.render else settings.kwargs
    if re.fullmatch(USER_CODE, task):
        make = load_user_code(task, "env.tasks")
        if settings.render and not _takes(make, "render_mode"):
            raise UnknownTaskError(f"env.tasks {task}: {_UNDRAWN}")
        environment: gymnasium.Env[Any, Any] = make(**kwargs)
        if isinstance(environment, gymnasium.Env) and not (_takes(environment.reset, "seed") and _takes(environment.reset, "options")):
            environment = PlainReset(environment)
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


def _takes(function: Callable[..., object], name: str) -> bool:
    parameters = signature(function).parameters
    return name in parameters or any(each.kind is Parameter.VAR_KEYWORD for each in parameters.values())
