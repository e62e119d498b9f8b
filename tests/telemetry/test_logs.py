"""Log lines of this process and its libraries have one format; repeated warnings are limited."""

import io
import json
import logging
import os
import tempfile
from typing import TextIO, cast

import pytest
import structlog

from herd.telemetry.logs import MAX_LIMITED_KEYS, LimitedWarnings, configure_logging, get_logger
from tests.failing_disks import no_space_beyond


@pytest.fixture(autouse=True)
def restored_logging():
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def test_json_lines_carry_service_fields_and_level():
    stream = io.StringIO()
    configure_logging("actor", json=True, stream=stream, run="r", index=3)
    get_logger().info("listening", port=7100)
    logging.getLogger("a.library").warning("from %s", "elsewhere")
    ours, theirs = map(json.loads, stream.getvalue().splitlines())
    assert {k: ours[k] for k in ("event", "service", "run", "index", "port", "level")} == {
        "event": "listening",
        "service": "actor",
        "run": "r",
        "index": 3,
        "port": 7100,
        "level": "info",
    }
    assert (theirs["event"], theirs["service"], theirs["level"]) == ("from elsewhere", "actor", "warning")
    assert "timestamp" in theirs


def test_text_logs_to_a_file_are_single_lines_without_colours():
    stream = io.StringIO()
    configure_logging("learner", stream=stream)
    get_logger().warning("dropped", reason="two\nlines")
    assert stream.getvalue().count("\n") == 1
    assert "\x1b" not in stream.getvalue()
    assert "service=learner" in stream.getvalue()


def test_an_exception_is_one_json_line():
    stream = io.StringIO()
    configure_logging("learner", json=True, stream=stream)
    try:
        int("boom")
    except ValueError:
        get_logger().exception("failed")
    line = json.loads(stream.getvalue())
    assert "ValueError: invalid literal" in line["exception"]


def test_the_log_level_applies_and_unknown_ones_are_refused():
    stream = io.StringIO()
    early = get_logger()
    configure_logging("actor", "warning", json=True, stream=stream)
    early.info("quiet")
    early.warning("loud")
    assert [json.loads(line)["event"] for line in stream.getvalue().splitlines()] == ["loud"]
    with pytest.raises(ValueError, match="'noisy'"):
        configure_logging("actor", "noisy")


def test_repeated_warnings_are_limited_and_counted():
    stream = io.StringIO()
    configure_logging("learner", json=True, stream=stream)
    now = [0.0]
    limited = LimitedWarnings(get_logger(), interval_seconds=60, clock=lambda: now[0])
    assert limited.warn("malformed", "malformed message", reason="header")
    for now[0] in (1.0, 30.0, 59.9):
        assert not limited.warn("malformed", "malformed message", reason="header")
    assert limited.warn("other", "other event")
    now[0] = 60.0
    assert limited.warn("malformed", "malformed message", reason="header")
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [(line["event"], line.get("suppressed")) for line in lines] == [
        ("malformed message", None),
        ("other event", None),
        ("malformed message", 3),
    ]


def test_the_number_of_limited_warning_keys_is_bounded():
    configure_logging("learner", json=True, stream=io.StringIO())
    limited = LimitedWarnings(get_logger(), clock=lambda: 0.0)
    warned = sum(limited.warn(f"stranger {n}", "malformed message") for n in range(3 * MAX_LIMITED_KEYS))
    assert warned == MAX_LIMITED_KEYS + 1


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full, where every write finds a full disk")
def test_a_full_disk_loses_log_lines_and_reports_how_many():
    class Disk:
        """A file descriptor on a disk that can be full."""

        def __init__(self, file):
            self.now = file

        def fileno(self):
            return self.now.fileno()

        def isatty(self):
            return False

    with tempfile.TemporaryFile("w+") as kept, open("/dev/full", "w") as full:
        disk = Disk(kept)
        configure_logging("learner", json=True, stream=cast(TextIO, disk))
        get_logger().info("before")
        disk.now = full
        for _ in range(3):
            get_logger().info("lost")
        disk.now = kept
        get_logger().info("after")
        kept.seek(0)
        lines = [json.loads(line) for line in kept]
    assert [(line["event"], line.get("num_lost")) for line in lines] == [("before", None), ("after", None), ("log lines were lost", 3)]


def test_a_partly_written_line_does_not_damage_the_next(tmp_path):
    with (tmp_path / "log").open("w") as stream:
        configure_logging("learner", json=True, stream=stream)
        get_logger().info("before")
        size = (tmp_path / "log").stat().st_size
        with no_space_beyond(size + 10):
            get_logger().info("torn")
        get_logger().info("after")
    lines = (tmp_path / "log").read_text().splitlines()
    assert [json.loads(line)["event"] for line in (lines[0], *lines[2:])] == ["before", "after", "log lines were lost"]
    assert len(lines[1]) == 10


def test_logging_to_a_closed_stream_raises_no_error():
    stream = io.StringIO()
    configure_logging("learner", stream=stream)
    stream.close()
    get_logger().info("nowhere")
