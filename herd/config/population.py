"""Population based training: how agents of one run copy each other and change the swept settings (IMPALA, appendix F)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from herd.components.settings import Fraction, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, Section
from herd.components.suites import environment_spec, suite_of

if TYPE_CHECKING:
    from herd.components.suites import SuiteSettings


class PopulationSettings(Section):
    """Population based training: the agents of a run are members of a population.

    ``sweep`` says which settings differ between members, and their first values.
    """

    strategy: Literal["none", "pbt"] = "none"
    """``none``: every agent keeps its values, so the run is a sweep. ``pbt``: a member that has played enough games may copy a better one,
    and its numeric settings are perturbed."""
    fitness: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")] = "human_normalised"
    """``human_normalised``: mean over tasks of the human-normalised score, each at most 1. ``episode_return``: mean raw return. Both cover
    the newest ``fitness_episodes`` games. Any other name is looked up in the newest point of metrics.jsonl. Greater is better."""
    fitness_episodes: PositiveInt = 5000
    """Number of games, over all tasks, that the fitness covers and that a member plays between two decisions."""
    burn_in_env_frames: NonNegativeInt = 20_000_000
    """Number of its own env frames that a member must train on before the first decision about it."""
    threshold: NonNegativeFloat = 0.05
    """A member is copied if its fitness is greater by more than this, in units of the fitness."""
    perturb_probability: Fraction = 0.33
    """Probability that a numeric setting is perturbed at a decision, with or without a copy."""
    perturb_factor: Annotated[float, Field(gt=1.0, allow_inf_nan=False)] = 1.2
    """A perturbed setting is multiplied or divided by this, with equal probability."""
    report_interval_seconds: PositiveFloat = 1.0
    """Seconds between two reports of a learner. An order waits at most this long."""

    def objection(self, env: SuiteSettings) -> str | None:
        """Return why the fitness cannot be computed on the tasks of ``env``, in one sentence; None if it can.

        Raises:
            UnknownTaskError: a task does not exist or cannot be played.
        """
        if self.strategy == "none" or self.fitness != "human_normalised":
            return None
        references = suite_of(env).reference_scores()
        missing = [name for name in environment_spec(env).task_names if name not in references]
        if not missing:
            return None
        return (
            f"population.fitness human_normalised: there are no human scores for {', '.join(missing[:5])}; use episode_return, or a number "
            "of metrics.jsonl"
        )
