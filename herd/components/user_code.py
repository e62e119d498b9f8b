"""A user's own code, named as ``module:name``: an environment, a torso, a loss or a hook in a file of the user's.

In every process of a run, the folder in which the command was run comes first on Python's module path.
"""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from pathlib import Path
from typing import Any

_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
USER_CODE = rf"^{_NAME}(\.{_NAME})*:{_NAME}(\.{_NAME})*$"
"""Pattern of a name of user code; ``mine:make`` is ``make`` in mine.py."""


class UserCodeError(ValueError):
    """The code that a setting names cannot be used; one line."""


def load_user_code(name: str, setting: str) -> Any:
    """Return the object that ``module:name`` names.

    Raises:
        UserCodeError: the module cannot be imported or has no such attribute; the line begins with ``setting``.
    """
    module_name, _, attribute = name.partition(":")
    folder = os.getcwd()
    if folder not in sys.path and "" not in sys.path:
        sys.path.insert(0, folder)
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module_name}.".startswith(f"{error.name}."):
            raise UserCodeError(f"{setting} {name}: module {error.name} is neither in {folder} nor installed") from error
        raise UserCodeError(f"{setting} {name}: {module_name} needs {error.name}, which is not installed") from error
    except Exception as error:
        raise UserCodeError(f"{setting} {name}: {module_name} cannot be imported: {failure(error)}") from error
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise UserCodeError(f"{setting} {name}: {module_name} has no {attribute}")
        found = getattr(found, part)
    return found


def failure(error: BaseException) -> str:
    """Describe in one line what a user's code raised, and where: ``TypeError: ... (mine.py, line 3)``."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {' '.join(str(error).split())} ({Path(place.filename).name}, line {place.lineno})"
