"""Small measurements with real processes; they end by count, not by time."""

from __future__ import annotations

import json
from typing import Any

import pytest

from herd.bench.command import main
from herd.bench.fan.fan_in import FanInOptions, measure_fan_in
from herd.bench.fan.fan_out import FanOutOptions, measure_fan_out
from herd.bench.fan.limits import LimitError
from herd.config.settings import NetworkSettings, RunSettings
from herd.envs.suites.catch.settings import CatchSettings

CATCH = RunSettings(
    name="fan",
    env=CatchSettings(tasks=("catch",), frame_height=10, frame_width=5, frame_stack=1, action_repeat=1),
    network=NetworkSettings(torso="mlp"),
)


def quiet(_what: str, _share: float) -> None:
    pass


def test_fifty_actors_lose_nothing_through_broken_connections() -> None:
    options = FanInOptions(actors=50, seconds=1.0, unrolls_per_second=5000.0, unrolls_per_message=2, messages_per_actor=5, breaks=10)
    report: dict[str, Any] = measure_fan_in(CATCH, options, advance=quiet)
    loss = report["loss"]
    assert loss["is_exact"], loss
    assert (loss["unrolls_sent"], loss["unrolls_consumed"]) == (500, 500)
    assert loss["frames"]["consumed"] == 500 * 20
    assert loss["connections_broken"] >= 1
    assert report["unrolls_by_actor"]["whole_run"] == {"min": 10, "median": 10, "max": 10}
    assert report["memory"]["peak_bytes"] >= report["memory"]["after_bytes"] > 0
    assert report["memory"]["queue_bytes"] <= report["memory"]["queue_bound_bytes"]
    assert report["receiver"]["cpu_microseconds_per_unroll"] > 0
    assert report["bytes_per_second"] > 0


def test_fifty_clients_get_every_version_whole_through_a_tree() -> None:
    options = FanOutOptions(
        actors=50, replicas=2, depth=2, versions=2, interval_seconds=0.5, ask_seconds=0.2, seconds=0.5, concurrent=10, timeout_seconds=60.0
    )
    report: dict[str, Any] = measure_fan_out(CATCH, options, advance=quiet)
    assert report["levels"] == [1, 1, 2]
    assert [version["is_complete"] for version in report["versions"]] == [True, True]
    assert all(0 < version["median_seconds"] <= version["worst_seconds"] for version in report["versions"])
    clients = report["clients"]
    assert (clients["went_back"], clients["in_part"], clients["malformed"]) == (0, 0, 0)
    # The lowest level serves the clients; above it, each server serves its children.
    by_level = [[server for server in report["servers"] if server["level"] == level] for level in range(3)]
    assert [len(servers) for servers in by_level] == [1, 1, 2]
    assert sum(server["weights"] for server in by_level[2]) >= 50 * 2
    assert by_level[0][0]["weights"] <= 3 * 2
    assert report["quiet"]["weights_per_second"] == 0
    assert report["quiet"]["requests_per_second"] > 0


def test_the_command_prints_what_was_measured(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    asked = []

    def measure(settings: RunSettings, options: FanInOptions, *, advance: object) -> dict[str, object]:
        asked.append((settings, options))
        return {"actors": options.actors}

    monkeypatch.setattr("herd.bench.fan.fan_in.measure_fan_in", measure)
    words = [
        "fan-in",
        "--actors",
        "300",
        "--unrolls-per-second",
        "inf",
        "--unrolls-per-message",
        "8",
        "--json",
        "--learner.queue_batches",
        "3",
    ]
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out) == {"actors": 300}
    settings, options = asked[0]
    assert (settings.actor.environments, settings.learner.queue_batches) == (8, 3)
    assert (options.unrolls_per_second, options.breaks, options.paced) == (float("inf"), 3, False)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["fan-in", "--actors", "0"], "1..16384"),
        (["fan-in", "--actors", "20000"], "1..16384"),
        (["fan-in", "--seconds", "-1"], "--seconds: invalid positive float"),
        (["fan-in", "--unrolls-per-message", "65"], "learner.queue_batches"),
        (["fan-in", "--learner.shards", "2"], "one shard"),
        (["fan-in", "missing.yaml"], "missing.yaml"),
        (["fan-out", "--depth", "0"], "--depth"),
        (["fan-out", "--replicas", "-1"], "--replicas"),
        (["fan-out", "--torso", "wide"], "'shallow'"),
        (["fan-out", "--network.torzo", "deep"], "--network.torso"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(words: list[str], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    error = capsys.readouterr().err
    assert line in error
    assert error.count("\n") == 1


def test_too_few_open_files_are_one_line_and_exit_code_2(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("herd.bench.fan.fan_in.raise_limit", lambda: 1024)
    with pytest.raises(LimitError):
        measure_fan_in(CATCH, FanInOptions(actors=5000, seconds=1.0, unrolls_per_second=1.0), advance=quiet)
    assert main(["fan-in", "--actors", "5000"]) == 2
    assert "need 5,256 open files" in capsys.readouterr().err


def test_help_names_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("fan-in", "fan-out"):
        with pytest.raises(SystemExit, match="0"):
            main([name, "--help"])
    text = capsys.readouterr().out
    for option in ("--actors", "--unrolls-per-second", "--paced", "--replicas", "--depth", "--json", "--torso"):
        assert option in text
