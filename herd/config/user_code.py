"""A user's own code, named as ``module:name``: an environment, a torso, a loss in a file of theirs.

The folder that a command is run in comes first on the path of modules, in every process of the run.
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
"""What a name of user code looks like; ``mine:make`` is ``make`` of mine.py."""


class UserCodeError(ValueError):
    """Code that a setting names cannot be used; one line."""


def load_user_code(name: str, setting: str) -> Any:
    """What ``module:name`` stands for.

    Raises:
        UserCodeError: the module cannot be imported, or has no such name; the line begins with ``setting``.
    """
    module_name, _, attribute = name.partition(":")
    folder = os.getcwd()
    if folder not in sys.path and "" not in sys.path:
        sys.path.insert(0, folder)
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module_name}.".startswith(f"{error.name}."):
            raise UserCodeError(f"{setting} {name}: there is no module {error.name} in {folder}, nor installed") from error
        raise UserCodeError(f"{setting} {name}: {module_name} needs {error.name}, which is not installed") from error
    except Exception as error:
        raise UserCodeError(f"{setting} {name}: {module_name} cannot be imported: {failure(error)}") from error
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise UserCodeError(f"{setting} {name}: {module_name} has no {attribute}")
        found = getattr(found, part)
    return found


def failure(error: Exception) -> str:
    """What a user's code raised, and where, in one line: ``TypeError: ... (mine.py, line 3)``."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {' '.join(str(error).split())} ({Path(place.filename).name}, line {place.lineno})"
