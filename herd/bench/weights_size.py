"""The size of a run's published weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from herd.envs.make import environment_spec

if TYPE_CHECKING:
    from herd.config.settings import RunSettings

BYTES_PER_PARAMETER = {"float32": 4, "bfloat16": 2}


class NoTorchError(ImportError):
    """The network cannot be built here; the text is one line."""


def num_parameters(settings: RunSettings) -> int:
    """Return the number of parameters of the run's network, including all heads. Takes a second, because it imports torch.

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
    """Return the size of one published version, without its headers of about 1 kB."""
    return parameters * BYTES_PER_PARAMETER[settings.learner.weights_dtype]
