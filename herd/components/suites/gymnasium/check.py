"""Checks an environment of gymnasium: what it returns against what it declares, seeds, speed and pictures.

Everything is played with random actions, those that its mask allows.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit

from herd.components.suites.api import BrokenEnvironmentError, UnknownTaskError
from herd.components.suites.checking import FINE, NOTE, PROBLEM, SUMMARY, Finding
from herd.components.suites.gymnasium.game import Game, make_game
from herd.components.suites.reading import FRAME, MASK
from herd.components.suites.solo import Played
from herd.components.user_code import FAILURES, failure, prints_nothing
from herd.contract.unroll import LARGEST_RETURN

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from herd.components.suites.checking import Effort
    from herd.components.suites.gymnasium.actions import Actions
    from herd.components.suites.gymnasium.settings import GymnasiumSettings

_SLOW_STEPS_PER_SECOND = 1000
"""Below this, a step takes longer than exchanging bytes with another process does by far."""
_LARGE_REWARD = 10.0
"""Beyond this, a value's loss outweighs all others: with rewards of 100, CartPole is not learned, unless PopArt scales its returns."""
_DARK = 32
"""Colours of 0..255 that stay below this are nearly black: such values are rather codes, and a 255th of them hardly differs."""
_FEW_STEPS = 100
"""Fewer steps tell nothing about rewards that were not found and games that did not end."""
_LARGEST_DIGIT = 3


def check(settings: GymnasiumSettings, task: str, effort: Effort) -> Iterator[Finding | str]:
    """Check one task; a `herd.components.suites.checking.Check`."""
    try:
        yield from _check(settings, task, effort)
    except (BrokenEnvironmentError, UnknownTaskError) as error:
        yield Finding(PROBLEM, str(error).removeprefix("env.tasks "))
    except FAILURES as error:
        yield Finding(PROBLEM, f"{task}: {failure(error)}")


def _check(settings: GymnasiumSettings, task: str, effort: Effort) -> Iterator[Finding | str]:
    yield "creating the environment"
    game = make_game(settings, task)
    yield Finding(FINE, f"{task}: observation_space {_shown(game.environment.observation_space)} is read as {_told(game)}")
    yield Finding(FINE, f"{task}: action_space {_shown(game.environment.action_space)} can be learned")
    yield from (Finding(NOTE, note) for note in game.notes)
    yield "the first game"
    trial = _Trial(game, seed=1)
    trial.play(effort.steps, effort.seconds)
    yield from trial.findings(task)
    yield "close()"
    try:
        game.environment.close()
    except Exception as error:
        yield Finding(NOTE, f"{task}: close() failed: {failure(error)}", "nothing depends on it, but what it should release may stay")
    repeats = "not played again"
    if trial.seconds < effort.seconds and not any("takes no seed" in note for note in game.notes):
        yield "the same games again"
        again = _Trial(make_game(settings, task), seed=1)
        again.play(trial.steps, 4 * effort.seconds)
        again.game.close()
        differing = again.first_difference(trial)
        repeats = "a seed repeats them" if differing is None else "a seed does not repeat them"
        if differing is not None:
            what = f"{task}: two games from reset(seed=1) with the same actions differ, first in row {differing}"
            yield Finding(NOTE, what, "draw from self.np_random, which reset(seed=...) seeds, not from a global generator")
        elif effort.is_full:
            yield Finding(FINE, f"{task}: reset(seed=1) repeats its games")
            if settings.vectorization == "sync":
                yield from _disturbance(settings, task, trial, effort)
    rate = trial.steps / trial.seconds if trial.seconds else float("inf")
    if effort.is_full:
        yield Finding(FINE, f"{task}: {rate:,.0f} steps/s in one process")
        yield "drawing"
        with prints_nothing():  # what an actor does not do is in no log
            picture = _picture(settings, task)
        yield picture
    if rate < _SLOW_STEPS_PER_SECOND:
        yield Finding(NOTE, f"{task}: {rate:,.0f} steps/s: its step is slow", "env.vectorization async plays several at a time")
    number = len(trial.lengths) + 1
    played = f"{trial.steps:,} random steps in {number:,} game{'s' if number > 1 else ''}"
    yield Finding(SUMMARY, f"{task}: {played}, {trial.returns()}, {rate:,.0f} steps/s, {repeats}")


def _shown(space: spaces.Space[Any]) -> str:
    return " ".join(str(space).split())


def _told(game: Game) -> str:
    return " + ".join(f"{part} {'x'.join(map(str, shape))}" for part, shape in game.shapes.items())


@dataclass
class _Trial:
    """Games of one environment with random actions from one seed."""

    game: Game
    seed: int
    history: list[bytes] = field(default_factory=list)
    """A digest of each row: what `reset` and `step` returned."""
    steps: int = 0
    seconds: float = 0.0
    rewards: list[float] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    """Of the games that ended."""
    odd: dict[str, str] = field(default_factory=dict)
    """What does not fit the declared space, with advice; each once."""
    brightest: int | None = None
    """Highest value of its pictures, if it has any."""

    def play(self, steps: int, seconds: float) -> None:
        """Take ``steps`` steps in at most about ``seconds``; BrokenEnvironmentError, or any error of the user's code."""
        random = np.random.default_rng(self.seed)
        self.game.environment = witness = _Witness(self.game.environment)
        parts = self.game.reset(self.seed)
        self._note(witness, Played(parts, 0.0))
        length, began = 0, time.perf_counter()
        while self.steps < steps and self.seconds < seconds:
            played = self.game.step(_random_action(self.game.actions, parts.get(MASK), random))
            assert played.observed is not None
            parts = dict(played.observed)
            length += 1
            self.steps += 1
            self.rewards.append(played.reward)
            self._note(witness, played)
            if played.terminated or played.truncated:
                self.lengths.append(length)
                length = 0
                parts = self.game.reset(self.seed)
                self._note(witness, Played(parts, 0.0))
            self.seconds = time.perf_counter() - began

    def _note(self, witness: _Witness, played: Played) -> None:
        digest = hashlib.blake2b(repr(played[1:]).encode(), digest_size=8)
        assert played.observed is not None
        for values in played.observed.values():
            digest.update(np.ascontiguousarray(values).tobytes())
        if FRAME in played.observed:
            self.brightest = max(self.brightest or 0, int(played.observed[FRAME].max()))
        self.history.append(digest.digest())
        if (problem := _misfit(witness.observation_space, witness.observation)) is not None:
            self.odd.setdefault(*problem)
        for flag in witness.flags:
            if not isinstance(flag, bool | np.bool_) and np.asarray(flag).dtype != np.bool_:
                self.odd.setdefault(f"step() returned {flag!r} as the end of a game, not a bool", "it is read as bool()")

    def findings(self, task: str) -> Iterator[Finding]:
        """Yield what was seen."""
        yield from (Finding(NOTE, f"{task}: {what}", advice) for what, advice in self.odd.items())
        if not self.odd:
            yield Finding(FINE, f"{task}: {self.steps:,} steps returned what the spaces declare")
        if self.brightest is not None and self.brightest < _DARK:
            advice = (
                "if these are codes rather than colours, read them as numbers: env.vector_keys or env.flatten, env.scale_by_bounds false"
            )
            yield Finding(NOTE, f"{task}: its pictures have no value above {self.brightest} of 255", advice)
        if any(not np.isfinite(reward) for reward in self.rewards):
            yield Finding(PROBLEM, f"{task}: it returned a reward that is not a finite number")
        elif (largest := max(map(abs, [*self.rewards, *self._returns()]), default=0.0)) > LARGEST_RETURN:
            what = f"{task}: rewards or returns up to {largest:g}"
            yield Finding(PROBLEM, f"{what}: at most {LARGEST_RETURN:g} can be used, scale the rewards")
        elif len(self.rewards) >= _FEW_STEPS and not any(self.rewards):
            advice = "random play never finds a reward: is it reachable, or should the way to it be rewarded?"
            yield Finding(NOTE, f"{task}: all rewards of {self.steps:,} random steps are 0", advice)
        elif max(map(abs, self.rewards), default=0.0) > _LARGE_REWARD:
            what = f"{task}: rewards from {min(self.rewards):g} to {max(self.rewards):g}"
            yield Finding(NOTE, what, "value_scaling.kind popart scales returns by their running deviation")
        if not self.lengths and self.steps >= _FEW_STEPS and not _has_time_limit(self.game.environment):
            what = f"{task}: no game ended in {self.steps:,} random steps"
            yield Finding(NOTE, what, "env.max_episode_steps bounds games; without an end there is no return to show")

    def first_difference(self, other: _Trial) -> int | None:
        """Return the first row in which the games differ from those of ``other``; None if they do not, as far as both were played."""
        rows = zip(self.history, other.history, strict=False)
        return next((row for row, (one, another) in enumerate(rows) if one != another), None)

    def returns(self) -> str:
        """Describe the returns of the games that ended."""
        if not self.lengths:
            return "which did not end"
        returns = self._returns()
        return f"returns {min(returns):.{_LARGEST_DIGIT}g} to {max(returns):.{_LARGEST_DIGIT}g}"

    def _returns(self) -> list[float]:
        """Return those of the games that ended."""
        return [float(sum(each)) for each in np.split(np.array(self.rewards), np.cumsum(self.lengths))[: len(self.lengths)]]


def _has_time_limit(environment: gymnasium.Env[Any, Any]) -> bool:
    while isinstance(environment, gymnasium.Wrapper) and not isinstance(environment, TimeLimit):
        environment = environment.env
    return isinstance(environment, TimeLimit)


class _Witness(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Keeps what the environment returned last."""

    observation: Any = None
    flags: tuple[Any, ...] = ()

    def reset(self, **kwargs: Any) -> Any:
        """See `gymnasium.Env.reset`."""
        result: Any = self.env.reset(**kwargs)
        self.observation, self.flags = (result[0] if isinstance(result, tuple) and result else None), ()
        return result

    def step(self, action: Any) -> Any:
        """See `gymnasium.Env.step`."""
        result: Any = self.env.step(action)
        if isinstance(result, tuple) and len(result) == 5:  # otherwise the game objects
            self.observation, self.flags = result[0], result[2:4]
        return result


def _random_action(actions: Actions, mask: NDArray[Any] | None, random: np.random.Generator) -> Any:
    """Return a random action of a policy that ``mask`` [M] allows: an int, or numbers [N]."""
    choices = actions.space.num_choices
    allowed = (
        [np.arange(number) for number in choices]
        if mask is None
        else [np.flatnonzero(own) for own in np.split(mask, np.cumsum(choices)[:-1])]
    )
    numbers = [random.choice(own) if number else random.uniform(-1.0, 1.0) for number, own in zip(choices, allowed, strict=True)]
    return np.array(numbers, actions.space.dtype) if actions.space.shape else int(numbers[0])


def _misfit(space: spaces.Space[Any], value: Any, name: str = "") -> tuple[str, str] | None:
    """Say how a value that can be read differs from its space, and what to do; None if it does not."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        inner = space.items() if isinstance(space, spaces.Dict) else enumerate(space)
        found = (_misfit(each, value[key], f"{name}.{key}".strip(".")) for key, each in inner)
        return next((each for each in found if each is not None), None)
    what = f"entry {name} of its observation" if name else "its observation"
    if not isinstance(space, spaces.Box):
        if space.contains(value):
            return None
        return f"{what}, {value!r:.80}, is not in its space, {space}", "it can be read, but is not what it declares"
    array = np.asarray(value)
    if array.dtype != space.dtype and isinstance(value, np.ndarray):
        return f"{what} is {array.dtype}, but its space declares {space.dtype}", "it is converted at every step"
    if (array < space.low).any() or (array > space.high).any():
        return f"{what} leaves its declared bounds", "declare its lowest and highest value, or infinity: numbers are scaled by their bounds"
    return None


def _disturbance(settings: GymnasiumSettings, task: str, trial: _Trial, effort: Effort) -> Iterator[Finding | str]:
    """Play the games again in another environment while a third one plays too: actors step several in one process."""
    yield "two environments in one process"
    one = make_game(settings, task)
    try:
        other = make_game(settings, task)
    except UnknownTaskError as error:
        one.close()
        what = str(error).removeprefix(f"env.tasks {task}: ")
        yield Finding(PROBLEM, f"{task}: a second one in the same process {what}", "env.vectorization async gives each a process")
        return
    among, random = _Trial(one, seed=1), np.random.default_rng(2)
    step_alone = one.environment.step

    def step(action: Any) -> Any:
        result = step_alone(action)
        other.step(_random_action(other.actions, other.reset(2).get(MASK), random))
        return result

    one.environment.step = step  # type: ignore[method-assign]
    among.play(min(trial.steps, 100), effort.seconds)
    one.close()
    other.close()
    if among.first_difference(trial) is not None:
        yield Finding(
            NOTE,
            f"{task}: its games change while another environment plays in the same process",
            "they share state, such as attributes of the class or globals; env.vectorization async gives each a process",
        )


def _picture(settings: GymnasiumSettings, task: str) -> Finding:
    try:
        game = make_game(settings.drawn(), task)
        game.reset(1)
        shape = game.picture().shape
        game.close()
    except (BrokenEnvironmentError, UnknownTaskError) as error:
        return Finding(NOTE, str(error).removeprefix("env.tasks "), "only herd watch and herd report need it")
    except Exception as error:
        return Finding(NOTE, f"{task}: cannot be drawn: {failure(error)}", "only herd watch and herd report need it")
    return Finding(FINE, f"{task}: render() returns a picture of {'x'.join(map(str, shape))}")
