"""Settings of the gymnasium suite."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import ConfigDict, Field

from herd.components.settings import Pixels, PositiveFloat, PositiveInt
from herd.components.suites import SuiteSettings

AUTO, NO_MASK = "auto", "none"
"""Values of ``env.mask`` that are not entries of observations."""
RGB_ARRAY = "rgb_array"
"""Gymnasium's name for drawing into an array."""


class GymnasiumSettings(SuiteSettings):
    """Any environment with gymnasium's interface, your own included."""

    model_config = ConfigDict(ser_json_inf_nan="constants")  # kwargs may hold numbers that are not finite

    suite: Literal["gymnasium"] = "gymnasium"
    """Any environment that ``gymnasium.make`` knows or that your own function returns."""
    tasks: Annotated[tuple[str, ...], Field(min_length=1)] = ("CartPole-v1",)
    """Registered ids, or ``module:callable`` of your own that returns an environment. With several names, one agent learns all of them
    (docs/many-tasks.md); their spaces must be equal."""
    kwargs: dict[str, Any] = Field(default_factory=dict)
    """Keyword arguments for ``gymnasium.make`` or for your callable, the same for every task."""
    action_repeat: PositiveInt = 1
    """Env frames (steps of the environment) per agent step. Their rewards are summed."""
    max_episode_steps: PositiveInt | None = None
    """A game is truncated after this many env frames. Null: the environment's own limit, if it has one."""
    vectorization: Literal["sync", "async"] = "sync"
    """``sync``: an actor steps its environments one after the other. ``async``: each environment has its own process, and
    ``actor.environment_threads`` of them step at a time. ``async`` pays off if a step takes milliseconds."""
    step_timeout_seconds: PositiveFloat = 120.0
    """Longest time that a step or the start of a game may take. With ``vectorization: async``, an environment that takes longer is killed
    and started again with a new game. With ``sync``, its actor is reported as hanging a minute after this time."""
    image_key: str | None = None
    """In dictionary observations, the key of the picture. If you set none of ``image_key``, ``vector_keys`` and ``instruction_key``, every
    entry is used: pictures become the frame, texts the instruction, and everything else the vector."""
    vector_keys: tuple[str, ...] = ()
    """In dictionary observations, the keys of the entries that make up the vector, in this order."""
    instruction_key: str | None = None
    """In dictionary observations, the key of the text. The agent reads it only if ``network.language`` is on."""
    mask: str = AUTO
    """Where the mask of allowed actions comes from. ``auto``: ``info["action_mask"]``, the method ``action_masks()`` or the observations'
    entry ``action_mask``, if the environment has one of them. ``none``: all actions are allowed. Any other value is the key of an entry of
    the observations."""
    flatten: bool = False
    """Flatten every observation into the vector, pictures included."""
    scale_by_bounds: bool = True
    """Scale numbers of the vector by their declared bounds to [0, 1], or to [-1, 1] if they may be negative. Numbers with bounds more than
    1,000 apart are not scaled (see ``network.vector_normalization``). False: nothing is scaled, for environments whose bounds are much
    wider than their values."""
    render: bool = False
    """Observe the picture that the environment renders (``rgb_array``) instead of its observation."""
    frame_stack: PositiveInt = 1
    """Number of most recent frames in one observation (S)."""
    frame_height: Pixels | None = None
    """Size in pixels. Null: the environment's own size."""
    frame_width: Pixels | None = None
    """Size in pixels. Null: the environment's own size."""
    grayscale: bool = False
    """Observe one luminance plane instead of RGB."""

    makes_spaces: ClassVar[tuple[str, ...]] = (
        "kwargs",
        "image_key",
        "vector_keys",
        "instruction_key",
        "mask",
        "flatten",
        "scale_by_bounds",
        "render",
        "frame_stack",
        "frame_height",
        "frame_width",
        "grayscale",
    )

    of_the_machine: ClassVar[tuple[str, ...]] = ("vectorization", "step_timeout_seconds")

    def drawn(self) -> Self:
        """Return settings for the same games in this process, each of which can draw itself."""
        return self.model_copy(update={"vectorization": "sync", "kwargs": {**self.kwargs, "render_mode": RGB_ARRAY}})

    def longest_step_seconds(self) -> float:
        """See `SuiteSettings.longest_step_seconds`."""
        return self.step_timeout_seconds
