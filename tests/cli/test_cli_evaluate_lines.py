from __future__ import annotations

from io import StringIO

from rich.console import Console

from herd.cli.evaluate import Lines


def test_progress_is_printed_at_intervals_without_a_terminal() -> None:
    now, output = [100.0], StringIO()
    lines = Lines(Console(file=output), "playing runs/pong", clock=lambda: now[0])
    lines.tick()
    for second in range(1, 26):
        now[0] = 100.0 + second
        lines.tick()
        if second == 15:
            lines.show("pong: 3 of 200 games")
    assert output.getvalue().splitlines() == ["playing runs/pong (0 s)", "playing runs/pong (10 s)", "pong: 3 of 200 games (20 s)"]
