"""Frames of every message of protocol version 3, byte for byte. A change here means a new protocol version, with new files beside these.

``python tests/wire/test_wire_golden.py`` writes missing files, for a new version or a new message. Existing files never change.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from docsite.messages import render_messages
from herd.contract.spaces import discrete
from herd.contract.unroll import Array, UnrollLayout
from herd.protocols.bandit.messages import BANDIT, ExchangeTemperatures, FinishedEpisode, HandedTemperature, StartingEpisode, Temperatures
from herd.protocols.inference.messages import INFERENCE, Act, Acted, StateWanted
from herd.protocols.population.messages import POPULATION, Applied, Copied, Declined, MemberAnswer, MemberReport, Order, OwnSetting
from herd.protocols.replay.messages import (
    REPLAY,
    Inserted,
    InsertPieces,
    Sampled,
    SampleEpisode,
    SamplePart,
    SampleUnrolls,
    StoredEpisodes,
)
from herd.protocols.unrolls.arrays import pack_arrays, receive_arrays
from herd.protocols.unrolls.messages import (
    UNROLLS,
    Ack,
    Compression,
    Credit,
    CreditRequest,
    EpisodeReport,
    Goodbye,
    Hello,
    HelloRequired,
    Rejected,
    Unrolls,
    Welcome,
)
from herd.protocols.weights.messages import (
    WEIGHTS,
    AgentEnded,
    AgentEndNoted,
    GetWeights,
    IndexLeased,
    LeaseIndex,
    NotModified,
    Published,
    PublishHeartbeat,
    PublishSlice,
    ReleaseIndex,
    SliceWanted,
    StalePublish,
    Weights,
)
from herd.rpc.codec import encode
from herd.rpc.envelope import PROTOCOL_VERSION, Message, Refused
from herd.transport import Frame

DIRECTORY = Path(__file__).parent / "golden" / f"v{PROTOCOL_VERSION}"
CONTRACT = "c0" * 32
LAYOUT = UnrollLayout(2, 2, (64, 32, 1), discrete(3), 3, state_size=4, instruction_length=2)

MESSAGES: tuple[Message, ...] = (
    Hello(id=1, run="pong", agent=2, contract=CONTRACT, actor_index=3, incarnation=2**63 - 1, max_unrolls=32, oldest_sequence=300),
    CreditRequest(wanted_unrolls=64),
    Goodbye(),
    Welcome(id=1, accepted_sequence=299, granted_unrolls=0),
    Ack(sequence=300, granted_unrolls=70_000),
    Credit(granted_unrolls=96),
    HelloRequired(reason="I do not know you"),
    Rejected(sequence=301, reason="array frames has 3 bytes", granted_unrolls=96),
    Refused(id=5, reason="another contract"),
    GetWeights(id=5, run="pong", agent=2, contract=CONTRACT, have=(2, 1_000_000)),
    Weights(id=5, lineage=3, updates=12, digests=("ab" * 32, "cd" * 32)),
    NotModified(id=6, held=None),
    PublishSlice(run="pong", agent=2, contract=CONTRACT, lineage=3, updates=12, index=1, count=2, digest="ab" * 32),
    PublishHeartbeat(run="pong", agent=2, contract=CONTRACT, lineage=3, updates=12, index=1, count=2),
    Published(lineage=3, updates=12, index=1),
    SliceWanted(lineage=3, updates=12, index=1),
    StalePublish(lineage=4, updates=0),
    AgentEnded(id=9, run="pong", agent=2, contract=CONTRACT, lineage=3),
    AgentEndNoted(id=9),
    LeaseIndex(id=7, run="pong", client="f00d", place=None),
    IndexLeased(id=7, place=(2, 11), lease_seconds=30.0),
    ReleaseIndex(run="pong", client="f00d"),
    ExchangeTemperatures(
        id=8,
        run="pong",
        contract=CONTRACT,
        agent=2,
        client=f"{2**63 - 1:016x}",
        purpose="training",
        finished=(
            FinishedEpisode(
                task_id=1,
                environment_slot=40,
                episode_id=9,
                inverse_temperature=12.5,
                episode_return=-20.5,
                agent_steps=900,
                reused=False,
            ),
        ),
        starting=(StartingEpisode(task_id=1, environment_slot=40, episode_id=10),),
    ),
    InsertPieces(run="pong", agent=2, contract=CONTRACT, client=f"{2**63 - 1:016x}", id=70_000, oldest=69_999, num_records=34),
    Inserted(sequence=70_000, stored=StoredEpisodes(num_episodes=9, num_unrolls=400, num_steps=7_900)),
    SampleUnrolls(id=10, run="pong", agent=2, contract=CONTRACT, num_unrolls=28),
    SampleEpisode(id=11, run="pong", agent=2, contract=CONTRACT),
    SamplePart(id=12, run="pong", agent=2, contract=CONTRACT, episode=(2, 5, 1 << 40, 40, 9), first_step=7_900),
    Sampled(id=10, num_parts=28, num_pieces=61, stored=StoredEpisodes(num_episodes=9, num_unrolls=400, num_steps=7_900)),
    Temperatures(id=8, handed=(HandedTemperature(environment_slot=40, episode_id=10, inverse_temperature=0.25),)),
    MemberReport(
        id=9,
        run="pong",
        agent=2,
        contract=CONTRACT,
        env_frames=21_000_000,
        learner_updates=30_000,
        num_episodes=12_000,
        fitness=0.625,
        checkpoint=(29_500, 20_650_000),
        settings=(OwnSetting(key="optimizer.learning_rate", value=6e-4), OwnSetting(key="loss.q_estimate", value="value")),
        applied=Applied(number=7, env_frames=18_000_000, learner_updates=25_000),
        declined=Declined(number=8, reason="the checkpoint is not there"),
    ),
    MemberAnswer(
        id=9,
        order=Order(
            number=11,
            copied=Copied(donor=5, learner_updates=28_000, env_frames=19_600_000, applied=10),
            settings=(OwnSetting(key="optimizer.max_gradient_norm", value=48), OwnSetting(key="optimizer.target_kl", value=None)),
        ),
    ),
    Act(id=70_000, run="pong", agent=2, contract=CONTRACT, num_environments=16, has_state=True, wants_state=False),
    Acted(id=70_000, lineage=3, updates=1_000_000),
    StateWanted(id=70_000),
)
PLAYED = Unrolls(
    sequence=300,
    generated_frames=38_400,
    num_frames=16,
    num_unrolls=2,
    episodes=(EpisodeReport(task_id=1, environment_slot=40, episode_id=9, episode_return=-20.5, agent_steps=900),),
)
CONVERSATIONS = (UNROLLS, WEIGHTS, BANDIT, REPLAY, POPULATION, INFERENCE)
VARIANTS: dict[str, Compression] = {"unrolls": "none", "unrolls_lz4": "lz4", "unrolls_zstd": "zstd"}


def decode(frame: Frame, kind: str) -> Message:
    return next(each for each in CONVERSATIONS if kind in each.types).decode(frame)


def arrays() -> dict[str, Array]:
    """Every field counts up, so that no two adjacent elements are equal."""
    result = LAYOUT.allocate(2)
    for field in LAYOUT.fields:
        flat = result[field.name].reshape(-1)
        modulus = 2 if field.dtype.kind == "b" else 1 + (250 if field.maximum is None else int(np.max(field.maximum)))
        flat[:] = np.arange(flat.size) % modulus
        if field.name.endswith("frames"):
            flat[:] //= 64
    return result


def unrolls(compression: Compression) -> list[Frame]:
    return [*encode(PLAYED.model_copy(update={"compression": compression})), *pack_arrays(arrays(), compression)]


def read(name: str) -> list[bytes]:
    return [bytes.fromhex(line) for line in (DIRECTORY / f"{name}.hex").read_text().split("\n")[:-1]]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.type)
def test_headers_match_the_golden_files(message: Message) -> None:
    [frame] = read(message.type)
    assert encode(message) == [frame]
    assert decode(frame, message.type) == message


@pytest.mark.parametrize(("name", "compression"), VARIANTS.items())
def test_unrolls_match_the_golden_files(name: str, compression: Compression) -> None:
    head, *payload = read(name)
    sent = [bytes(frame) for frame in unrolls(compression)]
    # Another release of a library may compress the same bytes differently, so compressed frames are only read.
    assert sent == [head, *payload] if compression == "none" else sent[:1] == [head]
    message = UNROLLS.decode(head)
    assert message == PLAYED.model_copy(update={"compression": compression})
    received = receive_arrays(payload, 2, LAYOUT, compression)
    for field_name, expected in arrays().items():
        np.testing.assert_array_equal(received[field_name], expected, strict=True)


def test_every_message_has_a_golden_file() -> None:
    files = {path.stem for path in DIRECTORY.iterdir()}
    assert files == {message.type for message in MESSAGES} | VARIANTS.keys()
    assert files - {"unrolls_lz4", "unrolls_zstd"} == {kind for each in CONVERSATIONS for kind in each.types}


def test_the_page_of_messages_is_up_to_date() -> None:
    page = (Path(__file__).parents[2] / "docs" / "messages.md").read_text(encoding="utf-8")
    assert page == "\n".join(render_messages()), "run: python -m docsite.messages > docs/messages.md"
    assert {f"### {kind}" for each in CONVERSATIONS for kind in each.types} - set(page.splitlines()) == {"### refused"}


def write() -> None:
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    files: dict[str, list[Frame]] = {message.type: encode(message) for message in MESSAGES}
    files |= {name: unrolls(compression) for name, compression in VARIANTS.items()}
    for name, frames in files.items():
        if not (DIRECTORY / f"{name}.hex").exists():
            (DIRECTORY / f"{name}.hex").write_text("".join(bytes(frame).hex() + "\n" for frame in frames))


if __name__ == "__main__":
    write()
