"""A loss of the user's own: a function in a file (docs/extending.md). A package can also add a kind of its own."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from herd.components.losses import Head, LossSettings
from herd.components.registry import Part, needs_one_discrete_action
from herd.components.user_code import USER_CODE, UserCodeError, load_user_code

if TYPE_CHECKING:
    from herd.components.losses.api import Forward, LossOutput
    from herd.contract.spaces import EnvSpec


class CustomLossSettings(LossSettings):
    """A loss of your own: a function in a file outside this repository (docs/extending.md)."""

    kind: Literal["custom"] = "custom"
    """Your own loss: a function in a file of yours."""
    function: str = Field(pattern=USER_CODE)
    """Name of the function, ``module:function``. It is imported from the folder in which the command runs."""
    head: Head = "policy_value"  # type: ignore[misc]  # of the other losses it is fixed
    """Heads of the network. ``policy_value``: policy logits and a value. ``dueling``: advantages instead of the logits."""
    options: dict[str, Any] = Field(default={})
    """Keyword arguments for the function."""

    def objection(self, spec: EnvSpec) -> str | None:
        """Advantages of all actions need one number for each."""
        return needs_one_discrete_action("loss.head dueling", spec) if self.head == "dueling" else None

    def check(self) -> None:
        """See `LossSettings`: there is no such function, or it does not accept these options; the text is one line."""
        function = load_user_code(self.function, "loss.function")
        try:
            inspect.signature(function).bind(None, **self.options)
        except TypeError as error:
            raise UserCodeError(f"loss.function {self.function} does not accept a Forward and loss.options: {error}") from error


def custom(forward: Forward, settings: CustomLossSettings) -> LossOutput:
    """Call ``loss.function`` with ``loss.options`` as keyword arguments."""
    output: LossOutput = load_user_code(settings.function, "loss.function")(forward, **settings.options)
    return output


PART = Part("custom", CustomLossSettings, f"{__name__}:custom")
