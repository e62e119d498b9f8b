"""How large a run's published weights are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from herd.envs.make import environment_spec

if TYPE_CHECKING:
    from herd.config.settings import RunSettings

BYTES_PER_PARAMETER = {"float32": 4, "bfloat16": 2}


class NoTorchError(ImportError):
    """The network cannot be built here; one line."""


def num_parameters(settings: RunSettings) -> int:
    """Of the run's network, all its heads included. Takes a second: it imports torch.

    Raises:
        NoTorchError: torch is not installed.

    """
    try:
        import torch  # noqa: PLC0415

        from herd.networks.agent import agent_of  # noqa: PLC0415
    except ImportError as error:
        raise NoTorchError("counting the network's parameters needs torch: pip install 'herd-rl[learner]'") from error

    with torch.device("meta"):
        agent = agent_of(settings, environment_spec(settings.env))
    return sum(parameter.numel() for parameter in agent.parameters())


def weights_bytes(settings: RunSettings, parameters: int) -> int:
    """Of one published version, but for the kilobyte of its headers."""
    return parameters * BYTES_PER_PARAMETER[settings.learner.weights_dtype]
