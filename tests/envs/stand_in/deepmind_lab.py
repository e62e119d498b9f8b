"""A stand-in for DeepMind Lab that rejects what the real one rejects, with the same errors, as observed in a build of commit b1db91a.

Its game shows [seed, frames played, pixels looked to the right] modulo 256 in every pixel. A frame pays one point if it fires, minus
half
a point if it jumps. The game lasts ``FRAMES`` frames. It is stricter in one respect: the real Lab silently misreads an action
that is not contiguous.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

FRAMES = 22
"""Five steps of four frames, plus two."""
_SETTINGS = {"width", "height", "fps", "mixerSeed", "levelDirectory", "appendCommand"}
_OPTIONS = {"datasetPath", "logLevel", "allowHoldOutLevels", "episodeLengthSeconds", "randomSeed", "players"}
_OBSERVATIONS = {"RGB_INTERLEAVED", "RGB", "INSTR"}


class Lab:
    def __init__(
        self,
        level: str,
        observations: list[str],
        config: dict[str, str] | None = None,
        renderer: str = "software",
        level_cache: Any = None,
        temp_folder: str = "",
    ) -> None:
        if type(observations) is not list:
            raise TypeError(f"argument 2 must be list, not {type(observations).__name__}")
        if type(level) is not str or type(temp_folder) is not str or type(config) not in {dict, type(None)}:
            raise TypeError("bad argument type for built-in operation")
        config = config or {}
        if any(type(word) is not str for pair in config.items() for word in pair):
            raise TypeError("bad argument type for built-in operation")
        if renderer not in {"software", "hardware"}:
            raise RuntimeError(f'Failed to set renderer must be "hardware" or "software" actual "{renderer}"!')
        for name in observations:
            if name not in _OBSERVATIONS:
                raise ValueError(f"Unknown observation '{name}'.")
        for key, value in config.items():
            if key not in _SETTINGS | _OPTIONS:
                raise RuntimeError(f'Failed to init environment - "setting_overrides.lua:140: Invalid setting: "{key}" = "{value}"')
        if level.endswith("/crash"):
            os._exit(11)
        if level.endswith("/nope"):
            raise RuntimeError(f"Failed to init environment - \"Level not found: Failed to open file\n'levels/{level}.lua'\"")
        if level.endswith("_test") and config.get("allowHoldOutLevels") != "true":
            raise RuntimeError('Failed to init environment - "test_only.lua:33: This level must only be used during evaluation.')
        self.level, self.config, self.level_cache, self.temp_folder = level, config, level_cache, temp_folder
        self._names = observations
        self._status = "not started"

    def reset(self, episode: int = -1, seed: int | None = None) -> bool:  # noqa: ARG002  as the Lab has it
        if seed is not None and type(seed) is not int:
            raise ValueError(f"'seed' must be int or None, was '{type(seed).__module__}.{type(seed).__name__}'.")
        self.seed = 0 if seed is None else seed
        if "explore" in self.level and self.level_cache is not None:
            self._load_map()
        self._status, self._frames, self._looked = "running", 0, 0
        return True

    def _load_map(self) -> None:
        key = f"lt_procedural/aas {self.seed}"
        path = os.path.join(self.temp_folder, "lt_procedural.pk3")
        if os.path.exists(path):
            os.unlink(path)
        if self.level_cache.fetch(key, path):
            with open(path) as file:
                assert file.read() == f"map of {key}"
            self.compiled = False
        else:
            with open(path, "w") as file:
                file.write(f"map of {key}")
            self.level_cache.write(key, path)
            self.compiled = True

    def step(self, action: np.ndarray, num_steps: int = 1) -> float:
        if type(action) is not np.ndarray:
            raise TypeError(f"argument 1 must be numpy.ndarray, not {type(action).__name__}")
        if action.dtype != np.intc:
            raise ValueError("action must have dtype np.intc")
        if action.shape != (7,):
            raise ValueError("action must have shape (7)")
        assert action.flags.c_contiguous, "the Lab reads the memory as it lies"
        self._require_running("Environment in wrong status to advance.")
        reward = 0.0
        for _ in range(num_steps):
            self._frames += 1
            self._looked += int(action[0])
            reward += float(action[4]) - 0.5 * float(action[5])
            if self._frames == FRAMES:
                self._status = "over"
                break
        return reward

    def observations(self) -> dict[str, Any]:
        self._require_running("Environment in wrong status for call to observations()")
        height, width = int(self.config.get("height", 240)), int(self.config.get("width", 320))
        frame = np.empty((height, width, 3), np.uint8)
        frame[:] = [number % 256 for number in (self.seed, self._frames, self._looked)]
        says = f"fetch object {self.seed}" if "language" in self.level else ""
        every = {"RGB_INTERLEAVED": frame, "RGB": frame.transpose(2, 0, 1).copy(), "INSTR": says}
        return {name: every[name] for name in self._names}

    def is_running(self) -> bool:
        return self._status == "running"

    def num_steps(self) -> int:
        return self._frames

    def close(self) -> bool:
        was_open, self._status = self._status != "closed", "closed"
        return was_open

    def _require_running(self, complaint: str) -> None:
        if self._status != "running":
            raise RuntimeError(complaint)
