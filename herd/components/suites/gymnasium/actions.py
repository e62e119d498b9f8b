"""Actions of gymnasium's spaces as policies choose them, and masks of them: N numbers of one `ActionSpace`, M entries of a mask."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from gymnasium import spaces

from herd.contract.spaces import ActionSpace, continuous, discrete

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

MAX_CHOICES = 1 << 16
"""Most values of all integers together: each is an output of the network. Integers of larger bounds are the limits of a type."""
_WIDEST = 1e6
"""Bounds of floats further apart than this are the limits of a type: mapped to them, every action would be huge."""


class _Leaf(NamedTuple):
    """A space of numbers, or the part of one that has them."""

    space: ActionSpace
    own: Callable[[NDArray[Any]], Any]
    """From a policy's numbers [n] to the environment's action."""
    notes: tuple[str, ...] = ()
    """What a user may not expect."""


class Actions:
    """The actions of an environment: of the kinds Discrete, MultiDiscrete, MultiBinary, Box, and Tuple or Dict of them, however deep."""

    def __init__(self, space: spaces.Space[Any]) -> None:
        """ValueError in a phrase about ``space`` if policies cannot choose in it."""
        self._space = space
        self._first = int(space.start) if isinstance(space, spaces.Discrete) else None
        """The environment's number of action 0, of the usual kind of actions, which needs nothing else."""
        leaves = {path: _leaf(leaf) for path, leaf in _leaves_of(space, ())}
        every = [leaf.space for leaf in leaves.values()]
        self.space = ActionSpace(
            sum((each.low for each in every), ()), sum((each.high for each in every), ()), sum((each.is_integer for each in every), ())
        )
        if not self.space.low:
            raise ValueError(f"its actions, {space}, have no numbers")
        if sum(self.space.num_choices) > MAX_CHOICES:
            raise ValueError(f"its actions are {space}: more than {MAX_CHOICES} values of integers")
        self._leaves = leaves
        self.notes = tuple(dict.fromkeys(note for leaf in leaves.values() for note in leaf.notes))
        """What a user may not expect."""
        self._starts = dict(zip(leaves, np.cumsum([0, *(len(each.low) for each in every)]).tolist(), strict=False))
        choices = self.space.num_choices
        self._groups = np.cumsum((0, *choices[:-1])) if all(choices) else None
        """Where the entries of each number begin in a mask; None if there are no masks."""
        self._mask_size = sum(choices)

    @property
    def takes_masks(self) -> bool:
        """Whether a mask can say what is allowed: all numbers are integers."""
        return self._groups is not None

    def own(self, action: Any) -> Any:
        """Return the environment's action for a policy's: an int, or numbers [N]."""
        return self._own(self._space, (), np.atleast_1d(action)) if self._first is None else self._first + int(action)

    def mask(self, value: Any) -> NDArray[np.bool_]:
        """Return a mask as the environment gives it as bool [M]: one array, or one for each number in tuples or mappings.

        Raises:
            ValueError: it is not one of these actions, or they have continuous numbers; a phrase.
        """
        if self._groups is None:
            raise ValueError("masks need discrete actions")
        parts = [np.ravel(np.asarray(part)) for part in _arrays(self._space, value)]
        entries: NDArray[Any] = np.concatenate(parts) if parts else np.zeros(0)
        if entries.shape != (self._mask_size,) or entries.dtype.kind not in "biuf":
            raise ValueError(f"a mask has {self._mask_size} entries, one for each value of each action, not {entries.size}")
        return entries.astype(np.bool_)

    def leaves_a_choice(self, mask: NDArray[np.bool_]) -> bool:
        """Return whether ``mask`` [M] allows a value of each number."""
        assert self._groups is not None
        return bool(np.logical_or.reduceat(mask, self._groups).all())

    def _own(self, space: spaces.Space[Any], path: tuple[Any, ...], numbers: NDArray[Any]) -> Any:
        if isinstance(space, spaces.Dict):
            return {key: self._own(each, (*path, key), numbers) for key, each in space.spaces.items()}
        if isinstance(space, spaces.Tuple):
            return tuple(self._own(each, (*path, index), numbers) for index, each in enumerate(space.spaces))
        start, leaf = self._starts[path], self._leaves[path]
        return leaf.own(numbers[start : start + len(leaf.space.low)])


def _leaves_of(space: spaces.Space[Any], path: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], spaces.Space[Any]]]:
    if isinstance(space, spaces.Dict | spaces.Tuple):
        named = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        for key, each in named:
            yield from _leaves_of(each, (*path, key))
    else:
        yield path, space


def _leaf(space: spaces.Space[Any]) -> _Leaf:
    if isinstance(space, spaces.Discrete):
        start = int(space.start)
        return _Leaf(discrete(int(space.n)), lambda numbers: start + int(numbers[0]))
    if isinstance(space, spaces.MultiDiscrete):
        return _integers(space, space.nvec, space.start)
    if isinstance(space, spaces.MultiBinary):
        return _integers(space, np.full(space.shape, 2), np.zeros(space.shape, np.int64))
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.integer):
        low, high = space.low.astype(np.float64), space.high.astype(np.float64)
        if not low.size or (high - low).max() >= MAX_CHOICES:
            raise ValueError(f"its actions are {space}: integers need bounds, because each value is an output of the network")
        return _integers(space, high - low + 1, space.low)
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
        return _floats(space)
    kinds = "Discrete, MultiDiscrete, MultiBinary, Box, and Tuple or Dict of these"
    raise ValueError(f"its actions are {space}; actions may be {kinds}")


def _integers(space: spaces.Space[Any], choices: NDArray[Any], start: NDArray[Any]) -> _Leaf:
    def own(numbers: NDArray[Any]) -> Any:
        return (numbers.reshape(choices.shape).astype(np.int64) + start).astype(space.dtype)

    return _Leaf(discrete(*(int(count) for count in choices.ravel())), own)


def _floats(space: spaces.Box) -> _Leaf:
    """Numbers with two bounds are mapped from [-1, 1]; all are clipped to the bounds that they have.

    A bound that makes them wider than `_WIDEST` is none.
    """
    low, high = (bound.astype(np.float64).ravel() for bound in (space.low, space.high))
    is_wide = 0.5 * high - 0.5 * low > 0.5 * _WIDEST  # halved, or the limits of float64 would overflow
    is_limited = is_wide & np.isfinite(low) & np.isfinite(high)
    low, high = np.where(is_wide & (low < -0.5 * _WIDEST), -np.inf, low), np.where(is_wide & (high > 0.5 * _WIDEST), np.inf, high)
    is_bounded = np.isfinite(low) & np.isfinite(high)
    width, base = np.where(is_bounded, high, 0.0) - np.where(is_bounded, low, 0.0), np.where(is_bounded, low, 0.0)

    def own(numbers: NDArray[Any]) -> Any:
        mapped = np.where(is_bounded, base + 0.5 * (numbers.astype(np.float64) + 1.0) * width, numbers)
        # Rounding to the environment's dtype must not leave the bounds.
        rounded = np.clip(mapped, low, high).astype(space.dtype).reshape(space.shape)
        return np.asarray(np.clip(rounded, space.low, space.high))

    notes = (
        [f"numbers of its actions with bounds more than {_WIDEST:,.0f} apart are chosen as if they had none"] if is_limited.any() else []
    )
    return _Leaf(continuous(low.tolist(), high.tolist()), own, tuple(notes))


def _arrays(space: spaces.Space[Any] | None, value: Any) -> Iterator[Any]:
    """Yield the arrays of a mask in the order of the actions."""
    if isinstance(space, spaces.Dict) and isinstance(value, Mapping):
        for key, each in space.spaces.items():
            yield from _arrays(each, value.get(key, ()))
    elif isinstance(value, tuple):
        entries = space.spaces if isinstance(space, spaces.Tuple) else ()
        for index, each in enumerate(value):
            yield from _arrays(entries[index] if index < len(entries) else None, each)
    else:
        yield value
