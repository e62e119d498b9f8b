"""Runs ``herd`` as a user would on the release under test."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.cluster.cluster_settings import REPOSITORY

if TYPE_CHECKING:
    from tests.cluster.conftest import Installed


def herd(installed: Installed, *words: str) -> str:
    """Run ``herd WORDS`` and return what it prints."""
    context = ["--context", installed.settings.context] if installed.settings.context else []
    where = ["--release", installed.helm.name, "--namespace", installed.helm.namespace]
    done = subprocess.run(
        [sys.executable, "-m", "herd.cli.main", *words, *where, *context],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        timeout=installed.settings.timeout_seconds,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
