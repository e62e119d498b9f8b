"""Instructions as numbers: each word becomes one of 1000 hash buckets (IMPALA's language channel)."""

from __future__ import annotations

import zlib

NUM_BUCKETS = 1000
"""Number of ids in an embedding table, including padding."""
MAX_WORDS = 16
"""Longer instructions are truncated."""
PADDING = 0


def hash_instruction(text: str) -> list[int]:
    """Return ``MAX_WORDS`` ids for the words of ``text`` (split at white space): 1..999, then ``PADDING``.

    The hash is the same in every process and release, so actors, learners and checkpoints agree.
    """
    words = [1 + zlib.crc32(word.encode()) % (NUM_BUCKETS - 1) for word in text.split()[:MAX_WORDS]]
    return words + [PADDING] * (MAX_WORDS - len(words))
