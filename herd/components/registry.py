"""Finds the parts that a section of settings chooses among: Herd's own folders, and those of installed packages.

A part is a folder, or a package of somebody else's, whose ``__init__`` has the part's settings and a `Part`, and loads no torch. Everybody
reads settings, but only some processes run the code, so the `Part` names the code and it is imported on first use.
"""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, TypeVar, Union, get_args, get_origin

from pydantic import Field

from herd.components.settings import Section

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from herd.contract.spaces import EnvSpec

SettingsT = TypeVar("SettingsT", bound="PartSettings")


@cache
def _points() -> Any:
    return entry_points()  # a scan of all installed packages takes 10 to 17 ms


class PartSettings(Section):
    """The settings of a part. Each has the field ``kind``, a literal that is its own default."""

    if TYPE_CHECKING:
        kind: str = ""

    def objection(self, spec: EnvSpec) -> str | None:  # noqa: ARG002  for subclasses
        """Say why it cannot be used in these environments, in one sentence that names the setting; None if it can."""
        return None


def needs_one_discrete_action(key: str, spec: EnvSpec) -> str | None:
    """Say that the setting ``key`` cannot be used unless actions are single numbers 0..A-1."""
    return None if spec.actions.is_discrete else f"{key} needs one discrete action, but these environments have actions of {spec.actions}"


@dataclass(frozen=True, slots=True)
class Part(Generic[SettingsT]):
    """One choice of ``kind``."""

    kind: str
    """As in the settings."""
    settings: type[SettingsT]
    """Its settings. The name of the class is unique in the program."""
    code: str = ""
    """``module:name`` of the code. What it is called with depends on the section. Empty: this choice does nothing."""

    def load(self) -> Any:
        """Import the code."""
        return pkgutil.resolve_name(self.code)


class Registry(Generic[SettingsT]):
    """The parts of one section."""

    def __init__(
        self, section: str, package: str, base: type[SettingsT], *, first: Sequence[str] = (), discriminator: str = "kind"
    ) -> None:
        """Herd's own parts are the folders of ``package``; others are entry points of the group that `group` names.

        Args:
            section: name of the section, for messages.
            package: dotted name of the package whose folders are parts.
            base: class that all settings of the section extend.
            first: kinds that come first, in this order, where choices are listed. The first one is the default.
            discriminator: the key that chooses.
        """
        self._section = section
        self._package = package
        self._base = base
        self._first = tuple(first)
        self._discriminator = discriminator

    @property
    def group(self) -> str:
        """Group of entry points, such as ``herd.losses``."""
        return f"herd.{self._package.rpartition('.')[2]}"

    @property
    def parts(self) -> Mapping[str, Part[SettingsT]]:
        """The usable parts, by kind."""
        return self._found[0]

    @property
    def broken(self) -> Mapping[str, str]:
        """Parts of other packages that cannot be loaded, by kind, with one line about the cause. Runs that do not use them go on."""
        return self._found[1]

    def union(self) -> Any:
        """The annotation of the section: a union of the parts' settings, discriminated by the key that chooses."""
        models = tuple(part.settings for part in self.parts.values())
        return Annotated[Union[models], Field(discriminator=self._discriminator)]  # noqa: UP007  the number of members is not known here

    def default(self) -> SettingsT:
        """The settings of the default part."""
        return next(iter(self.parts.values())).settings()

    def load(self, settings: SettingsT) -> Any:
        """Import the code of the part that has these settings; None if it has none."""
        part = self.parts[getattr(settings, self._discriminator)]
        return part.load() if part.code else None

    def make(self, settings: SettingsT, *context: object) -> Any:
        """Call the code with the whole settings and what else the section says; None if the part has no code."""
        code = self.load(settings)
        return None if code is None else code(settings, *context)

    @cached_property
    def _found(self) -> tuple[Mapping[str, Part[SettingsT]], Mapping[str, str]]:
        package = find_spec(self._package)
        assert package is not None
        folders = [folder.name for folder in pkgutil.iter_modules(package.submodule_search_locations) if folder.ispkg]
        own: list[Part[SettingsT]] = [importlib.import_module(f"{self._package}.{folder}").PART for folder in folders]
        listed = {kind: place for place, kind in enumerate(self._first)}
        usable = {part.kind: part for part in sorted(own, key=lambda part: (listed.get(part.kind, len(listed)), part.kind))}
        broken: dict[str, str] = {}
        for point in _points().select(group=self.group):
            told = f"{self._section} {point.name} of {point.value}"
            if point.name in usable:
                broken[f"{point.name} of {point.value}"] = f"{told} is ignored: another one has this name"
                continue
            try:
                usable[point.name] = self._checked(point.load(), point.name)
            except Exception as error:
                broken[point.name] = f"{told} cannot be loaded: {type(error).__name__}: {' '.join(str(error).split())}"
        return usable, broken

    def _checked(self, part: Any, kind: str) -> Part[SettingsT]:
        if not isinstance(part, Part):
            raise TypeError("it is not a Part")
        if not (isinstance(part.settings, type) and issubclass(part.settings, self._base)):
            raise TypeError(f"its settings are not a {self._base.__name__}")
        key = self._discriminator
        field = part.settings.model_fields.get(key)
        if field is None or get_origin(field.annotation) is not Literal or get_args(field.annotation) != (kind,) or field.default != kind:
            raise TypeError(f"its settings need the field {key}: Literal[{kind!r}] = {kind!r}")
        return part
