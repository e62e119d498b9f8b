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


def open_lineage(run_dir: Path, at_least: int = 0) -> int:
    """Take the next lineage (from 1 on, and not below ``at_least``) and put it on disk before anyone sees it.

    Raises:
        OSError: the directory cannot be written.
    """
    path = run_dir / LINEAGE_FILE
    try:
        last = int(json.loads(path.read_text())["lineage"])
    except FileNotFoundError:
        last = 0
    lineage = max(last + 1, at_least)
    temporary = path.with_suffix(".tmp")
    with temporary.open("w") as file:
        json.dump({"lineage": lineage}, file)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    return lineage
