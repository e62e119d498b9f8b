"""The settings of every suite of environments that is installed, as the variants of one section.

A suite registers itself by an entry point of the group ``herd.suites``, which loads an object with the attribute ``settings``: a
`SuiteSettings` whose field ``suite`` is a literal of the suite's name. So a package of anybody's adds a suite, and nothing here changes.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Union

from pydantic import Field

from herd.config.section import PositiveInt, Section

if TYPE_CHECKING:
    from herd.config.settings import NetworkSettings

GROUP = "herd.suites"
_DEFAULT = "atari"


class SuiteSettings(Section):
    """What is played; each suite adds its own."""

    suite: str
    """Family of environments."""
    tasks: Annotated[tuple[str, ...], Field(min_length=1)]
    """What to play, by the suite's names."""
    action_repeat: PositiveInt = 1
    """Env frames per agent step."""

    makes_spaces: ClassVar[tuple[str, ...]] = ()
    """The settings, beside those above, that observations and actions follow from: named where two processes do not fit together."""

    def objection(self, network: NetworkSettings) -> str | None:  # noqa: ARG002  for those who have one
        """Why this network cannot play here, in one sentence that names the setting; None if it can."""
        return None


class SuiteError(RuntimeError):
    """A suite cannot be loaded: a fault of its package; one line."""


@cache
def installed_suites() -> dict[str, Any]:
    """What each entry point loads, by the suite's name.

    Raises:
        SuiteError: an installed suite cannot be imported.
    """
    suites = {}
    for point in entry_points(group=GROUP):
        try:
            suites[point.name] = point.load()
        except Exception as error:
            raise SuiteError(f"suite {point.name} of {point.value} cannot be loaded: {error}") from error
    return dict(sorted(suites.items()))


def suite_union() -> Any:
    """The annotation of ``env``: one of the installed suites' settings, told apart by ``suite``."""
    models = tuple(suite.settings for suite in installed_suites().values())
    return Annotated[Union[models], Field(discriminator="suite")]  # noqa: UP007  of a number that is not known here


def default_suite() -> SuiteSettings:
    """What is played where nothing is said."""
    settings: SuiteSettings = installed_suites()[_DEFAULT].settings()
    return settings
