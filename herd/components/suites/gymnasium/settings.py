"""Settings of the gymnasium suite."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field

from herd.components.settings import PositiveInt
from herd.components.suites import Network, SuiteSettings

AUTO, NO_MASK = "auto", "none"
"""Values of ``env.mask`` that are not entries of observations."""


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
    image_key: str | None = None
    """For observations that are mappings: the entry that is the picture."""
    vector_keys: tuple[str, ...] = ()
    """For observations that are mappings: the entries that are flattened into the vector, in this order."""
    instruction_key: str | None = None
    """For observations that are mappings: the entry that is a text. It is read if ``network.language`` is on."""
    mask: str = AUTO
    """Source of the mask that says which actions are allowed. ``auto``: ``info["action_mask"]``, the method ``action_masks()`` or the
    observations' entry ``action_mask``, if the environment has one of them. ``none``: all actions are allowed. Otherwise: the entry of the
    observations with this name."""
    flatten: bool = False
    """Flatten the whole observation into one vector."""
    scale_integers: bool = True
    """Scale integers that have bounds to [0, 1] where they become part of the vector. Floats are used as they are. False: integers too, for
    observations whose declared bounds are much wider than their values."""
    render: bool = False
    """Observe the picture that the environment renders (``rgb_array``) instead of its observation."""
    frame_stack: PositiveInt = 1
    """Number of newest frames in one observation (S)."""
    frame_height: PositiveInt | None = None
    """Size in pixels. Null: the environment's own size."""
    frame_width: PositiveInt | None = None
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
        "scale_integers",
        "render",
        "frame_stack",
        "frame_height",
        "frame_width",
        "grayscale",
    )

    of_the_machine: ClassVar[tuple[str, ...]] = ("vectorization",)

    def objection_to(self, network: Network) -> str | None:
        """See `SuiteSettings.objection_to`."""
        if network.language and self.instruction_key is None:
            return "network.language needs env.instruction_key, the entry of the observations that is a text"
        return None
