"""Settings of the gymnasium suite."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field

from herd.config.section import PositiveInt
from herd.config.suites import SuiteSettings

if TYPE_CHECKING:
    from herd.config.settings import NetworkSettings


class GymnasiumSettings(SuiteSettings):
    """Any environment with gymnasium's interface and discrete actions, your own included."""

    suite: Literal["gymnasium"] = "gymnasium"
    """Whatever ``gymnasium.make`` knows, or a function of yours returns."""
    tasks: Annotated[tuple[str, ...], Field(min_length=1)] = ("CartPole-v1",)
    """Registered ids, or ``module:callable`` of your own that returns an environment. Several make one agent of many tasks
    (docs/many-tasks.md) and need equal spaces."""
    kwargs: dict[str, Any] = Field(default_factory=dict)
    """Keyword arguments for ``gymnasium.make``, or for your callable; the same for every task."""
    action_repeat: PositiveInt = 1
    """Env frames (the environment's own steps) per agent step; their rewards are added up."""
    max_episode_steps: PositiveInt | None = None
    """A game is truncated after this many env frames; null: the environment's own limit, if it has one."""
    vectorization: Literal["sync", "async"] = "sync"
    """``sync``: an actor steps its environments one after the other; ``async``: each in a process of its own, of which
    ``actor.environment_threads`` step at one time: for environments that take milliseconds."""
    image_key: str | None = None
    """Of observations that are mappings: the entry that is the picture."""
    vector_keys: tuple[str, ...] = ()
    """Of observations that are mappings: the entries that are flattened into the vector, in this order."""
    instruction_key: str | None = None
    """Of observations that are mappings: the entry that is a text, read where ``network.language`` is on."""
    flatten: bool = False
    """Flatten observations that are mappings or tuples, whole, into one vector."""
    render: bool = False
    """Observe the picture that the environment draws of itself (``rgb_array``) instead of what it says."""
    frame_stack: PositiveInt = 1
    """Newest frames that make up one observation (S)."""
    frame_height: PositiveInt | None = None
    """Pixels; null: as the environment has them."""
    frame_width: PositiveInt | None = None
    """Pixels; null: as the environment has them."""
    grayscale: bool = False
    """One luminance plane instead of RGB."""

    makes_spaces: ClassVar[tuple[str, ...]] = (
        "kwargs",
        "image_key",
        "vector_keys",
        "instruction_key",
        "flatten",
        "render",
        "frame_stack",
        "frame_height",
        "frame_width",
        "grayscale",
    )

    def objection(self, network: NetworkSettings) -> str | None:
        """See `SuiteSettings.objection`."""
        if network.language and self.instruction_key is None:
            return "network.language needs env.instruction_key, the entry of the observations that is a text"
        return None
