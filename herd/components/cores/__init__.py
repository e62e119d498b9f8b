"""Cores, between torso and heads. The code of a part makes a `herd.components.cores.api.Core` of ``(settings, num_inputs, design)``."""

from __future__ import annotations

from herd.components.registry import PartSettings, Registry


class CoreSettings(PartSettings):
    """What all cores have."""

    def state_size(self) -> int:
        """Return S, the number of floats of a state, which unrolls and requests carry; 0 for a core without memory."""
        return 0


CORES = Registry("network.core", __name__, CoreSettings, first=("none", "lstm", "gru", "gtrxl", "custom"))
