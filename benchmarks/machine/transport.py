"""The transport of unrolls, measured with both ends in one process.

The actor's end is the real client. The learner's end processes messages like the learner's I/O thread: header, credit, one checked copy
into preallocated arrays, acknowledgement. There is no environment, network or queue.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from benchmarks.machine.measurement import Measurement, measure
from benchmarks.machine.synthetic import synthetic_unrolls
from herd.components.suites import environment_spec
from herd.config.run_contract import contract_digest, run_layout
from herd.protocols.unrolls.arrays import receive_arrays
from herd.protocols.unrolls.client import UnrollClient
from herd.protocols.unrolls.credit import CreditPool
from herd.protocols.unrolls.messages import UNROLLS, Ack, Credit, CreditRequest, Hello, Unrolls, Welcome
from herd.rpc.codec import encode
from herd.transport import Limits, Peer
from herd.transport.context import Context, Poller, Waker

if TYPE_CHECKING:
    from herd.config.run import RunSettings
    from herd.contract.unroll import UnrollLayout
    from herd.rpc.envelope import Message
    from herd.transport import Frame

# On one machine an answer takes a millisecond. If the learner's end is silent this long, it has ended.
ANSWER_SECONDS = 10.0


class LearnerEnd:
    """The receiving end, in its own thread. It consumes messages at once."""

    def __init__(self, context: Context, layout: UnrollLayout, *, num_unrolls: int) -> None:
        self._layout = layout
        self._arrays = layout.allocate(num_unrolls)
        # Two messages: one is copied while the next is on its way, as with a queue that is not full.
        self._credit = CreditPool(2 * num_unrolls, expires_seconds=3600.0)
        self._router = context.server("tcp://127.0.0.1:*", Limits(max_frame_bytes=layout.max_frame_bytes(num_unrolls)))
        self._waker = Waker()
        self._thread = threading.Thread(target=self._serve, name="learner-end", daemon=True)
        self._thread.start()

    @property
    def endpoint(self) -> str:
        """The address on which it listens."""
        return self._router.endpoint

    def close(self) -> None:
        """Stop the thread and close its socket."""
        self._waker.wake()
        self._thread.join()
        self._waker.close()

    def _serve(self) -> None:
        poller = Poller(self._router, self._waker)
        with self._router:
            while self._waker not in poller.poll(1.0):
                while (received := self._router.receive()) is not None:
                    peer, frames = received
                    answer = self._answer(peer, frames)
                    if answer is not None:
                        self._router.send(peer, encode(answer))

    def _answer(self, peer: Peer, frames: list[memoryview]) -> Message | None:
        message = UNROLLS.decode(frames[0])
        payload: list[Frame] = list(frames[1:])
        match message:
            case Hello():
                self._credit.on_hello(peer, message.max_unrolls, 0.0)
                return Welcome(id=message.id, accepted_sequence=message.oldest_sequence - 1, granted_unrolls=0)
            case CreditRequest():
                self._credit.on_credit_request(peer, message.wanted_unrolls, 0.0)
                return Credit(granted_unrolls=self._credit.granted(peer))
            case Unrolls():
                self._credit.on_message_received(peer, message.num_unrolls, 0.0)
                for name, array in receive_arrays(payload, message.num_unrolls, self._layout, message.compression).items():
                    self._arrays[name][...] = array
                self._credit.on_consumed(message.num_unrolls)
                return Ack(sequence=message.sequence, granted_unrolls=self._credit.granted(peer))
            case _:
                return None


def measure_transport(settings: RunSettings, *, seconds: float, warmup_seconds: float = 1.0) -> Measurement:
    """Send messages of ``actor.environments`` unrolls, with ``actor.compression``, as fast as one connection accepts them.

    Raises:
        RuntimeError: the learner's end stopped answering.

    """
    spec = environment_spec(settings.env)
    layout = run_layout(settings, spec)
    num_unrolls = settings.actor.environments
    arrays = synthetic_unrolls(layout, num_unrolls, seed=settings.seed)
    agent_steps = num_unrolls * layout.new_steps
    # A context for each end, as two processes have: with keys, one end encrypts while the other decrypts.
    contexts = [Context(settings.security) for _ in range(2)]
    learner = LearnerEnd(contexts[0], layout, num_unrolls=num_unrolls)
    client = UnrollClient(
        contexts[1],
        learner.endpoint,
        layout=layout,
        run_id=settings.name,
        contract=contract_digest(settings, spec),
        actor_index=0,
        max_unrolls=num_unrolls,
        compression=settings.actor.compression,
    )

    def step() -> int:
        if not client.wait_for_credit(num_unrolls, ANSWER_SECONDS):
            raise RuntimeError("the learner's end of the transport stopped answering")
        # The arrays never change, so they may be reused before they are acknowledged.
        client.send_unrolls(arrays, num_frames=agent_steps * spec.action_repeat)
        return agent_steps

    try:
        return measure(step, seconds=seconds, warmup_seconds=warmup_seconds)
    finally:
        client.close()
        learner.close()
        for context in contexts:
            context.destroy()
