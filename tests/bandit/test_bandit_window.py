from __future__ import annotations

import tracemalloc

from herd_bandit.window import MAX_ENTRIES, MAX_SLOTS, Handed, RememberedClient, RequestWindow


def answer(num_handed: int = 1, first: int = 0) -> Handed:
    return tuple((first + slot, 1000, 0.5 + slot) for slot in range(num_handed))


def test_a_clients_newest_request_is_recognised() -> None:
    window = RequestWindow()
    assert window.novelty("1", 5) == "new"
    window.answered("1", 5, answer(2))
    assert [window.novelty("1", number) for number in (4, 5, 6)] == ["late", "repeated", "new"]
    assert window.answer("1") == answer(2)
    assert window.novelty("2", 5) == "new"  # another incarnation
    assert window.answer("2") is None
    window.answered("1", 6, answer(0))
    assert window.novelty("1", 5) == "late"
    assert len(window) == 1


def test_a_game_is_new_once_in_its_slot() -> None:
    window = RequestWindow()
    assert [window.count_episode("1", 0, game) for game in (0, 0, 3, 2, 4)] == ["new", "repeated", "new", "late", "new"]
    assert window.count_episode("1", 1, 0) == "new"
    assert window.count_episode("2", 0, 0) == "new"


def test_the_least_recently_heard_client_is_forgotten() -> None:
    window = RequestWindow(max_entries=9)
    window.answered("1", 1, answer(0))
    window.answered("2", 1, answer(0))
    for slot in range(5):
        window.count_episode("1", slot, 0)
    assert (window.num_entries, len(window)) == (7, 2)
    window.answered("1", 2, answer(0))  # client 1 was heard again: client 2 is now the oldest
    window.answered("3", 1, answer(1))
    assert (window.num_entries, len(window)) == (9, 2)  # 6 + 3; there is no room for client 2's entries
    assert window.novelty("2", 1) == "new"
    assert [window.novelty("1", 2), window.novelty("3", 1)] == ["repeated", "repeated"]


def test_only_a_single_client_may_exceed_the_bound() -> None:
    window = RequestWindow(max_entries=10)
    for slot in range(50):
        window.count_episode("1", slot, 0)
    assert window.count_episode("1", 7, 0) == "repeated"
    window.answered("2", 1, answer())
    assert len(window) == 1
    assert window.num_entries == 3


def test_the_slots_of_one_client_are_bounded() -> None:
    window = RequestWindow(max_entries=10)
    for slot in range(3 * MAX_SLOTS):
        assert window.count_episode("1", slot, 0) == "new"
        assert window.count_episode("1", 2**40, slot) == "new"  # the client was heard again and again, so it is not forgotten
    assert window.num_entries == 1 + MAX_SLOTS
    assert window.count_episode("1", 2**40, 0) == "late"
    assert window.count_episode("1", 3 * MAX_SLOTS - 1, 0) == "repeated"


def test_remembered_requests_and_games_survive_a_restart() -> None:
    window = RequestWindow()
    window.answered("7", 3, answer())
    window.count_episode("7", 40, 9)
    window.answered("8", 1, answer())
    again = RequestWindow()
    for client in window.remembered():
        again.restore(client)
    assert list(again.remembered()) == [RememberedClient("7", 3, {40: 9}), RememberedClient("8", 1, {})]
    assert again.novelty("7", 3) == "repeated"
    assert again.answer("7") is None  # only the numbers are kept
    assert again.count_episode("7", 40, 9) == "repeated"
    assert again.num_entries == 3


def test_a_full_window_stays_within_its_documented_memory() -> None:
    tracemalloc.start()
    window = RequestWindow()
    for client in range(500):
        for slot in range(99):
            window.count_episode(str(2**62 + client), 100 * client + slot + 1000, 2000 + client)
    of_slots = tracemalloc.get_traced_memory()[0]
    assert window.num_entries == 500 * 100
    assert of_slots / window.num_entries * MAX_ENTRIES < 65e6
    for client in range(500):
        window.answered(str(2**62 + client), 1000 + client, answer(32, first=1000 * client + 1000))
    of_answers = tracemalloc.get_traced_memory()[0] - of_slots
    assert of_answers / (window.num_entries - 500 * 100) * MAX_ENTRIES < 65e6
    tracemalloc.stop()
