"""Losses. The code of a part is a function ``(Forward, settings) -> LossOutput``; both types are in `herd.components.losses.api`."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal, Self

from pydantic import model_validator

from herd.components.registry import PartSettings, Registry, needs_one_discrete_action
from herd.components.settings import Fraction, PositiveFloat

if TYPE_CHECKING:
    from herd.contract.spaces import EnvSpec

Head = Literal["policy_value", "dueling"]
"""Heads of the network. ``policy_value``: policy logits and a value. ``dueling``: advantages A(x, a) instead of logits, with Q = V + A."""


class LossSettings(PartSettings):
    """What all losses have."""

    reduction: Literal["sum", "mean"] = "sum"
    """How the loss is reduced over batch and time. The papers' learning rates assume the sum. ``mean`` divides by all trained rows of the
    batch, including replayed rows and rows that a trust region rejects."""

    if TYPE_CHECKING:
        head: ClassVar[Head]
        """Heads of the network that the loss trains."""

    def check(self) -> None:
        """Raise UserCodeError if the code of the user that these settings name cannot be used."""

    @property
    def needs_whole_batch(self) -> bool:
        """Whether a micro-batch would be another loss than its share of the batch."""
        return False

    @property
    def draws_temperatures(self) -> bool:
        """Whether games are played at temperatures chosen by a bandit."""
        return False

    @property
    def temperatures_learn(self) -> bool:
        """Whether the bandit learns from returns. If not, temperatures keep their initial distribution."""
        return False


class VTraceSettings(LossSettings):
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
        objection = needs_one_discrete_action("loss.trust_region implied", spec) if self.trust_region == "implied" else None
        return None if objection is None else f"{objection}: use behaviour"

    @model_validator(mode="after")
    def _a_trust_region_is_v_traces(self) -> Self:
        if self.trust_region != "none" and self.correction != "v_trace":
            raise ValueError(f"trust_region {self.trust_region} needs correction v_trace, whose bias it bounds")
        return self


LOSSES = Registry("loss", __name__, LossSettings, first=("impala", "dice", "custom"))
