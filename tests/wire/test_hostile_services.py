"""Every in-process target of benchmarks/fuzz gets a thousand mutations of valid messages: it gives a value or its one error, and the
accounts
stay intact.

``python -m benchmarks.fuzz`` runs millions of mutations, guided by coverage.
"""

from __future__ import annotations

from random import Random

import pytest

from benchmarks.fuzz.decoder import MODULES, UNFRAMED, load
from benchmarks.fuzz.targets import mutate

INPUTS = 1000


def mutate_bytes(data: bytes, max_bytes: int, random: Random) -> bytes:
    """Set, delete or repeat a few bytes."""
    result = bytearray(data or b"\0")
    for _ in range(random.randint(1, 3)):
        where = random.randrange(len(result))
        kind = random.randrange(3)
        if kind == 0:
            result[where] = random.randrange(256)
        elif kind == 1 and len(result) > 1:
            del result[where : where + random.randint(1, 8)]
            result = result or bytearray(1)
        else:
            result[where:where] = result[where : where + 16]
    return bytes(result[:max_bytes])


@pytest.mark.parametrize("target", [name for name in MODULES if name != "tensors"])
def test_mutated_messages_are_answered_or_raise_the_expected_error(target: str) -> None:
    function, seeds, max_bytes = load(target)
    random = Random(target)
    corpus = list(seeds())
    for data in corpus:
        function(data)
    for _ in range(INPUTS):
        data = mutate(
            random.choice(corpus), max_bytes, random, lambda data, most: mutate_bytes(data, most, random), framed=target not in UNFRAMED
        )
        function(data)
        if random.random() < 0.2:
            corpus.append(data)  # several mutations away from a valid message
