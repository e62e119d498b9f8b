"""Games are cut from unrolls and assembled again, and compared with plain lists of rows."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
from herd_replay.assembly import Assembler
from herd_replay.store import Record
from hypothesis import given, settings
from hypothesis import strategies as st

from herd.contract.unroll import UnrollLayout
from herd.protocols.replay.pieces import PieceLayout, Segment
from herd.protocols.replay.records import Episode, EpisodeKey, record_of
from herd.protocols.replay.samples import EpisodePart, pieces_with_rows, rows_of_unroll
from herd.rpc.codec import MalformedMessage
from tests.replay.played_games import LAYOUT, RECURRENT, Row, game, oracle_slice, play, unrolls_of


def assembled(layout: UnrollLayout, rows: list[Row]) -> dict[int, Episode]:
    """Every complete game, by number, assembled from the unrolls."""
    pieces, assembler, episodes = PieceLayout(layout), Assembler(1 << 30), {}
    for arrays in unrolls_of(layout, rows):
        for segment in pieces.cut(arrays, 0, agent=0, actor_index=0, incarnation=0):
            if (done := assembler.insert(pieces.pack(arrays, segment))) is not None:
                episodes[segment.key.episode_id] = done
    assert not any(assembler.num_discarded.values())
    return episodes


def part_of(layout: UnrollLayout, episode: Episode, *, first_step: int | None = None) -> EpisodePart:
    """The whole episode, or only the part that an unroll needs."""
    record = Record(memoryview(b"".join(record_of(episode))))
    part, begin, end = record.part[0].copy(), 0, len(record.pieces)
    if first_step is not None:
        begin, end = pieces_with_rows(record.pieces["first_step"], *rows_of_unroll(layout, first_step))
        part["first_step"], part["num_steps"] = first_step, min(layout.new_steps, episode.num_steps - first_step)
        part["num_pieces"] = end - begin
    return EpisodePart(PieceLayout(layout), part, record.pieces[begin:end], [piece.packed for piece in episode.pieces[begin:end]])


@pytest.mark.parametrize("layout", [LAYOUT, RECURRENT], ids=["stack", "core"])
@settings(max_examples=40, deadline=None)
@given(lengths=st.lists(st.integers(1, 24), min_size=1, max_size=6), seed=st.integers(0, 1000))
def test_unrolls_cut_from_assembled_games_equal_the_played_rows(layout: UnrollLayout, lengths: list[int], seed: int) -> None:
    rows = play(layout, lengths, seed)
    episodes = assembled(layout, rows)
    whole = len(unrolls_of(layout, rows)) * layout.new_steps
    # A game is complete as soon as an unroll contains the start and a step of the next game.
    ends = np.cumsum([length + 1 for length in lengths])
    assert set(episodes) == {number for number, end in enumerate(ends) if end <= whole}
    for number, episode in episodes.items():
        played = game(rows, number)
        assert (episode.num_steps, episode.num_rows) == (lengths[number], lengths[number] + 1)
        assert sum(piece.num_rows for piece in episode.pieces) == len(played)  # every plane is stored once
        entire = part_of(layout, episode)
        for first_step in range(0, lengths[number], layout.new_steps):
            expected = oracle_slice(layout, rows, number, first_step)
            for part in (entire, part_of(layout, episode, first_step=first_step)):
                got = {name: np.full_like(array, 77) for name, array in layout.allocate(2).items()}
                unroll = part.unroll_at(first_step)
                unroll.write_into(got, 1)
                for name, array in expected.items():
                    np.testing.assert_array_equal(got[name][1], array[0], err_msg=f"{name} of game {number} from {first_step}")
                    assert (got[name][0] == np.full_like(got[name][0], 77)).all()
                assert unroll.num_steps == expected["row_valid"][0, layout.burn_in :].sum()
                assert unroll.policy_version == tuple(expected["policy_version"][0, 0])


@pytest.mark.parametrize("layout", [LAYOUT, RECURRENT], ids=["stack", "core"])
def test_no_piece_is_unpacked_twice_and_only_those_of_the_next_unroll_are_kept(layout: UnrollLayout) -> None:
    part = part_of(layout, assembled(layout, play(layout, [3, 50, 9], seed=2))[1])
    arrays = layout.allocate(1)
    with mock.patch.object(PieceLayout, "unpack", autospec=True, side_effect=PieceLayout.unpack) as unpack:
        for unroll in part.unrolls():
            unroll.write_into(arrays, 0)
            assert len(part._unpacked) <= 2
    assert unpack.call_count == len(part._pieces)
    assert part._unpacked == {}


def test_a_last_step_that_has_a_piece_of_its_own_and_no_row_after_it_can_be_cut() -> None:
    length, pieces, arrays = LAYOUT.new_steps, PieceLayout(LAYOUT), LAYOUT.allocate(1)
    arrays["inverse_temperature"][...] = 1
    key = EpisodeKey(0, 0, 0, 0, 0)
    (first,) = pieces.pack(arrays, Segment(key, 0, 0, 0, length, 0, length + 1, is_end=False)).pieces
    arrays["actions"][0, 0] = 1
    (last,) = pieces.pack(arrays, Segment(key, 0, 0, 0, 1, length, 0, is_end=True)).pieces
    episode = Episode(key, 0, length + 1, (first, last))
    assert episode.is_whole
    got = LAYOUT.allocate(1)
    part_of(LAYOUT, episode, first_step=length).unroll_at(length).write_into(got, 0)
    assert got["actions"][0, LAYOUT.burn_in] == 1


@pytest.mark.parametrize(
    ("name", "value"), [("index_in_episode", 2), ("index_in_episode", 2**31 - 1), ("game_reset", False)], ids=["later", "long", "no reset"]
)
def test_numbers_of_an_unroll_that_contradict_each_other_are_refused(name: str, value: int) -> None:
    arrays = unrolls_of(LAYOUT, play(LAYOUT, [9], 0))[0]
    arrays[name].reshape(-1)[0] = value
    with pytest.raises(MalformedMessage, match="contradict"):
        PieceLayout(LAYOUT).cut(arrays, 0, agent=0, actor_index=0, incarnation=0)
