"""Frames of every message of protocol version 2, byte for byte. A change here means a new protocol version, with new files beside these.

``python tests/wire/test_wire_golden.py`` writes missing files, for a new version or a new message. Existing files never change.
"""

from __future__ import annotations

from pathlib import Path

import msgpack
import numpy as np
import pytest

from herd.contract.actions import discrete
from herd.contract.unroll import Array, UnrollLayout
from herd.protocols.bandit.messages import ExchangeTemperatures, FinishedEpisode, HandedTemperature, StartingEpisode, Temperatures
from herd.protocols.inference.messages import Act, Acted, StateWanted
from herd.protocols.population.messages import Applied, Copied, Declined, MemberAnswer, MemberReport, Order, OwnSetting
from herd.protocols.replay.messages import Inserted, InsertUnrolls, Sampled, SampleEpisode, SamplePart, SampleUnrolls, StoredEpisodes
from herd.protocols.unrolls.arrays import encode_arrays, read_arrays
from herd.protocols.unrolls.messages import (
    Ack,
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
from herd.rpc.codec import MalformedMessage, OtherProtocol, decode_header, encode
from herd.rpc.envelope import PROTOCOL_VERSION, TYPES, Compression, Message, Refused
from herd.transport import Frame

DIRECTORY = Path(__file__).parent / "golden" / f"v{PROTOCOL_VERSION}"
CONTRACT = "c0" * 32
LAYOUT = UnrollLayout(2, 2, (64, 32, 1), discrete(3), 3, state_size=4, instruction_length=2)

MESSAGES: tuple[Message, ...] = (
    Hello(
        request_id=1, run_id="pong", agent=2, contract=CONTRACT, actor_index=3, incarnation=2**63 - 1, max_unrolls=32, oldest_sequence=300
    ),
    CreditRequest(wanted_unrolls=64),
    Goodbye(),
    Welcome(request_id=1, accepted_sequence=299, granted_unrolls=0),
    Ack(sequence=300, granted_unrolls=70_000),
    Credit(granted_unrolls=96),
    HelloRequired(reason="I do not know you"),
    Rejected(sequence=301, reason="array frames has 3 bytes", granted_unrolls=96),
    Refused(request_id=None, reason="another contract"),
    GetWeights(request_id=5, run_id="pong", agent=2, contract=CONTRACT, have=(2, 1_000_000)),
    Weights(request_id=5, lineage=3, updates=12, digests=("ab" * 32, "cd" * 32)),
    NotModified(request_id=6, held=None),
    PublishSlice(run_id="pong", agent=2, contract=CONTRACT, lineage=3, updates=12, index=1, count=2, digest="ab" * 32),
    PublishHeartbeat(run_id="pong", agent=2, contract=CONTRACT, lineage=3, updates=12, index=1, count=2),
    Published(lineage=3, updates=12, index=1),
    SliceWanted(lineage=3, updates=12, index=1),
    StalePublish(lineage=4, updates=0),
    AgentEnded(request_id=9, run_id="pong", agent=2, contract=CONTRACT, lineage=3),
    AgentEndNoted(request_id=9),
    LeaseIndex(request_id=7, run_id="pong", holder="f00d", agent=None, index=None),
    IndexLeased(request_id=7, agent=2, index=11, lease_seconds=30.0),
    ReleaseIndex(run_id="pong", agent=2, holder="f00d"),
    ExchangeTemperatures(
        request_id=8,
        run_id="pong",
        contract=CONTRACT,
        agent=2,
        incarnation=2**63 - 1,
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
    InsertUnrolls(run_id="pong", agent=2, contract=CONTRACT, writer=2**63 - 1, sequence=70_000, oldest_sequence=69_999, num_unrolls=32),
    Inserted(writer=2**63 - 1, sequence=70_000, stored=StoredEpisodes(num_episodes=9, num_unrolls=400, num_steps=7_900)),
    SampleUnrolls(request_id=10, run_id="pong", agent=2, contract=CONTRACT, num_unrolls=28),
    SampleEpisode(request_id=11, run_id="pong", agent=2, contract=CONTRACT),
    SamplePart(request_id=12, run_id="pong", agent=2, contract=CONTRACT, episode=(2, 5, 1 << 40, 40, 9), first_step=7_900),
    Sampled(request_id=10, num_parts=28, num_pieces=61, stored=StoredEpisodes(num_episodes=9, num_unrolls=400, num_steps=7_900)),
    Temperatures(request_id=8, handed=(HandedTemperature(environment_slot=40, episode_id=10, inverse_temperature=0.25),)),
    MemberReport(
        request_id=9,
        run_id="pong",
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
        request_id=9,
        order=Order(
            number=11,
            copied=Copied(donor=5, learner_updates=28_000, env_frames=19_600_000, applied=10),
            settings=(OwnSetting(key="optimizer.max_gradient_norm", value=48), OwnSetting(key="optimizer.target_kl", value=None)),
        ),
    ),
    Act(request_id=70_000, run_id="pong", agent=2, contract=CONTRACT, num_environments=16, has_state=True),
    Acted(request_id=70_000, lineage=3, updates=1_000_000),
    StateWanted(request_id=70_000),
)
UNROLLS = Unrolls(
    sequence=300,
    generated_frames=38_400,
    num_frames=16,
    num_unrolls=2,
    episodes=(EpisodeReport(task_id=1, environment_slot=40, episode_id=9, episode_return=-20.5, agent_steps=900),),
)


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


def read(name: str) -> list[bytes]:
    return [bytes.fromhex(line) for line in (DIRECTORY / f"{name}.hex").read_text().split("\n")[:-1]]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.type)
def test_headers_match_the_golden_files(message: Message) -> None:
    [frame] = read(message.type)
    assert encode(message) == [frame]
    assert decode_header(frame) == message


def test_unrolls_match_the_golden_file() -> None:
    assert [bytes(frame) for frame in encode_arrays(UNROLLS, arrays())] == read("unrolls")


@pytest.mark.parametrize("name", ["unrolls", "unrolls_lz4", "unrolls_zstd"])
def test_golden_unrolls_are_decoded(name: str) -> None:
    # Compressed frames are only read, because another release of the library may compress the same bytes differently.
    head, *payload = read(name)
    message = decode_header(head)
    assert isinstance(message, Unrolls)
    assert message.model_copy(update={"arrays": ()}) == UNROLLS
    out = LAYOUT.allocate(2)
    read_arrays(message, payload, LAYOUT, out)
    for field_name, expected in arrays().items():
        np.testing.assert_array_equal(out[field_name], expected, strict=True)


def test_every_message_has_a_golden_file() -> None:
    types = {message.type for message in MESSAGES} | {"unrolls", "unrolls_lz4", "unrolls_zstd"}
    assert {path.stem for path in DIRECTORY.iterdir()} == types
    assert types - {"unrolls_lz4", "unrolls_zstd"} == TYPES.keys()


def test_a_message_of_version_1_is_recognised_as_such() -> None:
    """R3: a message that names its run is refused with one sentence; the other messages did not change, or need a session."""
    recognised: dict[str, OtherProtocol] = {}
    for path in sorted((DIRECTORY.parent / "v1").iterdir()):
        header = bytes.fromhex(path.read_text().split("\n", maxsplit=1)[0])
        if path.stem == "index_leased":  # an answer: a server of version 1 does not answer our messages
            continue
        try:
            decode_header(header)
        except OtherProtocol as error:
            recognised[path.stem] = error
    assert {error.label for error in recognised.values()} == {"protocol"}
    assert {error.reason for error in recognised.values()} == {
        "the message is of protocol version 1, and this process speaks version 2: run the same release of Herd in every process of the run"
    }
    assert {name: error.request_id for name, error in recognised.items()} == {
        "get_weights": 5,
        "hello": 1,
        "lease_index": 7,
        "publish_heartbeat": None,
        "publish_slice": None,
        "release_index": None,
    }


def test_a_hello_of_a_later_version_is_recognised() -> None:
    header = {"type": "hello", "protocol": 3, "request_id": 4, "something": "new"}
    with pytest.raises(OtherProtocol, match="version 3") as caught:
        decode_header(msgpack.packb(header))
    assert caught.value.request_id == 4


@pytest.mark.parametrize(
    "header",
    [
        {"type": "get_weights", "request_id": 1, "run_id": "pong", "contract": CONTRACT, "have": 5},
        {"type": "get_weights", "request_id": 1, "run_id": "pong", "have": None},
        {"type": "hello", "protocol": "1"},
        {"type": "hello", "protocol": True},
        {"run_id": "pong"},
        ["hello", 1],
    ],
)
def test_invalid_messages_of_version_1_are_malformed(header: object) -> None:
    with pytest.raises(MalformedMessage) as caught:
        decode_header(msgpack.packb(header))
    assert not isinstance(caught.value, OtherProtocol)


def write() -> None:
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    files: dict[str, list[Frame]] = {message.type: encode(message) for message in MESSAGES}
    variants: tuple[tuple[str, Compression], ...] = (("unrolls", "none"), ("unrolls_lz4", "lz4"), ("unrolls_zstd", "zstd"))
    files |= {name: encode_arrays(UNROLLS, arrays(), compression) for name, compression in variants}
    for name, frames in files.items():
        if not (DIRECTORY / f"{name}.hex").exists():
            (DIRECTORY / f"{name}.hex").write_text("".join(bytes(frame).hex() + "\n" for frame in frames))


if __name__ == "__main__":
    write()
