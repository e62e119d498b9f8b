"""Reads an environment's observations as the parts of a row: a frame, a vector, words.

Bounds and shape decide what an entry of an observation is. Pictures become the frame, texts the words, and everything else the vector.

Shapes: H W C one frame, D numbers of a vector, L words.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from gymnasium import spaces

from herd.components.suites.api import UnknownTaskError
from herd.components.suites.reading import FRAME, MAX_WORDS, VECTOR, WORDS, hashed_words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from herd.components.suites.gymnasium.settings import GymnasiumSettings

MASK_KEY = "action_mask"
"""Name by which environments offer a mask of allowed actions, in ``info`` or as an entry of their observations."""
_LUMINANCE = np.array([0.299, 0.587, 0.114], np.float32)
"""Weights of red, green and blue (ITU-R BT.601), as in the Atari suite's emulator."""
_CHANNELS = (1, 3, 4)
"""Grey, RGB, RGBA. Pictures with one of these numbers as their first axis are recognised as channels first."""
_A_PICTURE = "a picture: two or three axes, uint8 in 0..255 or floats in [0, 1]"
_WIDEST = 1000.0
"""Bounds further apart than this are the limits of a type or of a safety check: scaled by them, ordinary values would hardly differ."""

_MANY_NUMBERS = 10_000
"""Beyond this, the first layer has millions of weights."""


class Part(NamedTuple):
    """One part of a row, and how it is read from an observation."""

    shape: tuple[int, ...]
    convert: Callable[[Any], NDArray[Any]]
    """ValueError if the observation is not of the environment's space."""
    notes: tuple[str, ...] = ()
    """What a user may not expect."""
    is_bounded: bool = True
    """Of a vector: whether all of its numbers are scaled by their bounds."""


class _Entry(NamedTuple):
    """One entry of an observation, or the whole observation."""

    path: tuple[Any, ...]
    """Keys and indices that lead to it; empty for the whole observation."""
    space: spaces.Space[Any]

    @property
    def name(self) -> str:
        return ".".join(map(str, self.path))

    def of(self, observation: Any) -> Any:
        try:
            for key in self.path:
                observation = observation[key]
        except (KeyError, IndexError, TypeError) as error:
            raise ValueError(f"its observation is {told(observation)} and has no entry {self.name}") from error
        return observation

    def differs(self, value: Any, how: str = "") -> ValueError:
        """Return the error about a value that is not of the declared space; ``how``: what it is, instead of its type and shape."""
        what = f"entry {self.name} of its observation" if self.path else "its observation"
        return ValueError(f"{what} {how or f'is {told(value)}'}, but its observation_space declares {self.space}")


def read_space(space: spaces.Space[Any], settings: GymnasiumSettings, task: str) -> dict[str, Part]:
    """Return the parts of an observation of ``space``.

    Raises:
        UnknownTaskError: it cannot be learned from, or an entry that the settings name does not exist; one line.
    """
    pictures: list[_Entry] = []
    vectors: list[_Entry] = []
    texts: list[_Entry] = []
    by_key = settings.image_key is not None or settings.vector_keys or settings.instruction_key is not None
    if by_key and not settings.render:
        pictures = _chosen(space, "env.image_key", [settings.image_key], task)
        vectors = [
            inner for key in _chosen(space, "env.vector_keys", settings.vector_keys, task) for inner in _entries(key.space, key.path)
        ]
        texts = _chosen(space, "env.instruction_key", [settings.instruction_key], task)
        for entry in pictures:
            if _as_picture(entry, task) is None:
                raise UnknownTaskError(f"env.image_key: {entry.name} of {task} is {entry.space}, not {_A_PICTURE}")
    elif settings.flatten and not settings.render:
        vectors = list(_entries(space))
    else:
        for entry in _entries(space):
            is_text = entry.space.dtype is not None and entry.space.dtype.kind == "U"
            (texts if is_text else vectors if _as_picture(entry, task) is None else pictures).append(entry)
    if texts and not (pictures or vectors):
        raise UnknownTaskError(f"env.tasks {task}: a text alone ({space}) is not an observation of the game: add numbers or a picture")
    parts: dict[str, Part] = {}
    if pictures:
        parts[FRAME] = _frame(pictures, settings, task)
    if vectors:
        parts[VECTOR] = _vector(vectors, settings, task)
    if texts:
        parts[WORDS] = Part((MAX_WORDS,), lambda observation: hashed_words(" ".join(str(entry.of(observation)) for entry in texts)))
    if not parts:
        raise UnknownTaskError(f"env.tasks {task}: its observations, {space}, have no entries")
    return parts


def _chosen(space: spaces.Space[Any], setting: str, keys: Sequence[str | None], task: str) -> list[_Entry]:
    """Return the entries that a setting names."""
    if not isinstance(space, spaces.Dict):
        raise UnknownTaskError(f"env.tasks {task}: its observations are a {type(space).__name__}, which has no entries to choose by key")
    named = [key for key in keys if key is not None]
    for key in named:
        if key not in space.spaces:
            raise UnknownTaskError(f"{setting}: the observations of {task} have no entry {key}; they have {', '.join(space)}")
    return [_Entry((key,), space[key]) for key in named]


def _entries(space: spaces.Space[Any], path: tuple[Any, ...] = ()) -> Iterator[_Entry]:
    """Yield the entries of mappings and tuples, nested ones too, except a mask of actions, which is not an observation of the game."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        for key, inner in space.items() if isinstance(space, spaces.Dict) else enumerate(space):
            if key != MASK_KEY:
                yield from _entries(inner, (*path, key))
    else:
        yield _Entry(path, space)


class _Pixels(NamedTuple):
    """The layout of an environment's pictures."""

    size: tuple[int, int]
    """(height, width)."""
    channels: int
    is_channels_first: bool
    highest: float
    """The value of white: 255, or 1 where pictures are floats."""


def _as_picture(entry: _Entry, task: str) -> _Pixels | None:
    """Return the layout of pictures, as bounds and shape say; None if the observations are something else.

    Bytes with other bounds are boards, codes or counts. Floats in [0, 1] are pictures only if their shape has channels of colours.
    """
    space = entry.space
    if not isinstance(space, spaces.Box) or not np.all(space.low == 0):
        return None
    whole, is_byte = space.high.flat[0] if space.high.size else 0.0, space.dtype == np.uint8
    if not np.all(space.high == whole) or whole != (255 if is_byte else 1) or not (is_byte or np.issubdtype(space.dtype, np.floating)):
        return None
    if len(space.shape) == 4 and is_byte:
        raise UnknownTaskError(f"env.tasks {task}: {space} is a stack of pictures: leave stacking to env.frame_stack")
    if len(space.shape) not in {2, 3}:
        return None
    first, *others = space.shape
    is_channels_first = len(others) == 2 and first in _CHANNELS and others[1] not in _CHANNELS and 4 * first <= min(others)
    if not is_byte and not (is_channels_first or (len(others) == 2 and others[1] in _CHANNELS)):
        return None
    height, width, *channels = (*others, first) if is_channels_first else space.shape
    return _Pixels((height, width), channels[0] if channels else 1, is_channels_first, float(whole))


def _frame(entries: Sequence[_Entry], settings: GymnasiumSettings, task: str) -> Part:
    """Convert pictures to one frame; the channels of several pictures follow one another, in the size of the largest."""
    layouts = [pixels for entry in entries if (pixels := _as_picture(entry, task)) is not None]
    height, width = (max(pixels.size[axis] for pixels in layouts) for axis in (0, 1))
    size = (settings.frame_height or height, settings.frame_width or width)
    pictures = [_picture(entry, pixels, size, settings, task) for entry, pixels in zip(entries, layouts, strict=True)]
    notes = [note for picture in pictures for note in picture.notes]
    if len(pictures) == 1:
        return pictures[0]
    named = [f"{entry.name} {_by(pixels.size)}" for entry, pixels in zip(entries, layouts, strict=True)]
    notes.insert(0, f"the pictures {', '.join(named)} become one of {_by(size)} with all of their channels")
    shape = (*size, sum(picture.shape[2] for picture in pictures))
    return Part(shape, lambda observation: np.concatenate([each.convert(observation) for each in pictures], axis=2), tuple(notes))


def _by(size: tuple[int, int]) -> str:
    return f"{size[0]}x{size[1]}"


def _picture(entry: _Entry, pixels: _Pixels, size: tuple[int, int], settings: GymnasiumSettings, task: str) -> Part:
    """Convert [H, W], [H, W, C] or [C, H, W] to uint8 [H', W', C']."""
    own_size, number, is_first, highest = pixels
    gray = settings.grayscale and number != 1
    if gray and number not in _CHANNELS:
        raise UnknownTaskError(f"env.grayscale: the pictures of {task} have {number} channels, not the 3 of RGB")
    shape = (*size, 1 if gray else number)
    least, most = (0, 255) if highest > 1 else (-1, 2)  # floats that leave their bounds somewhat are clipped

    def convert(observation: Any) -> NDArray[Any]:
        picture = np.asarray(entry.of(observation))
        if picture.shape != entry.space.shape or picture.dtype.kind not in ("iu" if highest > 1 else "f"):
            raise entry.differs(picture)
        if picture.dtype != np.uint8 and not (least <= (low := picture.min()) <= (high := picture.max()) <= most):
            # All of it would be black, white, or wrapped around.
            raise entry.differs(picture, f"has values in {low:g}..{high:g}")
        if highest == 1:
            picture = np.clip(picture * 255 + 0.5, 0, 255)
        picture = picture.astype(np.uint8, copy=False)
        if is_first:
            picture = picture.transpose(1, 2, 0)
        if gray:
            picture = (picture[..., :3] @ _LUMINANCE + 0.5).astype(np.uint8)
        if size != own_size:
            import cv2  # noqa: PLC0415  only who resizes needs it

            picture = cv2.resize(np.ascontiguousarray(picture), (size[1], size[0]), interpolation=cv2.INTER_AREA)
        return picture.reshape(shape)

    of_entry = f" of {entry.name}" if entry.path else ""
    notes = [f"pictures{of_entry} {list(entry.space.shape or ())} are read as [C, H, W]"] if is_first else []
    notes += [f"pictures{of_entry} in [0, 1] are rounded to 256 levels"] if highest == 1 else []
    return Part(shape, convert, tuple(notes))


def _vector(entries: Sequence[_Entry], settings: GymnasiumSettings, task: str) -> Part:
    """Convert anything that gymnasium can flatten to numbers; a Discrete becomes one-hot, and numbers are scaled by their bounds."""
    sizes = [_size(entry, task) for entry in entries]
    if not sum(sizes):
        raise UnknownTaskError(
            f"env.tasks {task}: its observations, {entries[0].space}, have no numbers; a constant such as [1.0] is enough"
        )
    lowest, highest = (np.concatenate(each) for each in zip(*(_bounds(entry.space) for entry in entries), strict=True))
    with np.errstate(over="ignore"):
        is_narrow = highest - lowest <= _WIDEST
    lowest, highest = np.where(is_narrow, lowest, 0.0), np.where(is_narrow, highest, 0.0)
    width = highest - lowest
    is_scaled = is_narrow & (width > 0) & ((lowest < -1) | (highest > 1)) & settings.scale_by_bounds
    # To [0, 1], or to [-1, 1] where numbers may be negative.
    offset = np.where(is_scaled, np.where(lowest < 0, (lowest + highest) / 2, lowest), 0.0).astype(np.float32)
    factor = np.where(is_scaled, np.where(lowest < 0, 2.0, 1.0) / np.where(is_scaled, width, 1.0), 1.0).astype(np.float32)
    any_scaled = bool(is_scaled.any())

    def convert(observation: Any) -> NDArray[Any]:
        numbers = [_numbers(entry, size, entry.of(observation)) for entry, size in zip(entries, sizes, strict=True)]
        vector = numbers[0] if len(numbers) == 1 else np.concatenate(numbers)
        return (vector - offset) * factor if any_scaled else vector

    notes = []
    if any_scaled:
        some = "" if is_scaled.all() else f" ({int(is_scaled.sum())} of {len(is_scaled)})"
        notes = [f"numbers{some} are scaled by their bounds to [0, 1] or [-1, 1] (env.scale_by_bounds)"]
    if sum(sizes) > _MANY_NUMBERS:
        advice = "; env.vector_keys chooses entries" if len(entries) > 1 else ""
        notes.append(f"its vector has {sum(sizes):,} numbers, each with a weight to every unit of the first layer{advice}")
    return Part((sum(sizes),), convert, tuple(notes), bool(is_narrow.all()))


def _size(entry: _Entry, task: str) -> int:
    """Return the number of numbers of an entry."""
    try:
        return spaces.flatdim(entry.space)
    except (NotImplementedError, ValueError) as error:  # an unknown kind of space, or one without a fixed size
        what = f"the entry {entry.name}, {entry.space}," if entry.path else f"observations of {entry.space}"
        advice = "; choose the others with env.vector_keys" if entry.path else ""
        raise UnknownTaskError(f"env.tasks {task}: {what} cannot be converted to a vector of a fixed size{advice}") from error


def _numbers(entry: _Entry, size: int, value: Any) -> NDArray[np.float32]:
    """Return one entry of an observation as [size]."""
    is_box = isinstance(entry.space, spaces.Box)
    if not is_box and _is_beyond(entry.space, value):
        raise entry.differs(value, f"is {told(value)}: {value}")
    numbers = np.asarray(value if is_box else spaces.flatten(entry.space, value))
    if numbers.dtype.kind not in "biuf":
        raise entry.differs(numbers)
    numbers = numbers.astype(np.float32, copy=False)
    if numbers.shape != (entry.space.shape if is_box else (size,)):
        raise entry.differs(numbers)
    return numbers.reshape(-1)


def _is_beyond(space: spaces.Space[Any], value: Any) -> bool:
    """Whether a value is none of those that are counted by its space, where flattening would not notice it."""
    if isinstance(space, spaces.Discrete):
        return bool(value < space.start)  # it would be read as one of the last values; `flatten` refuses the others
    return isinstance(space, spaces.MultiDiscrete | spaces.MultiBinary) and not space.contains(value)


def told(value: Any) -> str:
    """Describe in a few words what user code returned."""
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype} {value.shape}"
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {len(value)}"
    return f"a {type(value).__name__}"


def _bounds(space: spaces.Space[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the lowest and highest value of each number of a flattened observation, [D] each."""
    if isinstance(space, spaces.Box):
        return space.low.reshape(-1).astype(np.float64), space.high.reshape(-1).astype(np.float64)
    size = spaces.flatdim(space)  # one-hot
    return np.zeros(size), np.ones(size)
