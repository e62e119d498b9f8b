"""Acts on batches of rows: states of all environments, policies of all agents, on a CPU or a GPU.

B environments of a batch, from one or more requests; N places of states; C H W one frame.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from herd.algorithms.rewards import clip_last_rewards
from herd.run.tensors import load_into
from herd_inference.stacks import Where, make_stacks

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from herd.acting.policy import Version
    from herd.agent import Agent
    from herd.contract.unroll import Array
    from herd.protocols.inference.rows import ActingLayout
    from herd_inference.sessions import Request


class Acting(NamedTuple):
    """A batch under way."""

    requests: Sequence[Request]
    version: Version
    """Version of the policy."""
    arrays: dict[str, Tensor]
    """`ActingLayout.answer_fields`, [B, ...] by name on the CPU. They must not be read before ``done``."""
    done: torch.cuda.Event | None
    """Event that signals the end; None: the batch is done."""


class Engine:
    """Computes one batch at a time. On a CPU `submit` computes it; on a GPU it returns while the GPU computes, and `collect` waits."""

    def __init__(
        self,
        agent: Agent,
        layout: ActingLayout,
        *,
        num_agents: int,
        num_places: int,
        max_batch: int,
        device: torch.device,
        precision: torch.dtype,
        seed: int,
    ) -> None:
        """Copy ``agent`` for each agent of the run. ``max_batch``: environments of the largest batch; ``seed``: of the sampling."""
        self._agents = [agent.for_inference(precision).to(device) for _ in range(num_agents)]
        self._versions: list[Version] = [(0, 0)] * num_agents
        self._device = device
        self._layout = layout
        self._generator = torch.Generator(device).manual_seed(seed)
        unroll = layout.unroll
        self._action_dtype = torch.int32 if unroll.actions.dtype == "<i4" else torch.float32
        self._core = torch.zeros(num_places, unroll.state_size, device=device)
        shape = layout.planes_shape(has_state=False)
        self._stacks = None
        self._staged = torch.empty(0, dtype=torch.uint8)
        if shape is not None:
            self._stacks = make_stacks(num_places, unroll.frame_stack, unroll.frame_shape, device)
            # Planes are collected here and copied to the device at once.
            self._staged = torch.empty(max_batch, *shape, dtype=torch.uint8, pin_memory=device.type == "cuda")

    def load(self, agent: int, tensors: Mapping[str, Tensor], version: Version) -> None:
        """Use new weights from the next batch on.

        Raises:
            CheckpointError: the tensors belong to another network; the old weights are kept.
        """
        load_into(self._agents[agent], tensors)
        self._versions[agent] = version

    @torch.inference_mode()
    def submit(self, requests: Sequence[Request]) -> Acting:
        """Act on rows of one agent's environments; no other batch may be under way."""
        requests = sorted(requests, key=lambda request: request.session.places)  # neighbours together
        number = requests[0].session.agent
        agent = self._agents[number]
        fields = _Fields(requests, self._device)
        for request in requests:
            if request.has_state:
                self._restore(request)
        where = Where([request.session.places for request in requests], self._device)
        states = where.key
        inverse = fields.numpy("inverse_temperature")
        output, core_state = agent(
            self._frames(requests, where, fields),
            fields.row("core_reset"),
            self._core[states],
            fields.row("last_action"),
            clip_last_rewards(fields.row("last_reward")),
            fields.row("instructions", np.int64) if self._layout.unroll.instruction_length else None,
            fields.row("observations") if self._layout.unroll.vector_size else None,
        )
        parameters = output.parameters[0]
        # In most runs all temperatures are 1.
        applied = None if bool((inverse == 1.0).all()) else torch.from_numpy(inverse).to(self._device)
        mask = fields.row("action_masks")[0] if self._layout.unroll.actions.mask_size else None
        actions = agent.distribution.at(parameters, inverse_temperature=applied, mask=mask).sample(self._generator)
        arrays = {"actions": actions.to(self._action_dtype), "behaviour_parameters": parameters}
        if self._layout.unroll.state_size:
            self._core[states] = core_state
            if any(request.wants_state for request in requests):
                arrays["core_state"] = core_state
        return Acting(requests, self._versions[number], *self._to_host(arrays))

    def collect(self, acting: Acting) -> Iterator[tuple[Request, dict[str, Array]]]:
        """Wait for a batch, and yield the answer to each of its requests."""
        if acting.done is not None:
            acting.done.synchronize()
        arrays: dict[str, NDArray[np.generic]] = {name: tensor.numpy() for name, tensor in acting.arrays.items()}
        first = 0
        for request in acting.requests:
            end = first + request.session.num_environments
            yield request, {name: array[first:end] for name, array in arrays.items()}
            first = end

    def _restore(self, request: Request) -> None:
        """Set the state that a request contains."""
        where = slice(*request.session.places)
        if self._layout.unroll.state_size:
            self._core[where] = torch.from_numpy(np.array(request.rows.fields["core_state"])).to(self._device)
        if self._stacks is not None and request.rows.planes is not None:
            self._stacks.restore(where, torch.from_numpy(np.array(request.rows.planes)).to(self._device))

    def _frames(self, requests: Sequence[Request], where: Where, fields: _Fields) -> Tensor | None:
        """Return uint8 [1, B, stack * C, H, W]; None if observations have no frames."""
        if self._stacks is None:
            return None
        channels = self._staged.shape[1]
        staged, first = self._staged.numpy(), 0
        for request in requests:
            planes = request.rows.planes
            assert planes is not None
            staged[first : first + len(planes)] = planes[:, -channels:]
            first += len(planes)
        newest = self._staged[:first].to(self._device, non_blocking=True)
        return self._stacks.push(where, newest, torch.from_numpy(fields.numpy("game_reset"))).unsqueeze(0)

    def _to_host(self, arrays: dict[str, Tensor]) -> tuple[dict[str, Tensor], torch.cuda.Event | None]:
        if self._device.type != "cuda":
            return arrays, None
        host = {}
        for name, array in arrays.items():
            host[name] = torch.empty(array.shape, dtype=array.dtype, pin_memory=True)
            host[name].copy_(array, non_blocking=True)
        done = torch.cuda.Event()  # type: ignore[no-untyped-call]
        done.record()
        return host, done


class _Fields:
    """Small fields of several requests, concatenated."""

    def __init__(self, requests: Sequence[Request], device: torch.device) -> None:
        self._requests = requests
        self._device = device

    def numpy(self, name: str) -> NDArray[np.generic]:
        """Return a field as [B, ...] in writable memory of its own."""
        return np.concatenate([request.rows.fields[name] for request in self._requests])

    def row(self, name: str, dtype: type[np.generic] | None = None) -> Tensor:
        """Return a field as [1, B, ...] on the device."""
        array = self.numpy(name)
        return torch.from_numpy(array if dtype is None else array.astype(dtype)).unsqueeze(0).to(self._device, non_blocking=True)
