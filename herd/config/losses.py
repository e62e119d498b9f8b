"""Losses, by kind. A variant holds what its equations read, and says what else a run needs for it."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from herd.config.section import Fraction, NonNegativeFloat, PositiveFloat, Section
from herd.config.user_code import USER_CODE

Head = Literal["policy_value", "dueling"]
"""Of the network. ``policy_value``: policy logits beside a value; ``dueling``: advantages A(x, a) in their place, of Q = V + A."""


class _Common(Section):
    reduction: Literal["sum", "mean"] = "sum"
    """Over batch and time. The papers' learning rates assume the sum. ``mean`` divides by all trained rows of the batch: online and
    replayed ones, and those too that a trust region rejects."""

    @property
    def needs_whole_batch(self) -> bool:
        """Whether a micro-batch would be another loss than its share of the batch."""
        return False

    @property
    def draws_temperatures(self) -> bool:
        """Whether games are played under temperatures that a bandit hands out."""
        return False

    @property
    def temperatures_learn(self) -> bool:
        """Whether the bandit learns from returns; if not, temperatures keep their first distribution."""
        return False


class VTraceSettings(_Common):
    """What V-trace reads, whichever loss it is part of (IMPALA section 4)."""

    correction: Literal["v_trace", "one_step", "epsilon", "none"] = "v_trace"
    """Off-policy correction: the four rows of IMPALA's Table 2."""
    clip_rho_threshold: PositiveFloat = 1.0
    """rho-bar: which value function V-trace converges to."""
    clip_c_threshold: PositiveFloat = 1.0
    """c-bar: how far corrections travel back; at most rho-bar."""
    clip_pg_rho_threshold: PositiveFloat = 1.0
    """Clips the importance weight of the policy gradient."""
    lambda_: Fraction = 1.0
    """Remark 2's extra discount of the trace."""
    q_estimate: Literal["v_trace", "value", "v_target"] = "v_trace"
    """Policy-gradient target: r + gamma * v_{s+1} (section 4.2, and LASER's eq. 2), r + gamma * V(x_{s+1}) (appendix E.3), or v_s itself
    (LASER's Algorithm 1)."""
    log_epsilon: PositiveFloat = 1e-6
    """Added inside the logarithm by the ``epsilon`` correction."""
    trust_region: Literal["none", "implied", "behaviour"] = "none"
    """LASER's gate, for every step of online and replayed unrolls: a step is learned from only where the KL divergence from the trained
    policy to this one stays below the threshold. ``implied``: the policy whose values V-trace learns (section 4.3); ``behaviour``: the
    one that acted (as Algorithm 1 is printed)."""
    trust_region_threshold: PositiveFloat = 0.03
    """b, in nats; the paper does not give it. Read where there is a trust region."""

    @model_validator(mode="after")
    def _trace_is_shorter_than_the_target(self) -> Self:
        if self.clip_c_threshold > self.clip_rho_threshold:
            raise ValueError("clip_c_threshold must not exceed clip_rho_threshold (Theorem 1 needs c-bar <= rho-bar)")
        return self

    @model_validator(mode="after")
    def _a_trust_region_is_v_traces(self) -> Self:
        if self.trust_region != "none" and self.correction != "v_trace":
            raise ValueError(f"trust_region {self.trust_region} needs correction v_trace: it bounds the bias of clipped ratios")
        return self


class ImpalaSettings(VTraceSettings):
    """IMPALA's actor-critic (sections 4 and 5.2.2)."""

    kind: Literal["impala"] = "impala"
    """IMPALA's policy gradient, value loss and entropy bonus."""
    baseline_cost: NonNegativeFloat = 0.5
    """Multiplies the value loss."""
    entropy_cost: NonNegativeFloat = 0.01
    """Multiplies the entropy bonus."""
    advantage_normalization: Literal["none", "batch"] = "none"
    """``batch``: the advantages of a batch (of a shard's part of it) are made to have mean 0 and mean square 1, as in PPO's code, so that
    neither rewards nor the clipping of gradients decide how much the policy moves. The whole part is then one forward pass."""

    head: ClassVar[Head] = "policy_value"

    @property
    def needs_whole_batch(self) -> bool:
        """Whether a micro-batch would be another loss than its share of the batch."""
        return self.advantage_normalization == "batch"


class DiceSettings(VTraceSettings):
    """DiCE: V by V-trace, Q by Retrace, and a policy gradient times the temperature (Table 5 for the defaults)."""

    kind: Literal["dice"] = "dice"
    """DiCE acts under temperatures, which a bandit hands out for each game."""
    ablation: Literal["dice", "baseline", "random", "entropy"] = "dice"
    """Row of DiCE's Table 4. ``dice``: the bandit learns from each game's return; ``random``: it hands out temperatures and never learns;
    ``baseline``: tau is 1, and there is no bandit; ``entropy``: as ``dice``, with an entropy bonus of coefficient 1."""
    clip_rho_threshold: PositiveFloat = 1.05
    """rho-bar: which value function V-trace converges to."""
    clip_c_threshold: PositiveFloat = 1.05
    """c-bar: how far corrections travel back; at most rho-bar."""
    clip_pg_rho_threshold: PositiveFloat = 1.05
    """Clips the importance weight of the policy gradient."""
    baseline_cost: NonNegativeFloat = 1.0
    """Multiplies the value loss."""
    q_cost: NonNegativeFloat = 10.0
    """Multiplies the Q loss."""
    policy_cost: NonNegativeFloat = 10.0
    """Multiplies the policy gradient."""
    retrace_bootstrap: Literal["expected", "taken"] = "expected"
    """Of Retrace's differences: Q(x', .) expected under the target policy, or Q(x', a') of the action taken, as eq. (2) is printed."""

    head: ClassVar[Head] = "dueling"

    @property
    def draws_temperatures(self) -> bool:
        """All but ``baseline`` do."""
        return self.ablation != "baseline"

    @property
    def temperatures_learn(self) -> bool:
        """All but ``random`` do."""
        return self.ablation != "random"


class CustomLossSettings(_Common):
    """A loss of your own: a function in a file outside this repository (docs/extending.md)."""

    kind: Literal["custom"] = "custom"
    """A function of your own."""
    function: str = Field(pattern=USER_CODE)
    """``module:function``, found from the folder that the command is run in."""
    head: Head = "policy_value"
    """Of the network. ``policy_value``: policy logits beside a value; ``dueling``: advantages in the place of the logits."""
    options: dict[str, Any] = Field(default={})
    """Keyword arguments of the function."""


LossSettings = Annotated[ImpalaSettings | DiceSettings | CustomLossSettings, Field(discriminator="kind")]
