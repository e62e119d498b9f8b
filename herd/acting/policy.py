"""The policy interface, and the device and precision of its network.

Requests and answers are separate steps, so that other environments can be stepped in between.

E environments, S numbers of the core's state, C H W one frame, D numbers of a vector, L words of an
instruction, P parameters of an action distribution, M entries of a mask.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeVar, overload

import numpy as np
import torch

from herd.algorithms.rewards import clip_last_rewards
from herd.run.checkpoints import CheckpointError
from herd.run.tensors import decode_weights, load_into
from herd.service.host import choose_precision, cpu_gains_from_bfloat16
from herd.service.startup import BadInputError
from herd.telemetry.logs import warn_limited

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from herd.agent import Agent
    from herd.config.run import RunSettings
    from herd.contract.unroll import Array
    from herd.protocols.weights.client import WeightsClient, WeightsFrame
    from herd.service.host import Precision


class Rows(NamedTuple):
    """One row of E environments: all inputs of a policy."""

    frames: NDArray[np.uint8] | None
    """[E, stack * C, H, W], oldest first, in any memory order; valid until the next row. None if observations have no frames."""
    vectors: NDArray[np.float32] | None
    """[E, D]; None if observations have only frames."""
    instructions: NDArray[np.int64] | None
    """[E, L]; None if the suite has no instructions."""
    game_reset: NDArray[np.bool_]
    """[E]: whether the row's newest frame is the first of its game."""
    core_reset: NDArray[np.bool_]
    """[E]: whether the core's state is set to its initial one before this row."""
    core_state: NDArray[np.float32]
    """[E, S] before this row."""
    action_masks: NDArray[np.bool_] | None
    """[E, M]: what is allowed; None if these actions have no mask."""
    last_actions: Array
    """[E, *shape]; ignored where ``core_reset`` is true, as there is none."""
    last_rewards: NDArray[np.float32]
    """[E], raw."""
    inverse_temperatures: NDArray[np.float32] | None
    """[E]: 1/tau, of the policy that acts; None: tau is 1."""
    wants_state: bool = True
    """Whether the answer must have the core's state after the row."""


Version = tuple[int, int]
"""(lineage, learner updates) of weights."""


class PolicyStep(NamedTuple):
    """The policy's answer for one row."""

    actions: Array
    """[E, *shape], as in the space of the actions."""
    behaviour_parameters: NDArray[np.float32]
    """[E, P] of the distribution that the actions were drawn from, before any temperature."""
    values: NDArray[np.float32]
    """[E, K]: values of shaped and discounted future rewards, one for all tasks or one for each. [E, 0] if the policy returns none."""
    core_state: NDArray[np.float32] | None
    """[E, S] after the row; None if it was not asked for, and somebody else keeps it."""
    version: Version = (0, 0)
    """Version of the weights."""


Ticket = TypeVar("Ticket")


class Policy(Protocol[Ticket]):
    """Chooses actions. It stores no state of environments between rows; `RowState` does.

    So one policy may serve several groups of environments, each with a row under way.
    """

    def submit(self, rows: Rows) -> Ticket:
        """Request the actions of one row; pass the ticket to `collect`."""
        ...

    def collect(self, ticket: Ticket) -> PolicyStep:
        """Wait for the answer. Each ticket must be collected once."""
        ...


def inference_precision(settings: RunSettings) -> torch.dtype:
    """Return the precision of the acting network's torso: bfloat16 if it is set, or if ``auto`` and this CPU is faster with it."""
    return precision_of(settings.actor.inference_precision, torch.device("cpu"))


class LocalPolicy:
    """Samples from a network on this machine's CPU, or takes its most probable action. `submit` computes at once."""

    def __init__(self, agent: Agent, *, seed: int, precision: torch.dtype, greedy: bool = False) -> None:
        """Copy ``agent`` for inference in ``precision``; ``seed`` is the random seed of the sampling."""
        self._agent = agent.for_inference(precision)
        self._action_dtype = np.dtype(agent.distribution.space.dtype)
        self._generator = torch.Generator().manual_seed(seed)
        self._greedy = greedy
        self._version = (0, 0)

    def load(self, tensors: Mapping[str, torch.Tensor], version: Version = (0, 0)) -> None:
        """Use new weights from the next row on.

        Raises:
            CheckpointError: the tensors belong to another network; the old weights are kept.
        """
        load_into(self._agent, tensors)
        self._version = version

    @torch.inference_mode()
    def submit(self, rows: Rows) -> PolicyStep:
        """See `Policy`."""
        output, core_state = self._agent(
            _row(rows.frames),
            _row(rows.core_reset),
            torch.from_numpy(rows.core_state),
            _row(rows.last_actions),
            clip_last_rewards(torch.from_numpy(rows.last_rewards)).unsqueeze(0),
            _row(rows.instructions),
            _row(rows.vectors),
        )
        parameters, distribution = output.parameters[0], self._agent.distribution
        mask = None if rows.action_masks is None else torch.from_numpy(rows.action_masks)
        if self._greedy:
            actions = distribution.at(parameters, mask=mask).mode()
        else:
            inverse = rows.inverse_temperatures
            temperature = None if inverse is None else torch.from_numpy(inverse)
            actions = distribution.at(parameters, inverse_temperature=temperature, mask=mask).sample(self._generator)
        # An empty state is returned unchanged; wrapping it again at every row would create an endless chain.
        after = core_state.numpy() if rows.core_state.size else rows.core_state
        return PolicyStep(actions.numpy().astype(self._action_dtype), parameters.numpy(), output.values[0].numpy(), after, self._version)

    def collect(self, ticket: PolicyStep) -> PolicyStep:
        """See `Policy`."""
        return ticket


@overload
def _row(array: NDArray[Any]) -> torch.Tensor: ...
@overload
def _row(array: NDArray[Any] | None) -> torch.Tensor | None: ...
def _row(array: NDArray[Any] | None) -> torch.Tensor | None:
    """Return [E, ...] as one row of E unrolls, [1, E, ...]."""
    return None if array is None else torch.from_numpy(array).unsqueeze(0)


UNUSABLE_SECONDS = 1.0
"""Pause after unusable weights: the server still has them and would send them again each time."""


def load_received(
    client: WeightsClient, frame: WeightsFrame, load: Callable[[Mapping[str, torch.Tensor], Version], None], **about: object
) -> bool:
    """Pass received weights to ``load``; False if it cannot use them, which is logged with ``about``, and ``client`` pauses.

    They may be damaged, of another network, or with numbers that are not finite. Whoever acts continues with the weights that it has.
    """
    try:
        load(decode_weights(*frame.slices), frame.version)
    except CheckpointError as error:
        client.pause(UNUSABLE_SECONDS)
        warn_limited("weights unusable", "dropped weights that cannot be used", reason=str(error), **about)
        return False
    return True


def parse_device(wanted: str, key: str) -> torch.device:
    """Return the GPU, or the CPU if ``auto`` finds none; ``key`` is the name of the setting.

    Raises:
        BadInputError: cuda is wanted, and torch finds no GPU.

    """
    has_gpu = torch.cuda.is_available()
    if wanted == "cuda" and not has_gpu:
        raise BadInputError(f"{key} cuda: torch finds no GPU here; choose auto or cpu")
    return torch.device("cuda" if has_gpu and wanted != "cpu" else "cpu")


def precision_of(wanted: Precision | Literal["auto"], device: torch.device) -> torch.dtype:
    """Return the type in which convolutions and matrix products are computed on ``device``."""
    gains = torch.cuda.is_bf16_supported() if device.type == "cuda" else cpu_gains_from_bfloat16()
    return torch.bfloat16 if choose_precision(wanted, gains_from_bfloat16=gains) == "bfloat16" else torch.float32
