"""Sends finished unrolls to the learner, and lends the memory for the next ones."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from herd.acting.remote_policy import WAIT_SECONDS
from herd.telemetry.logs import warn_limited

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from herd.contract.unroll import UnrollLayout
    from herd.protocols.unrolls.links import Sent, UnrollLinks
    from herd.protocols.unrolls.messages import EpisodeReport
    from herd.service.signals import Stop
    from herd_actor.meters import Meters

    Arrays = dict[str, NDArray[np.generic]]


@dataclass(slots=True)
class Unrolls:
    """The contents of one message: one unroll of each environment."""

    arrays: Arrays
    num_frames: int = 0
    episodes: list[EpisodeReport] = field(default_factory=list)


class UnrollSender:
    """Sends one message of ``num_environments`` unrolls at a time. ``beat`` is called at least every ``WAIT_SECONDS`` of a wait."""

    def __init__(
        self,
        client: UnrollLinks,
        layout: UnrollLayout,
        *,
        num_environments: int,
        meters: Meters,
        stop: Stop,
        beat: Callable[[], None],
    ) -> None:
        self._client = client
        self._layout = layout
        self._num_environments = num_environments
        self._meters = meters
        self._stop = stop
        self._beat = beat
        self._free: list[Arrays] = []
        self._lent: dict[Sent, Arrays] = {}

    def new_unrolls(self) -> Unrolls:
        """Return memory [E, ...] that no message under way still needs."""
        for sent in [sent for sent in self._lent if self._client.is_acked(sent)]:
            self._free.append(self._lent.pop(sent))
        return Unrolls(self._free.pop() if self._free else self._layout.allocate(self._num_environments))

    def request_credit(self) -> None:
        """Request credit before it is needed, so that the round trip costs no time."""
        self._client.request_credit(self._num_environments)

    def wait_for_credit(self) -> bool:
        """Wait for the credit for one message; False if told to stop before."""
        while not self._stop:
            self._beat()
            if self._client.wait_for_credit(self._num_environments, WAIT_SECONDS):
                return True
            if self._client.refused is not None:
                warn_limited("refused", "the learner refuses this actor", reason=self._client.refused)
        return False

    def send(self, unrolls: Unrolls) -> None:
        """Send with the granted credit. The arrays are reused after the message is acknowledged."""
        sent = self._client.send_unrolls(unrolls.arrays, num_frames=unrolls.num_frames, episodes=unrolls.episodes)
        self._lent[sent] = unrolls.arrays
        self._meters.unrolls_sent.inc(self._num_environments)
