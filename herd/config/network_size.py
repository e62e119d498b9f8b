"""Upper bound of the size of a run's published weights, for services that pass them on without torch.

It is computed from the settings, for the networks that ``herd.networks`` builds: weights of convolutions, products and LSTMs, with a
margin for biases, norms and names. The tests compare it with the networks themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from herd.config.settings import NetworkSettings, RunSettings
    from herd.contract.spaces import EnvSpec

BYTES_PER_PARAMETER = 4
"""Bytes of a float32; a bfloat16 has half of them."""
MARGIN = 1.25
"""Factor for biases, norms and slice headers."""
LEAST_BYTES = 1 << 20
"""Constant for everything small."""
OWN_TORSO_BYTES = 256 << 20
"""Bound for a user's own torso, whose size is unknown: 64 M parameters."""


def max_weights_bytes(settings: RunSettings, spec: EnvSpec) -> int:
    """Return the bound for one version, over all slices; ``paramserver.max_version_bytes`` if it is set."""
    if settings.paramserver.max_version_bytes is not None:
        return settings.paramserver.max_version_bytes
    network = settings.network
    if ":" in network.torso:
        return OWN_TORSO_BYTES
    features, count = _torso(network, spec)
    beside = (64 if network.language else 0) + (spec.actions.num_actions + 1 if network.last_action_and_reward else 0)
    # The word embeddings and the LSTM that reads them.
    count += spec.num_words * 20 + 4 * 64 * (20 + 64) if network.language else 0
    if network.core == "lstm":
        inputs, features = features + beside, network.core_size
        count += 4 * features * (inputs + features)
    elif beside:
        inputs, features = features + beside, 256
        count += inputs * features
    count += features * (spec.actions.num_actions + settings.value_scaling.num_values(len(spec.task_names)))
    return LEAST_BYTES + int(MARGIN * BYTES_PER_PARAMETER * count)


def _torso(network: NetworkSettings, spec: EnvSpec) -> tuple[int, int]:
    """Return the torso's number of features and of weights."""
    height, width, _ = spec.frame_shape
    channels, wide, numbers = spec.observation_channels, network.width_multiplier, spec.vector_size
    match network.torso:
        case "mlp":
            return 256, (height * width * channels + numbers) * 256 + 256 * 256
        case "deep":
            features, count = 256, 0
            for section in (16 * wide, 32 * wide, 32 * wide):
                count += 9 * section * (channels + 4 * section)
                channels, height, width = section, (height + 1) // 2, (width + 1) // 2
        case _:
            features = 512 if network.torso == "nature" else 256
            layers = ((32, 8, 4), (64, 4, 2), (64, 3, 1)) if network.torso == "nature" else ((16, 8, 4), (32, 4, 2))
            count = 0
            for out, kernel, stride in layers:
                count += channels * out * wide * kernel * kernel
                channels, height, width = out * wide, (height - kernel) // stride + 1, (width - kernel) // stride + 1
    count += height * width * channels * features
    return features, count + ((features + numbers) * features if numbers else 0)
