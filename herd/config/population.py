"""Population based training: how agents of one run copy each other and change what is swept (IMPALA, appendix F)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from herd.config.section import Fraction, NonNegativeFloat, NonNegativeInt, Port, PositiveFloat, PositiveInt, Section


class PopulationSettings(Section):
    """The agents of a run as members of a population. ``sweep`` says which settings they have of their own, and the first values."""

    strategy: Literal["none", "pbt"] = "none"
    """``none``: every agent keeps its values, and the run is a sweep; ``pbt``: a member whose games are enough copies a better one, and
    changes its numbers, under the rules below."""
    fitness: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")] = "human_normalised"
    """``human_normalised``: mean over tasks of the human-normalised score, each at most 1; ``episode_return``: mean raw return; both over
    the newest ``fitness_episodes`` games. Any other name: that number of the newest point of metrics.jsonl. Greater is better."""
    fitness_episodes: PositiveInt = 5000
    """Games, of all tasks together, that a member's fitness is taken over, and that it plays between decisions."""
    burn_in_env_frames: NonNegativeInt = 20_000_000
    """Of a member's own frames; before them nothing is decided for it."""
    threshold: NonNegativeFloat = 0.05
    """A member is copied where its fitness is greater by more than this, absolute, in units of the fitness."""
    perturb_probability: Fraction = 0.33
    """Of each numeric setting at each decision, whether or not there was a copy."""
    perturb_factor: Annotated[float, Field(gt=1.0, allow_inf_nan=False)] = 1.2
    """A setting is multiplied or divided by it, one as likely as the other."""
    report_interval_seconds: PositiveFloat = 1.0
    """Between reports of a learner, and so the longest wait for an order to reach it."""
    host: str = "127.0.0.1"
    """Interface that the request socket binds."""
    port: Port = 7500
    """Of the request socket; ``herd train`` replaces 0 by a free port."""
    metrics_host: str = "127.0.0.1"
    """Interface of the metrics and health endpoint."""
    metrics_port: Port = 0
    """0 takes a free port."""
