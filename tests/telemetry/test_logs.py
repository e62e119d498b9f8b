"""Log lines of this process and its libraries have one format; repeated warnings are limited."""

import io
import logging
import os
import tempfile
from typing import TextIO, cast

import pytest
import structlog
from structlog.testing import capture_logs

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


def event_of(line):
    return line.partition("] ")[2].split("  ")[0].strip()


def test_lines_are_text_with_service_fields_and_level():
    stream = io.StringIO()
    early = get_logger()
    configure_logging("actor", stream=stream, run="r", index=3)
    early.info("listening", port=7100, reason="two\nlines")
    logging.getLogger("a.library").warning("from %s", "elsewhere")
    logging.getLogger("a.library").debug("quiet")
    ours, theirs = stream.getvalue().splitlines()
    assert (event_of(ours), event_of(theirs)) == ("listening", "from elsewhere")
    assert {"service=actor", "run=r", "index=3", "port=7100"} <= set(ours.split())
    assert "service=actor" in theirs
    assert "[info " in ours
    assert "[warning " in theirs
    assert "\x1b" not in stream.getvalue()


def test_repeated_warnings_are_limited_and_counted():
    now = [0.0]
    limited = LimitedWarnings(get_logger(), interval_seconds=60, clock=lambda: now[0])
    with capture_logs() as lines:
        assert limited.warn("malformed", "malformed message", reason="header")
        for now[0] in (1.0, 30.0, 59.9):
            assert not limited.warn("malformed", "malformed message", reason="header")
        assert limited.warn("other", "other event")
        now[0] = 60.0
        assert limited.warn("malformed", "malformed message", reason="header")
    assert [(line["event"], line.get("suppressed")) for line in lines] == [
        ("malformed message", None),
        ("other event", None),
        ("malformed message", 3),
    ]


def test_the_number_of_limited_warning_keys_is_bounded():
    limited = LimitedWarnings(get_logger(), clock=lambda: 0.0)
    with capture_logs():
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
        configure_logging("learner", stream=cast(TextIO, disk))
        get_logger().info("before")
        disk.now = full
        for _ in range(3):
            get_logger().info("lost")
        disk.now = kept
        get_logger().info("after")
        kept.seek(0)
        lines = list(kept)
    assert [event_of(line) for line in lines] == ["before", "after", "log lines were lost"]
    assert "num_lost=3" in lines[-1]


def test_a_partly_written_line_does_not_damage_the_next(tmp_path):
    with (tmp_path / "log").open("w") as stream:
        configure_logging("learner", stream=stream)
        get_logger().info("before")
        size = (tmp_path / "log").stat().st_size
        with no_space_beyond(size + 10):
            get_logger().info("torn")
        get_logger().info("after")
    lines = (tmp_path / "log").read_text().splitlines()
    assert [event_of(line) for line in (lines[0], *lines[2:])] == ["before", "after", "log lines were lost"]
    assert len(lines[1]) == 10


def test_logging_to_a_closed_stream_raises_no_error():
    stream = io.StringIO()
    configure_logging("learner", stream=stream)
    stream.close()
    get_logger().info("nowhere")
