from herd.components.suites.reading import MAX_WORDS, NUM_BUCKETS, hash_instruction


def test_words_are_hashed_in_order_and_padded() -> None:
    ids = hash_instruction("  pick the\tred  ball ")
    assert len(ids) == MAX_WORDS == 16
    assert all(1 <= word < NUM_BUCKETS for word in ids[:4])
    assert ids[4:] == [0] * 12
    assert hash_instruction("red") == [ids[2], *[0] * 15]


def test_word_ids_are_stable_across_releases() -> None:
    # Checkpoints depend on these numbers.
    assert hash_instruction("catch the ball")[:3] == [963, 274, 783]
    assert hash_instruction("avoid the ball")[:3] == [841, 274, 783]


def test_long_instructions_are_cut_and_empty_ones_are_padding() -> None:
    long = " ".join(f"word{i}" for i in range(40))
    assert hash_instruction(long) == [hash_instruction(f"word{i}")[0] for i in range(16)]
    assert hash_instruction("") == [0] * 16


def test_words_spread_over_buckets_and_never_hash_to_padding() -> None:
    ids = {hash_instruction(f"word{i}")[0] for i in range(5_000)}
    assert min(ids) >= 1
    assert max(ids) < NUM_BUCKETS
    assert len(ids) > 950
