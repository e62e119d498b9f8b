"""DiCE."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from herd.components.losses import Head, VTraceSettings
from herd.components.registry import Part, needs_one_discrete_action
from herd.components.settings import NonNegativeFloat, PositiveFloat

if TYPE_CHECKING:
    from herd.contract.spaces import EnvSpec


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
    """Value of the next state in Retrace's temporal differences. ``expected``: Q(x', .) averaged over the target policy. ``taken``: Q(x',
    a') of the action taken, as eq. (2) is printed."""

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


PART = Part("dice", DiceSettings, f"{__name__}.loss:dice")
