"""Announcements of a run's processes: RUN/processes/<service>-<number>.json."""

from __future__ import annotations

import json
import logging
import os
from typing import TYPE_CHECKING

from herd.config.addresses import LOOPBACK, local_host, with_port
from herd.files import replace_file
from herd.run.paths import PROCESSES

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_log = logging.getLogger(__name__)


def announce_process(run_dir: Path, service: str, number: int, *, metrics_host: str, metrics_port: int) -> None:
    """Write RUN/processes/<service>-<number>.json, where the live view finds this process's metrics.

    If the file cannot be written, the process continues without being shown.
    """
    path = run_dir / PROCESSES / f"{service}-{number}.json"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, json.dumps({"pid": os.getpid(), "metrics_host": local_host(metrics_host), "metrics_port": metrics_port}))
    except OSError as error:
        _log.warning("cannot announce this process: %s: %s", path, error.strerror or error)


def metrics_address(announced: Mapping[str, object]) -> str:
    """``http://host:port`` of a process, from what it announced.

    Raises:
        KeyError, TypeError, ValueError: that is no announcement.

    """
    return f"http://{with_port(str(announced.get('metrics_host', LOOPBACK)), int(str(announced['metrics_port'])))}"
