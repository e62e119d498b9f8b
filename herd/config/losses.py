"""Losses, by kind. A variant holds the settings of its equations, and says what else a run needs for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from herd.components.settings import Fraction, NonNegativeFloat, PositiveFloat, Section
from herd.components.user_code import USER_CODE

if TYPE_CHECKING:
    from herd.contract.spaces import EnvSpec

Head = Literal["policy_value", "dueling"]
"""Heads of the network. ``policy_value``: policy logits and a value. ``dueling``: advantages A(x, a) instead of logits, with Q = V + A."""


def needs_one_discrete_action(key: str, spec: EnvSpec) -> str | None:
    """Say that the setting ``key`` cannot be used unless actions are single numbers 0..A-1."""
    return None if spec.actions.is_discrete else f"{key} needs one discrete action, but these environments have actions of {spec.actions}"


class _Common(Section):
    reduction: Literal["sum", "mean"] = "sum"
    """How the loss is reduced over batch and time. The papers' learning rates assume the sum. ``mean`` divides by all trained rows of the
    batch, including replayed rows and rows that a trust region rejects."""

    @property
    def needs_whole_batch(self) -> bool:
        """Whether a micro-batch would be another loss than its share of the batch."""
        return False

    @property
    def draws_temperatures(self) -> bool:
        """Whether games are played at temperatures chosen by a bandit."""
        return False

    def objection(self, spec: EnvSpec) -> str | None:  # noqa: ARG002  variants override this
        """Say why the actions of ``spec`` cannot be learned, in one sentence that names the setting; None if they can."""
        return None

    @property
    def temperatures_learn(self) -> bool:
        """Whether the bandit learns from returns. If not, temperatures keep their initial distribution."""
        return False


class VTraceSettings(_Common):
    """Settings of V-trace, for all losses that use it (IMPALA section 4)."""

    correction: Literal["v_trace", "one_step", "epsilon", "none"] = "v_trace"
    """Off-policy correction: the four rows of IMPALA's Table 2."""
    clip_rho_threshold: PositiveFloat = 1.0
    """rho-bar. It decides which value function V-trace converges to."""
    clip_c_threshold: PositiveFloat = 1.0
    """c-bar. It decides how far corrections travel back. At most rho-bar."""
    clip_pg_rho_threshold: PositiveFloat = 1.0
    """Upper bound of the importance weight in the policy gradient."""
    lambda_: Fraction = 1.0
    """Extra discount of the trace (IMPALA, Remark 2)."""
    q_estimate: Literal["v_trace", "value", "v_target"] = "v_trace"
    """Target of the policy gradient. ``v_trace``: r + gamma * v_{s+1} (section 4.2, and LASER's eq. 2). ``value``: r + gamma * V(x_{s+1})
    (appendix E.3). ``v_target``: v_s (LASER's Algorithm 1)."""
    log_epsilon: PositiveFloat = 1e-6
    """Number that the ``epsilon`` correction adds inside the logarithm."""
    trust_region: Literal["none", "implied", "behaviour"] = "none"
    """LASER's trust region, for every step of online and replayed unrolls: a step is trained on only if the KL divergence from the trained
    policy to a reference is below the threshold. ``implied``: the reference is the policy whose values V-trace learns (section 4.3).
    ``behaviour``: the reference is the policy that acted (as Algorithm 1 prints)."""
    trust_region_threshold: PositiveFloat = 0.03
    """Threshold b of the trust region, in nats. The paper does not give it."""

    @model_validator(mode="after")
    def _trace_is_shorter_than_the_target(self) -> Self:
        if self.clip_c_threshold > self.clip_rho_threshold:
            raise ValueError("clip_c_threshold must not exceed clip_rho_threshold (Theorem 1 needs c-bar <= rho-bar)")
        return self

    def objection(self, spec: EnvSpec) -> str | None:
        """A trust region around the implied policy needs its closed form."""
        return needs_one_discrete_action("loss.trust_region implied", spec) if self.trust_region == "implied" else None

    @model_validator(mode="after")
    def _a_trust_region_is_v_traces(self) -> Self:
        if self.trust_region != "none" and self.correction != "v_trace":
            raise ValueError(f"trust_region {self.trust_region} needs correction v_trace, whose bias it bounds")
        return self


class ImpalaSettings(VTraceSettings):
    """IMPALA's actor-critic (sections 4 and 5.2.2)."""

    kind: Literal["impala"] = "impala"
    """IMPALA's policy gradient, value loss and entropy bonus."""
    baseline_cost: NonNegativeFloat = 0.5
    """Weight of the value loss."""
    entropy_cost: NonNegativeFloat = 0.01
    """Weight of the entropy bonus."""
    advantage_normalization: Literal["none", "batch"] = "none"
    """``batch``: advantages are normalised to mean 0 and mean square 1 over the batch (over a shard's part of it), as in PPO's code. Then
    the size of rewards does not change how much the policy moves. The batch is not split into micro-batches."""
    ratio_clip: PositiveFloat | None = None
    """PPO's epsilon (arXiv:1707.06347, eq. 7), as in APPO (arXiv:2006.11751): a step leaves the policy gradient once pi/mu is beyond
    1 + epsilon and its advantage is positive, or below 1 - epsilon and its advantage is negative. It bounds how far the noise of a few
    batches moves the policy. Null: no such bound."""

    head: ClassVar[Head] = "policy_value"

    @property
    def needs_whole_batch(self) -> bool:
        """Whether a micro-batch would be another loss than its share of the batch."""
        return self.advantage_normalization == "batch"


class DiceSettings(VTraceSettings):
    """DiCE: V by V-trace, Q by Retrace, and a policy gradient times the temperature (Table 5 for the defaults)."""

    kind: Literal["dice"] = "dice"
    """DiCE: games are played under temperatures that a bandit picks."""
    ablation: Literal["dice", "baseline", "random", "entropy"] = "dice"
    """Row of DiCE's Table 4. ``dice``: the bandit learns from the return of each game. ``random``: the bandit hands out temperatures and
    never learns. ``baseline``: tau is 1 and there is no bandit. ``entropy``: like ``dice``, with an entropy bonus of coefficient 1."""
    clip_rho_threshold: PositiveFloat = 1.05
    """rho-bar. It decides which value function V-trace converges to."""
    clip_c_threshold: PositiveFloat = 1.05
    """c-bar. It decides how far corrections travel back. At most rho-bar."""
    clip_pg_rho_threshold: PositiveFloat = 1.05
    """Upper bound of the importance weight in the policy gradient."""
    baseline_cost: NonNegativeFloat = 1.0
    """Weight of the value loss."""
    q_cost: NonNegativeFloat = 10.0
    """Weight of the Q loss."""
    policy_cost: NonNegativeFloat = 10.0
    """Weight of the policy gradient."""
    retrace_bootstrap: Literal["expected", "taken"] = "expected"
    """Next value in Retrace's differences. ``expected``: Q(x', .) averaged over the target policy. ``taken``: Q(x', a') of the action
    taken, as eq. (2) is printed."""

    head: ClassVar[Head] = "dueling"

    def objection(self, spec: EnvSpec) -> str | None:
        """Retrace averages Q over all actions, of which the network gives the advantages."""
        return needs_one_discrete_action("loss.kind dice", spec)

    @property
    def draws_temperatures(self) -> bool:
        """True except for ``baseline``."""
        return self.ablation != "baseline"

    @property
    def temperatures_learn(self) -> bool:
        """True except for ``random``."""
        return self.ablation != "random"


class CustomLossSettings(_Common):
    """A loss of your own: a function in a file outside this repository (docs/extending.md)."""

    kind: Literal["custom"] = "custom"
    """Your own loss: a function in a file of yours."""
    function: str = Field(pattern=USER_CODE)
    """Name of the function, ``module:function``. It is imported from the folder in which the command runs."""
    head: Head = "policy_value"
    """Heads of the network. ``policy_value``: policy logits and a value. ``dueling``: advantages instead of the logits."""
    options: dict[str, Any] = Field(default={})
    """Keyword arguments for the function."""

    def objection(self, spec: EnvSpec) -> str | None:
        """Advantages of all actions need one number for each."""
        return needs_one_discrete_action("loss.head dueling", spec) if self.head == "dueling" else None


LossSettings = Annotated[ImpalaSettings | DiceSettings | CustomLossSettings, Field(discriminator="kind")]
