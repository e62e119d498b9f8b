"""Which lineage this learner process publishes under.

A version is (lineage, learner_updates). Every start of a learner opens a lineage higher than any that was ever published
from this run directory, so no number ever means two different weights, even where the last process died before its
first checkpoint.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

LINEAGE_FILE = "lineage.json"


class LineageError(Exception):
    """The file that remembers lineages is damaged; one line."""


def open_lineage(run_dir: Path, at_least: int = 0) -> int:
    """Take the next lineage (from 1 on, and not below ``at_least``) and put it on disk before anyone sees it.

    Raises:
        LineageError: the file is there and damaged: going on without it could give one number two meanings.
        OSError: the directory cannot be written.
    """
    path = run_dir / LINEAGE_FILE
    try:
        last = int(json.loads(path.read_text())["lineage"])
    except FileNotFoundError:
        last = 0
    except (ValueError, KeyError, TypeError) as error:
        raise LineageError(f"{path}: does not hold a lineage; remove it, and the learner goes beyond its checkpoint's") from error
    lineage = max(last + 1, at_least)
    temporary = path.with_suffix(".tmp")
    with temporary.open("w") as file:
        json.dump({"lineage": lineage}, file)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    return lineage
