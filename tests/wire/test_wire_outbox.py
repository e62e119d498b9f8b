from __future__ import annotations

from herd.protocols.unrolls.messages import Ack, Credit, Rejected, Welcome
from herd.protocols.unrolls.outbox import UnrollOutbox


def open_outbox(granted: int = 0) -> UnrollOutbox[str]:
    outbox: UnrollOutbox[str] = UnrollOutbox()
    outbox.begin_hello(1)
    assert outbox.on_welcome(Welcome(id=1, accepted_sequence=0, granted_unrolls=granted))
    return outbox


def send_all(outbox: UnrollOutbox[str]) -> list[str]:
    sent = []
    while (message := outbox.next_to_send()) is not None:
        outbox.mark_sent()
        sent.append(message.payload)
    return sent


def test_nothing_is_sent_without_session_or_credit() -> None:
    outbox: UnrollOutbox[str] = UnrollOutbox()
    outbox.put(2, "one")
    assert outbox.next_to_send() is None
    outbox.begin_hello(1)
    assert outbox.next_to_send() is None
    outbox.on_credit(Credit(granted_unrolls=10))  # from a session that has ended
    assert outbox.on_welcome(Welcome(id=1, accepted_sequence=0, granted_unrolls=1))
    assert outbox.next_to_send() is None
    assert outbox.wanted_unrolls(5) == 2
    outbox.on_credit(Credit(granted_unrolls=2))
    assert send_all(outbox) == ["one"]
    assert not outbox.can_send(1)


def test_only_the_welcome_to_the_newest_hello_is_accepted() -> None:
    outbox: UnrollOutbox[str] = UnrollOutbox()
    outbox.begin_hello(1)
    outbox.begin_hello(2)
    assert not outbox.on_welcome(Welcome(id=1, accepted_sequence=0, granted_unrolls=9))
    assert not outbox.welcomed
    assert outbox.on_welcome(Welcome(id=2, accepted_sequence=0, granted_unrolls=0))
    assert not outbox.on_welcome(Welcome(id=2, accepted_sequence=0, granted_unrolls=9))
    assert not outbox.can_send(1)


def test_a_new_session_resends_unaccepted_messages_under_credit() -> None:
    outbox = open_outbox(granted=6)
    for payload in ("one", "two", "three"):
        outbox.put(2, payload)
    assert send_all(outbox) == ["one", "two", "three"]
    outbox.begin_hello(2)
    assert outbox.on_welcome(Welcome(id=2, accepted_sequence=1, granted_unrolls=2))
    assert outbox.oldest_sequence == 2
    assert outbox.acked_sequence == 1
    assert send_all(outbox) == ["two"]
    assert outbox.wanted_unrolls(7) == 4
    outbox.on_ack(Ack(sequence=2, granted_unrolls=6))
    assert not outbox.can_send(2)  # an earlier message waits
    assert send_all(outbox) == ["three"]
    assert outbox.num_unacked == outbox.num_unanswered == 1
    outbox.on_rejected(Rejected(sequence=3, reason="no", granted_unrolls=6))
    assert (outbox.acked_sequence, outbox.num_unacked, outbox.oldest_sequence) == (3, 0, 4)
    assert outbox.can_send(2)
    assert not outbox.can_send(3)
    assert outbox.num_unrolls_resent == 4
