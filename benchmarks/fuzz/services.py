"""Fuzz targets for the decision code of learner, bandit, population and a replica, each with two consecutive messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from herd_bandit.exchange import ExchangeHandler, Window, new_window
from herd_bandit.task_bandit import draw_generator, new_bandits
from herd_learner.intake.ingest import Ingest
from herd_learner.intake.ledger import Ledger
from herd_learner.intake.queue import UnrollQueue
from herd_paramserver.replica import ReplicaHandler
from herd_paramserver.store import WeightsStore
from herd_population.controller import Controller

from benchmarks.fuzz.targets import CONTRACT, LAYOUT, RUN, SERVED, asked, golden, join, split, weights_seeds
from herd.config.services import BanditSettings, PopulationSettings
from herd.protocols.bandit.messages import BANDIT, ExchangeTemperatures, FinishedEpisode, StartingEpisode
from herd.protocols.population.messages import POPULATION, MemberAnswer, MemberReport, OwnSetting
from herd.protocols.unrolls.arrays import pack_arrays
from herd.protocols.unrolls.credit import CreditPool
from herd.protocols.unrolls.messages import CreditRequest, Hello, HelloRequired, Unrolls, actor_identity
from herd.protocols.weights.messages import WEIGHTS
from herd.rpc.codec import MalformedMessage, encode
from herd.rpc.envelope import Refused
from herd.rpc.serving import RequestRefused
from herd.transport import Peer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from herd.rpc.envelope import Message

PEER = Peer(actor_identity(3, 7).encode())
CAPACITY = 4
RATE = "optimizer.learning_rate"


def messages_of(data: bytes) -> Iterator[tuple[bytes, list[bytes]]]:
    """Return two messages, each a header with payloads, from one input: its first half of frames, and the second."""
    frames = split(data)
    half = (len(frames) + 1) // 2
    for head, *payloads in filter(None, (frames[:half], frames[half:])):
        yield head, payloads


def fuzz_learner(data: bytes) -> None:
    """Send unrolls within credit twice: the ledger balances, credit is bounded, and nothing is counted twice."""
    ledger, credit = Ledger(), CreditPool(CAPACITY, expires_seconds=60.0)
    ingest = Ingest(
        run=SERVED,
        layout=LAYOUT,
        action_repeat=4,
        ledger=ledger,
        queue=UnrollQueue(),
        credit=credit,
        on_episode=lambda *_: None,
        on_unrolls=lambda *_: None,
    )
    hello = {"id": 1, "run": RUN, "agent": 0, "contract": CONTRACT, "max_unrolls": 2, "oldest_sequence": 1}
    ingest.on_message(PEER, encode(Hello(actor_index=3, incarnation=7, **hello)), 0.0)
    frames, counts = split(data), []
    for _ in range(2):
        ingest.on_message(PEER, encode(CreditRequest(wanted_unrolls=2)), 0.0)
        before = ledger.snapshot(), credit.held, credit.granted_unused
        replies: list[Message] = []
        try:
            replies = [reply.message for reply in ingest.on_message(PEER, frames, 0.0)]
            is_refused = bool(replies) and isinstance(replies[0], HelloRequired | Refused)
        except MalformedMessage:
            is_refused = True
        for reply in replies:
            encode(reply)
        snapshot = ledger.snapshot()
        assert not is_refused or (snapshot, credit.held, credit.granted_unused) == before
        assert snapshot.is_balanced
        assert credit.granted_unused + credit.held <= CAPACITY
        counts.append(snapshot.total.generated)
    # An accepted message is now a duplicate; a refused one is refused again.
    assert counts[0] == counts[1]


def learner_seeds() -> list[bytes]:
    """Return golden unrolls as an actor's first message, and other messages of an actor."""
    seeds = [join(frames) for frames in golden() if sum(map(len, frames)) < 30_000]
    arrays = LAYOUT.allocate(2)
    arrays["row_valid"][...] = True
    frames = 2 * LAYOUT.new_steps * 4
    for compression in ("none", "zstd", "lz4"):
        message = Unrolls(sequence=1, generated_frames=frames, num_frames=frames, num_unrolls=2)
        seeds.append(join([bytes(frame) for frame in [*encode(message), *pack_arrays(arrays, compression)]]))
    return seeds


BANDIT_SETTINGS = BanditSettings(bandits=2)
BANDITS = new_bandits(BANDIT_SETTINGS, ["catch"], seed=1, num_agents=2)
"""Created once and never reset: inputs leave finite state, or an assertion fails."""


def fuzz_bandit(data: bytes) -> None:
    """Report games and request temperatures, twice. What is refused changes nothing, and every value stays finite."""
    window = new_window()
    handler = ExchangeHandler(
        BANDIT_SETTINGS,
        action_repeat=4,
        bandits=BANDITS,
        window=window,
        generator=draw_generator(BANDITS, seed=1),
        learns=True,
    )
    for head, payloads in messages_of(data):
        before = _counted(window)
        try:
            request = asked(BANDIT, [head, *payloads])
            if request is None or request.message.agent > 1:
                continue
            answer = handler.answer(request)
        except MalformedMessage:
            assert _counted(window) == before
            continue
        if answer.message is not None:
            encode(answer.message)
        if answer.outcome in ("late", "evaluation"):
            assert _counted(window) == before
        assert all(np.isfinite(bandit.evaluation).all() for bandit in BANDITS.values())


def _counted(window: Window) -> tuple[object, ...]:
    """All that a request may change."""
    tallies = [bandit.tally for bandit in BANDITS.values()]
    return [(tally.episodes, tally.handed_out.sum(), tally.return_sums.sum()) for tally in tallies], [
        (*one, repr(window.reply(one[0]))) for one in window.all()
    ]


def bandit_seeds() -> list[bytes]:
    """Return a request, and the next one, which reports its games."""
    who = {"run": RUN, "agent": 1, "contract": CONTRACT, "client": "5"}
    starting = (StartingEpisode(task_id=0, environment_slot=0, episode_id=1), StartingEpisode(task_id=0, environment_slot=1, episode_id=1))
    played = {"task_id": 0, "environment_slot": 0, "episode_id": 1, "agent_steps": 9, "reused": False}
    finished = (FinishedEpisode(episode_return=1.0, inverse_temperature=0.5, **played),)
    first = ExchangeTemperatures(id=1, purpose="training", finished=(), starting=starting, **who)
    second = ExchangeTemperatures(id=2, purpose="training", finished=finished, starting=starting, **who)
    asked = ExchangeTemperatures(id=3, purpose="evaluation", finished=(), starting=starting, **who)
    return [join([_head(first), _head(second)]), join([_head(second), _head(second)]), join([_head(asked)]), join([_head(first)])]


def fuzz_population(data: bytes) -> None:
    """Report as two members of a population: the journal accepts every event, and every order can be sent."""
    rules = PopulationSettings(strategy="pbt", fitness="episode_return", fitness_episodes=1, burn_in_env_frames=0)
    controller = Controller(rules, num_members=2, seed=1, is_allowed=lambda values: values.keys() == {RATE})
    for head, payloads in messages_of(data):
        try:
            request = asked(POPULATION, [head, *payloads])
        except MalformedMessage:
            continue
        if request is None or request.message.agent > 1:
            continue
        report = request.message
        assert isinstance(report, MemberReport)
        if controller.objection(report):
            continue
        for event in controller.heard(report):
            assert type(event).model_validate_json(event.model_dump_json()) == event
            controller.note(event)
        encode(MemberAnswer(id=report.id, order=controller.order_of(report.agent)))


def population_seeds() -> list[bytes]:
    """Return reports of two members, one better than the other, and of one that applied an order that was never given."""

    def report(agent: int, fitness: float, **changes: object) -> bytes:
        fields = {
            "id": 1,
            "run": RUN,
            "agent": agent,
            "contract": CONTRACT,
            "env_frames": 5000,
            "learner_updates": 50,
            "num_episodes": 100,
            "fitness": fitness,
            "checkpoint": (40, 4000),
            "settings": (OwnSetting(key=RATE, value=1e-3),),
            "applied": None,
            "declined": None,
        }
        return _head(MemberReport(**fields | changes))

    done = {"number": 1, "env_frames": 5000, "learner_updates": 50}
    return [join([report(1, 0.9), report(0, 0.1)]), join([report(0, 0.1), report(0, 0.2, applied=done)]), join([report(1, 0.5)])]


def fuzz_replica(data: bytes) -> None:
    """Send two requests to a replica; the messages for its parent can be sent."""
    store = WeightsStore(max_version_bytes=4096)
    handler = ReplicaHandler(stores=(store,), upstream="tcp://parent:7200")
    for head, payloads in messages_of(data):
        try:
            request = asked(WEIGHTS, [head, *payloads])
            if request is None or request.message.agent:
                continue
            answer = handler.answer(request, 0.0)
        except (MalformedMessage, RequestRefused):
            continue
        for message in (answer.message, answer.to_parent):
            if message is not None:
                encode(message)
        assert answer.new_version is None
        assert (store.visible, store.num_bytes) == (None, 0)


def _head(message: Message) -> bytes:
    return bytes(encode(message)[0])


TARGETS: dict[str, tuple[Callable[[bytes], None], Callable[[], Sequence[bytes]], int]] = {
    "learner": (fuzz_learner, learner_seeds, 32_768),
    "bandit": (fuzz_bandit, bandit_seeds, 8192),
    "population": (fuzz_population, population_seeds, 8192),
    "replica": (fuzz_replica, weights_seeds, 4096),
}
"""Function, seeds, length of the longest input in bytes."""
