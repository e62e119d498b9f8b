"""The sockets of real processes receive 10,000 fuzzed messages, foreign protocols and half-open connections, beside an honest run.

benchmarks/fuzz/sockets.py does the same with a million messages for each socket.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.fuzz.sockets import attack, parse

ARGUMENTS = (
    "--messages 2500 --turns 4 --rest-seconds 0 --sieges learner --nonsense 150 --half-open 400 --hold-seconds 12 --http 100 --deaf 0"
)
SHORT_OF_A_MILLION = {"memory flat"}
"""In so short a time memory still grows to its usual level."""


def test_hostile_messages_change_nothing_but_counters(tmp_path: Path) -> None:
    result = attack(parse(ARGUMENTS.split()), tmp_path / "run")
    broken = {check for check, holds in result["checks"].items() if not holds} - SHORT_OF_A_MILLION
    assert broken == set(), result
    assert sum(flood["messages"] for flood in result["floods"].values()) >= 10_000
    learner = result["floods"]["learner"]
    assert {"malformed header", "malformed array", "refused session", "refused duplicate", "rejected malformed"} <= set(learner["counted"])
    for server, kind in (("replay", "a game"), ("population", "of another sweep"), ("inference", "the next row")):
        assert result["floods"][server]["by_kind"][kind] >= 10
