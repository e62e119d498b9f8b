"""Caches compiled maps on a local disk for DeepMind Lab."""

from __future__ import annotations

import hashlib
import logging
import os
import secrets
import shutil
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_log = logging.getLogger(__name__)


class LevelCache:
    """The object that `deepmind_lab.Lab` accepts as ``level_cache``. Its exceptions would end the game, so disk errors are ignored.

    Processes share the folder without a lock: a map appears only when it is complete, and processes that compile the same map write the
    same data.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder.expanduser()
        self._complained = False

    def fetch(self, key: str, pk3_path: str) -> bool:
        """Copy the map of ``key`` to ``pk3_path``, if there is one."""
        try:
            shutil.copyfile(self._file(key), pk3_path)
        except FileNotFoundError:
            return False
        except OSError as error:
            self._complain(error)
            return False
        return True

    def write(self, key: str, pk3_path: str) -> None:
        """Store the map at ``pk3_path``."""
        file = self._file(key)
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            unfinished = file.with_suffix(f".{secrets.token_hex(8)}.part")
            try:
                shutil.copyfile(pk3_path, unfinished)
                os.replace(unfinished, file)
            except BaseException:
                with suppress(OSError):
                    os.unlink(unfinished)
                raise
        except OSError as error:
            self._complain(error)

    def _file(self, key: str) -> Path:
        # Keys may contain characters that file names do not allow. 256 subfolders keep each folder small.
        name = hashlib.sha256(key.encode()).hexdigest()
        return self._folder / name[:2] / f"{name}.pk3"

    def _complain(self, error: OSError) -> None:
        if not self._complained:
            self._complained = True
            _log.warning("env.level_cache %s cannot be used: %s", self._folder, error)
