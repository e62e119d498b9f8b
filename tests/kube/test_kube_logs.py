"""``herd logs``: lines, times, several pods, and what happens when pods come, restart and go."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from herd.cli.errors import CommandError
from herd.cli.logs import seconds_of
from herd.kube.errors import UnreachableError
from herd.kube.log_following import Follower
from herd.kube.log_streams import LogStream, LogWindow, nanoseconds, split_lines, stamped
from herd.kube.release import release_pods
from tests.kube.conftest import Answer, Served, command_environment
from tests.kube.fake_api_server import FakeLog
from tests.kube.fake_objects import pod, waiting_pod

Herd = Callable[..., Answer]


def test_lines_are_cut_whole_whatever_the_pieces() -> None:
    text = b"one\ntwo\r\n\nthree \xff\nlast"
    for size in range(1, len(text) + 1):
        pieces = [text[start : start + size] for start in range(0, len(text), size)]
        assert list(split_lines(pieces)) == [b"one", b"two\r", b"", b"three \xff", b"last"], size


def test_long_lines_are_cut_and_memory_stays_bounded() -> None:
    pieces = [b"a" * 7, b"a" * 7 + b"\nshort\n", b"b" * 30 + b"\nend"]
    assert list(split_lines(pieces, longest=10)) == [b"a" * 10, b"short", b"b" * 10, b"end"]
    assert list(split_lines([b"a" * 11], longest=10)) == [b"a" * 10]


def test_times_have_nanoseconds_and_zones() -> None:
    second = nanoseconds("1970-01-01T00:00:01Z")
    assert second == 1_000_000_000
    assert nanoseconds("1970-01-01T00:00:01.5Z") == 1_500_000_000
    assert nanoseconds("1970-01-01T00:00:01.000000007Z") == 1_000_000_007
    assert nanoseconds("1970-01-01T01:00:01.25+01:00") == 1_250_000_000
    for none in ("", "hello", "2026-11-21", "12:00", "2026-11-21T12:00:00"):
        assert nanoseconds(none) is None


def test_a_line_without_a_time_counts_as_written_with_the_one_before() -> None:
    lines = list(stamped([b"1970-01-01T00:00:02Z hello there", b"no time", b"1970-01-01T00:00:03Z caf\xc3\xa9 \xff\r"]))
    assert [(line.at // 10**9, line.text) for line in lines] == [(2, "hello there"), (2, "no time"), (3, "café \ufffd")]


def test_several_pods_in_the_order_of_time(served: Served, herd_process: Herd) -> None:
    fake = served.fake
    fake.logs["herd-learner-0"] = FakeLog([("2026-11-21T12:00:01Z", "a"), ("2026-11-21T12:00:03.5Z", "c")])
    fake.logs["herd-learner-1"] = FakeLog([("2026-11-21T12:00:02Z", "b"), ("2026-11-21T12:00:03.25Z", "b2"), ("2026-11-21T12:00:04Z", "d")])
    answer = herd_process("logs", "learner")
    assert (answer.code, answer.errors) == (0, "")
    assert answer.output.splitlines() == [
        "herd-learner-0 | a",
        "herd-learner-1 | b",
        "herd-learner-1 | b2",
        "herd-learner-0 | c",
        "herd-learner-1 | d",
    ]
    queries = [query for _, path, query in fake.requests if path.endswith("/log")]
    assert {query["container"] for query in queries} == {"learner"}
    assert {query["tailLines"] for query in queries} == {"100"}
    assert all("sinceSeconds" not in query for query in queries)


def test_rank_since_tail_and_no_prefix(served: Served, herd: Herd) -> None:
    fake = served.fake
    fake.logs["herd-learner-1"] = FakeLog([(f"2026-11-21T12:00:0{number}Z", f"line {number}") for number in range(5)])
    answer = herd("logs", "learners", "--rank", "1", "--since", "10m", "--tail", "2", "--no-prefix")
    assert (answer.code, answer.errors) == (0, "")
    assert answer.output.splitlines() == ["line 3", "line 4"]
    [query] = [query for _, path, query in fake.requests if path.endswith("/log")]
    assert query["sinceSeconds"] == "600"
    answer = herd("logs", "learner", "--rank", "1", "--tail", "-1")
    assert len(answer.output.splitlines()) == 5
    assert "tailLines" not in fake.requests[-1][2]


def test_previous_containers(served: Served, herd: Herd) -> None:
    served.fake.logs["herd-paramserver-replica-0"] = FakeLog([("2026-11-21T12:00:01Z", "why it ended")])
    answer = herd("logs", "paramserver-replica", "--previous")
    assert answer.output == "herd-paramserver-replica-0 | why it ended\n"
    assert served.fake.requests[-1][2]["previous"] == "true"
    assert served.fake.requests[-1][2]["container"] == "paramserver"


def test_more_pods_than_are_read_at_once(served: Served, herd: Herd) -> None:
    fake = served.fake
    fake.objects["pods"] += [pod(f"herd-actor-5d9f7c-{number:05}", "actor", ready=number != 30) for number in range(40)]
    for each in fake.objects["pods"]:
        fake.logs[each["metadata"]["name"]] = FakeLog([("2026-11-21T12:00:01Z", "hello")])
    answer = herd("logs", "actor", "--most-pods", "4")
    assert answer.errors == "herd: 4 of 43 pods, those in trouble first; choose one with --pod, or more with --most-pods\n"
    assert len(answer.output.splitlines()) == 4
    assert "herd-actor-5d9f7c-00030 | hello" in answer.output


def test_one_pod_that_cannot_be_read_does_not_hide_the_others(served: Served, herd: Herd) -> None:
    served.fake.logs["herd-learner-0"] = FakeLog([("2026-11-21T12:00:01Z", "hello")])
    answer = herd("logs", "learner")
    assert (answer.code, answer.output) == (0, "herd-learner-0 | hello\n")
    assert 'container "learner" in pod "herd-learner-1" is waiting to start' in answer.errors
    served.fake.logs.clear()
    assert herd("logs", "learner").code == 1


def test_a_pod_that_has_not_started_says_why(served: Served, herd: Herd) -> None:
    served.fake.objects["pods"][0] = waiting_pod("herd-learner-0", "learner", "ImagePullBackOff", 'Back-off pulling image "herd"')
    answer = herd("logs", "learner", "--rank", "0")
    assert answer.code == 1
    assert answer.errors == 'herd: herd-learner-0 has not started: ImagePullBackOff: Back-off pulling image "herd"\n'


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["lerner"], "lerner: no such component; did you mean learner?"),
        (["learner", "--rank", "7"], "release herd in namespace rl has no learner with rank 7"),
        (["learner", "--pod", "x"], "has no learner with pod x"),
        (["bandit"], "has no bandit; it has: paramserver, paramserver-replica, learner, actor"),
        (["actor", "--rank", "0"], "actors have no rank"),
        (["learner", "--since", "soon"], "--since soon: not an age"),
        (["learner", "--since", "0s"], "--since 0s: not an age"),
        (["learner", "--tail", "-2"], "--tail must be"),
        (["learner", "--most-pods", "0"], "--most-pods must be"),
        (["learner", "--most-pods", "1000"], "--most-pods must be"),
        (["learner", "--previous", "--follow"], "nothing to --follow"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_bad_input(served: Served, herd: Herd, words: list[str], part: str) -> None:
    answer = herd("logs", *words)
    assert (answer.code, answer.output) == (2, "")
    assert part in answer.errors
    assert answer.errors.count("\n") == 1


def test_ages() -> None:
    assert [seconds_of(word) for word in ("90", "30s", "1.5m", "2h", "1d")] == [90.0, 30.0, 90.0, 7_200.0, 86_400.0]
    for word in ("", "-5s", "5w", "nan", "1e9d", "10m5s"):
        with pytest.raises(CommandError):
            seconds_of(word)


def test_no_permission_for_logs_is_named(served: Served, herd: Herd) -> None:
    served.fake.forbidden.add(("get", "pods/log"))
    answer = herd("logs", "learner", "--rank", "0")
    assert answer.code == 1
    assert 'this needs verb "get" on resource "pods/log"' in answer.errors


def test_a_broken_connection_goes_on_behind_the_last_line(served: Served) -> None:
    served.fake.say("herd-learner-0", *[f"line {number}" for number in range(6)])
    served.fake.logs["herd-learner-0"].break_after = 3
    served.fake.end_log("herd-learner-0")
    cluster = served.connect()
    stream = LogStream(cluster, "herd-learner-0", "learner", LogWindow(tail_lines=100))
    seen: list[str] = []
    with pytest.raises(UnreachableError, match="the log broke off"):
        seen.extend(line.text for line in stream.read(follow=True))
    # extend keeps what came before the break
    seen += [line.text for line in stream.read(follow=True)]
    cluster.close()
    assert seen == [f"line {number}" for number in range(6)]
    query = served.fake.requests[-1][2]
    assert "tailLines" not in query
    assert int(query["sinceSeconds"]) > 1


ONE_STAMP = [("2026-11-21T12:00:01Z", "a"), ("2026-11-21T12:00:02Z", "b"), ("2026-11-21T12:00:02Z", "c"), ("2026-11-21T12:00:03Z", "d")]


@pytest.mark.parametrize("break_after", [None, 1, 2, 3])
def test_lines_that_share_a_time_are_all_given_once(served: Served, break_after: int | None) -> None:
    served.fake.logs["herd-learner-0"] = FakeLog(list(ONE_STAMP), break_after=break_after)
    cluster = served.connect()
    stream = LogStream(cluster, "herd-learner-0", "learner", LogWindow())
    seen: list[str] = []
    if break_after is not None:
        with pytest.raises(UnreachableError, match="the log broke off"):
            seen.extend(line.text for line in stream.read(follow=True))
    seen += [line.text for line in stream.read(follow=True)]
    cluster.close()
    assert seen == ["a", "b", "c", "d"]


def test_lines_without_a_time_do_not_vanish(served: Served) -> None:
    served.fake.logs["herd-learner-0"] = FakeLog([("no", "time"), *ONE_STAMP[:2], ("again", "none"), *ONE_STAMP[2:]], break_after=4)
    cluster = served.connect()
    stream = LogStream(cluster, "herd-learner-0", "learner", LogWindow())
    seen: list[str] = []
    with pytest.raises(UnreachableError, match="the log broke off"):
        seen.extend(line.text for line in stream.read(follow=True))
    assert seen == ["no time", "a", "b", "again none"]
    seen = [line.text for line in stream.read(follow=True)]
    cluster.close()
    assert seen[-2:] == ["c", "d"]


@contextmanager
def following(served: Served, **options: float) -> Iterator[tuple[list[str], threading.Condition]]:
    """What a follower of the learners has given so far, and what tells of more."""
    cluster = served.connect()
    follower = Follower(
        cluster, lambda: release_pods(cluster, "herd", "learner"), LogWindow(tail_lines=1), 10, look_seconds=0.05, **options
    )
    said: list[str] = []
    more = threading.Condition()

    def read() -> None:
        for each in follower.lines():
            with more:
                said.append(f"{each.pod}{'!' if each.is_note else '|'}{each.text}")
                more.notify_all()
        with more:
            said.append("END")
            more.notify_all()

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    try:
        yield said, more
    finally:
        follower.close()
        thread.join(timeout=20)
        cluster.close()
    assert not thread.is_alive()


def until(said: list[str], more: threading.Condition, line: str) -> None:
    with more:
        assert more.wait_for(lambda: line in said, timeout=30), said


def test_following_through_restarts_new_pods_and_the_end(served: Served) -> None:
    fake = served.fake
    for rank in range(2):
        fake.say(f"herd-learner-{rank}", "old", "newest")
    with following(served, gone_seconds=0.2) as (said, more):
        until(said, more, "herd-learner-0|newest")
        until(said, more, "herd-learner-1|newest")
        fake.say("herd-learner-0", "next")
        until(said, more, "herd-learner-0|next")
        # The container of rank 1 begins anew: its old log ends, the new one is read from its first line.
        fake.end_log("herd-learner-1")
        with fake.changed:
            fake.logs["herd-learner-1"] = FakeLog(ended=False)
            fake.objects["pods"][1] = pod("herd-learner-1", "learner", restarts=1)
        fake.say("herd-learner-1", "first", "second")
        until(said, more, "herd-learner-1|second")
        fake.objects["pods"].append(pod("herd-learner-2", "learner"))
        fake.say("herd-learner-2", "hello")
        until(said, more, "herd-learner-2|hello")
        fake.objects["pods"].clear()
        for rank in range(3):
            fake.end_log(f"herd-learner-{rank}")
        until(said, more, "END")
    lines = [line for line in said if line.startswith("herd-learner-1")]
    assert lines == ["herd-learner-1|newest", "herd-learner-1!restart 1", "herd-learner-1|first", "herd-learner-1|second"]
    assert [line for line in said if line.startswith("herd-learner-0")] == ["herd-learner-0|newest", "herd-learner-0|next"]
    assert "!no pod to follow any more" in said


def test_following_survives_a_server_that_stumbles(served: Served) -> None:
    served.fake.say("herd-learner-0", "hello")
    served.fake.failing[("list", "pods")] = [500, 503]
    with following(served) as (said, more):
        until(said, more, "herd-learner-0|hello")
    assert sum("trying again" in line for line in said) == 2


def test_following_says_once_what_cannot_be_read_and_goes_on(served: Served) -> None:
    served.fake.say("herd-learner-0", "hello")
    looks = 0

    def count() -> None:
        nonlocal looks
        looks += 1
        if looks == 10:
            served.fake.say("herd-learner-1", "at last")

    served.fake.on_list = count
    with following(served) as (said, more):
        until(said, more, "herd-learner-1|at last")
    assert sum("is waiting to start" in line for line in said) == 1


def test_following_without_the_right_to_read_logs_ends(served: Served, herd_process: Herd) -> None:
    served.fake.forbidden.add(("get", "pods/log"))
    answer = herd_process("logs", "learner", "--rank", "0", "--follow")
    assert (answer.code, answer.output) == (2, "")
    assert answer.errors.startswith("herd: not allowed to get pods/log herd-learner-0 in namespace rl")


def test_a_follower_that_is_closed_ends_although_pods_are_silent(served: Served) -> None:
    served.fake.say("herd-learner-0", "hello")
    with following(served) as (said, more):
        until(said, more, "herd-learner-0|hello")
    # ``following`` has checked that the thread ended


def test_ctrl_c_ends_a_follow_in_order(served: Served) -> None:
    served.fake.say("herd-learner-0", "hello")
    process = subprocess.Popen(
        [sys.executable, "-m", "herd.cli.main", "logs", "learner", "--rank", "0", "--follow"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=command_environment(KUBECONFIG=str(served.kubeconfig)),
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "herd-learner-0 | hello\n"
        served.fake.say("herd-learner-0", "more")
        assert process.stdout.readline() == "herd-learner-0 | more\n"
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=30)
    assert (process.returncode, output, errors) == (0, "", "")
