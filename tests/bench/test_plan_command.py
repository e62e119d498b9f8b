from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator

from herd.bench.plan import PlanOptions, make_plan
from herd.bench.plan_figures import package_figures, with_own_figures
from herd.cli.main import main
from herd.config.settings import RunSettings

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
SCHEMA = ROOT / "helm" / "herd" / "values.schema.json"


def own_bench(path: Path, *, torso: str, system: float = 900.0) -> str:
    report = json.loads((RESULTS / "2026-11-21-bench-breakout.json").read_text())
    report["settings"]["network"]["torso"] = torso
    report["stages"]["system"]["core_microseconds_per_agent_step"] = system
    path.write_text(json.dumps(report))
    return str(path)


def plan_json(words: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert main(["plan", *words, "--json"]) == 0
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    return report


def test_json_contains_arithmetic_pods_and_notes(capsys: pytest.CaptureFixture[str]) -> None:
    report = plan_json(["--frames_per_second", "250000"], capsys)
    lines = {(line["section"], line["quantity"]): line for line in report["arithmetic"]}
    assert lines["frames", "unrolls/s"]["value"] == 3125
    assert "62,500 / 20" in lines["frames", "unrolls/s"]["formula"]
    assert [pod["role"] for pod in report["pods"]] == ["actor", "learner", "paramserver"]
    assert any("No GPU learner was measured" in note for note in report["notes"])


def test_a_preset_is_a_name_or_path_overridden_by_settings(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    deep = plan_json(["--frames_per_second", "250000", "--preset", "atari-deep"], capsys)
    shallow = plan_json(["--frames_per_second", "250000"], capsys)
    assert deep["actors"]["processes"] > 2 * shallow["actors"]["processes"]
    mine = tmp_path / "mine.yaml"
    mine.write_text("actor: {environments: 16}\n")
    report = plan_json(["--frames_per_second", "250000", "--preset", str(mine), "--learner.queue_batches", "4"], capsys)
    assert report["actors"]["messages"] == pytest.approx(3125 / 16)


def test_a_given_learner_rate_gives_no_note_about_gpus(capsys: pytest.CaptureFixture[str]) -> None:
    report = plan_json(["--frames_per_second", "250000", "--learner_frames_per_second", "125000"], capsys)
    assert report["learners"]["shards"] == 3  # 250,000 / (125,000 x 0.875)
    assert not any("No GPU learner was measured" in note for note in report["notes"])


def test_figures_of_the_package_are_those_of_the_measurements_that_they_name() -> None:
    package = package_figures()
    measured = with_own_figures(package, [RESULTS / "inference" / "local-and-remote.json"]).inference
    assert {name: round(found.lowest_ratio, 3) for name, found in measured.items()} == {
        name: found.lowest_ratio for name, found in package.inference.items()
    }
    for name, unrolls in (("fan-in.json", 1), ("fan-in-32.json", 32)):
        report = json.loads((RESULTS / "fan" / name).read_text())
        spent = report["receiver"]["thread_cpu_microseconds_per_unroll"]["io_thread"]
        planned = package.ingest.microseconds_per_message / unrolls + package.ingest.microseconds_per_unroll
        assert planned == pytest.approx(spent, rel=0.01)


def test_given_figures_replace_those_of_the_package(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    figures = own_bench(tmp_path / "own.json", torso="shallow")
    report = plan_json(["--frames_per_second", "40000", "--headroom", "0", "--figures", figures], capsys)
    # 10,000 steps x (900 - 94.086) us.
    assert report["actors"]["cores"] == pytest.approx(8.05914, rel=1e-4)
    assert any(figures in note for note in report["notes"])


def test_given_figures_add_a_network(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    figures = own_bench(tmp_path / "own.json", torso="nature")
    words = ["--frames_per_second", "40000", "--preset", "atari-shallow", "--learner", "cpu", "--figures", figures]
    report = plan_json(words, capsys)
    assert report["paramservers"]["bytes_out"] > 0


def test_reports_of_fan_in_and_fan_out_can_be_given_as_figures(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    hardware = {"usable_cores": 8, "processor": "Mine"}
    fan_in = tmp_path / "in.json"
    fan_in.write_text(
        json.dumps(
            {
                "receiver": {"thread_cpu_microseconds_per_unroll": {"io_thread": 448.0}},
                "unrolls_per_message": 4,
                "hardware": hardware,
                "date": "2026-11-21",
            }
        )
    )
    fan_out = tmp_path / "out.json"
    fan_out.write_text(
        json.dumps(
            {
                "version_bytes": 2e6,
                "cpu_microseconds_per_weights": 6000.0,
                "cpu_microseconds_per_not_modified": 90.0,
                "hardware": hardware,
                "date": "2026-11-21",
            }
        )
    )
    words = ["--frames_per_second", "250000", "--figures", str(fan_in), "--figures", str(fan_out)]
    report = plan_json(words, capsys)
    # 3,125 x 448 us = 1.4 cores, at 70 % utilisation.
    assert report["learners"]["bounds"]["I/O thread"] == 2
    # 97.7 answers x 3,000 us x 2.71 MB.
    assert report["paramservers"]["cores"] == pytest.approx(97.656 * 3000e-6 * 2.709716, rel=1e-3)


def test_replay_and_inference_reports_can_be_given_as_figures(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    common = {"hardware": {"usable_cores": 8, "processor": "Mine"}, "date": "2026-11-22"}
    replay, inference = tmp_path / "replay.json", tmp_path / "inference.json"
    costs = {"inserted_unrolls_per_core_second": 1000.0, "drawn_unrolls_per_core_second": 4000.0, "bytes_per_agent_step": 800.0}
    replay.write_text(json.dumps({**common, "figures": costs}))
    pairs = [{"local": {"frames_per_second": 100.0}, "remote": {"frames_per_second": remote}} for remote in (130.0, 120.0)]
    inference.write_text(json.dumps({**common, "settings": ["--inference.device", "cuda"], "networks": {"shallow": pairs}}))
    words = [
        "--frames_per_second",
        "80000",
        "--replay.kind",
        "shared",
        "--replay.fraction",
        "0.5",
        "--replay.capacity_agent_steps",
        "5000000",
    ]
    words += ["--learner.queue_batches", "16"]
    report = plan_json([*words, "--game_steps", "1", "--figures", str(replay), "--figures", str(inference)], capsys)
    found = {line["quantity"]: line["value"] for line in report["arithmetic"] if line["section"] == "replay"}
    # 1,000 unrolls a second in and as many out: 1,000 x (1,000 + 250) us.
    assert found["cores"] == pytest.approx(1.25)
    assert found["memory for them"] == pytest.approx(800.0 * 5e6, rel=1e-3)
    assert report["inference"] == "remote"
    [note] = [note for note in report["notes"] if note.startswith("actor.inference remote: remote made at least 1.2 times")]
    assert "--inference.device cuda" in note


def values_text(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["plan", *words, "--values"]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        ["--frames_per_second", "1000", "--learner", "cpu"],
        ["--frames_per_second", "250000", "--preset", "atari-deep", "--actor.environment_threads", "3"],
        ["--frames_per_second", "92000000"],  # several levels of replicas
        [
            "--frames_per_second",
            "250000",
            "--replay.kind",
            "shared",
            "--learner.queue_batches",
            "16",
            "--actor.inference",
            "remote",
            "--evaluation.interval_seconds",
            "60",
        ],
    ],
)
def test_values_fit_the_schema_of_the_chart(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    values = yaml.safe_load(values_text(words, capsys))
    assert [error.message for error in Draft7Validator(json.loads(SCHEMA.read_text())).iter_errors(values)] == []
    for component in values:
        resources = values[component].get("resources")
        if resources is None:
            assert values[component] == {"replicas": 0}
            continue
        asked, most = resources["requests"], resources["limits"]
        assert 0 < int(asked["cpu"]) <= int(most["cpu"])
        assert 0 < int(asked["memory"].removesuffix("Mi")) <= int(most["memory"].removesuffix("Mi"))


def test_an_actor_requests_one_core_per_thread(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--frames_per_second", "40000", "--actor.environment_threads", "3"]
    processes = plan_json(words, capsys)["actors"]["processes"]
    actor = yaml.safe_load(values_text(words, capsys))["actor"]
    assert actor["replicas"] == processes
    assert actor["resources"]["requests"]["cpu"] == "3"
    assert actor["resources"]["limits"]["cpu"] == "4"


def test_values_name_their_experiment_and_settings(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "Breakout with every default" in values_text(["--frames_per_second", "1000"], capsys)
    text = values_text(["--frames_per_second", "1000", "--actor.environments", "8"], capsys)
    assert "#   --actor.environments 8" in text
    assert "default" not in text
    mine = tmp_path / "mine.yaml"
    mine.write_text("actor: {environments: 16}\n")
    text = values_text(["--frames_per_second", "1000", "--preset", str(mine), "--learner.queue_batches", "4"], capsys)
    assert f"#   --set-file experiment={mine}\n" in text
    assert "#   --learner.queue_batches 4\n" in text


def test_values_hold_replicas_shards_and_resources(capsys: pytest.CaptureFixture[str]) -> None:
    values = yaml.safe_load(values_text(["--frames_per_second", "250000", "--preset", "atari-deep"], capsys))
    assert values["actor"]["replicas"] == 74
    # 364 MB plus a half; the limit is the chart's.
    assert values["actor"]["resources"] == {"requests": {"cpu": "1", "memory": "521Mi"}, "limits": {"cpu": "2", "memory": "2048Mi"}}
    assert values["learner"]["shards"] == 10
    assert values["learner"]["gpu"] == {"enabled": True}
    assert values["paramserverReplica"] == {"replicas": 0}
    cpu = yaml.safe_load(values_text(["--frames_per_second", "1000", "--learner", "cpu"], capsys))
    assert cpu["learner"]["gpu"] == {"enabled": False}


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ([], "--frames_per_second"),
        (["--frames_per_second", "0"], "above 0"),
        (["--frames_per_second", "inf"], "above 0"),
        (["--frames_per_second", "fast"], "above 0"),
        (["--frames_per_second", "1e5", "--headroom", "1"], "--headroom"),
        (["--frames_per_second", "1e5", "--learner_cores", "0"], "--learner_cores"),
        (["--frames_per_second", "1e5", "--preset", "atari-depe"], "did you mean atari-deep?"),
        (["--frames_per_second", "1e5", "--preset", "atari-shallow"], "no published GPU rate for network.torso nature"),
        (["--frames_per_second", "1e5", "--preset", "atari-deep-lstm"], "no figures for atari with network.torso deep"),
        (["--frames_per_second", "1e5", "--figures", "missing.json"], "missing.json: cannot be read"),
        (["--frames_per_second", "1e5", "--figures", "BROKEN"], "not JSON"),
        (["--frames_per_second", "1e5", "--figures", "FOREIGN"], "not the output of herd bench"),
        (["--frames_per_second", "1e5", "--figures", "PARTIAL"], "incomplete: KeyError 'settings'"),
        (["--frames_per_second", "1e5", "--actor.enviroments", "3"], "--actor.environments"),
        (["--frames_per_second", "1e5", "atari.yaml"], "--preset atari.yaml"),
        (["--frames_per_second", "1e5", "--json", "--values"], "cannot be combined"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(words: list[str], line: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    contents = {"BROKEN": "{", "FOREIGN": "{}", "PARTIAL": '{"stages": {}}'}
    for name, text in contents.items():
        (tmp_path / name).write_text(text)
    assert main(["plan", *(str(tmp_path / word) if word in contents else word for word in words)]) == 2
    error = capsys.readouterr().err
    assert line in error
    assert error.count("\n") == 1


def test_a_file_has_every_line_of_the_arithmetic_unwrapped(capsys: pytest.CaptureFixture[str]) -> None:
    plan = make_plan(RunSettings(), PlanOptions(frames_per_second=250_000.0), package_figures())
    assert main(["plan", "--frames_per_second", "250000"]) == 0
    text = capsys.readouterr().out
    for line in plan.sheet.lines:
        assert any(line.quantity in row and line.formula in row for row in text.splitlines())
    assert "62,500 / 20 (agent steps of an unroll)" in text
    assert "No GPU learner was measured" in text
