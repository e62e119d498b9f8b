"""Whole runs on a shared machine, with CURVE keys or with a token: strangers contribute nothing, and no secret is written anywhere."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import psutil
import pytest

from herd.cli.keys import make_keys
from herd.config.encryption_keys import (
    CLIENT_PUBLIC_VARIABLE,
    CLIENT_SECRET_VARIABLE,
    RUN_TOKEN_VARIABLE,
    SERVER_PUBLIC_VARIABLE,
    SERVER_SECRET_VARIABLE,
)
from herd.telemetry.scrape import total
from tests.patience import patient
from tests.system.whole_runs import CATCH, ROOT, Process, Run, environment, free_ports, metrics, pid_of, read_report, until

REFUSED = "herd_wire_authentication_failures_total"


def has_refused(run_dir: Path, process: str, reason: str, least: int) -> bool:
    return total(metrics(run_dir, process), REFUSED, reason=reason) >= least


def secrets_of(folder: Path) -> dict[str, str]:
    return {file.name: file.read_text().strip() for file in folder.glob("*.secret")}


def process_of(run_dir: Path, name: str) -> psutil.Process:
    pid = pid_of(run_dir, name)
    assert pid is not None
    return psutil.Process(pid)


def assert_absent(secrets: dict[str, str], run_dir: Path) -> None:
    """Check that the secrets are in no file of the run."""
    for file in run_dir.rglob("*"):
        if file.is_file():
            text = file.read_bytes()
            assert not [name for name, secret in secrets.items() if secret.encode() in text], file


def test_a_run_with_curve_trains_and_refuses_other_clients(tmp_path: Path) -> None:
    keys, stranger_keys = tmp_path / "keys", tmp_path / "stranger-keys"
    make_keys(keys)
    make_keys(stranger_keys, client="stranger")
    (stranger_keys / "server.public").write_text((keys / "server.public").read_text())
    learner_port, paramserver_port = free_ports(2)
    words = ["--security.curve_keys", str(keys), "--paramserver.replicas", "1", "--optimizer.schedule", "constant"]
    ports = f'{{"learner": {learner_port}, "paramserver": {paramserver_port}}}'
    words += ["--placement.ports", ports, "--learner.log_interval_seconds", "0.5"]
    run_dir, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    with ExitStack() as stack:
        run = stack.enter_context(Run(run_dir, *words))
        run.until(lambda: run.env_frames() > 0, "first frames behind CURVE")
        # These actors use the index of the run's own actor and the next one, and the run's settings; only their keys are different.
        at = ["--learner", f"tcp://127.0.0.1:{learner_port}", "--paramserver", f"tcp://127.0.0.1:{paramserver_port}"]
        base = ["--config", str(run_dir / "config.yaml"), *at]
        unknown = ["--security.curve_keys", str(stranger_keys), "--security.curve_client", "stranger", "--index", "0"]
        clear = ["--security.curve_keys", "null", "--index", "1"]
        strangers = [
            stack.enter_context(Process(tmp_path / f"{name}.out", "herd_actor", *base, "--run_dir", str(elsewhere / name), *more))
            for name, more in (("unknown", unknown), ("clear", clear))
        ]
        for process in ("learner-0", "paramserver-0"):
            for reason in ("unknown_key", "mechanism"):
                run.until(partial(has_refused, run_dir, process, reason, 2), f"the {process} refuses by {reason}")
        run.until_more_frames(20_000)
        assert total(metrics(run_dir, "learner-0"), "herd_learner_connected_actors") == 1
        for name, index in (("unknown", 0), ("clear", 1)):
            seen = metrics(elsewhere / name, f"actor-{index}")
            assert seen
            assert total(seen, "herd_actor_env_frames_total") == 0  # it never got weights to act on
            assert total(seen, "herd_wire_received_bytes_total") == 0
        said_unknown, said_clear = (stranger.output for stranger in strangers)
        assert "does not know this client's key (client-stranger)" in said_unknown
        assert "security.curve_keys" in said_clear
        played = total(metrics(run_dir, "actor-0"), "herd_actor_env_frames_total")
        family = [process_of(run_dir, name) for name in ("learner-0", "actor-0", "paramserver-0", "paramserver-1")]
        command_lines = [" ".join(process.cmdline()) for process in (*family, *family[0].parents()[:1])]
        assert [stranger.stop() for stranger in strangers] == [0, 0]
        assert run.stop() == 0
        assert run.output.count("Traceback") == 0
    report = read_report(run_dir)
    assert played > 0
    assert report["learner_updates"] > 20
    log = (run_dir / "logs" / "learner-0.log").read_text()
    assert log.count("refused a client with an unknown key") <= 2  # at most one line a minute
    secrets = secrets_of(keys) | secrets_of(stranger_keys)
    assert len(secrets) == 3
    assert_absent(secrets, run_dir)
    assert not [secret for secret in secrets.values() if secret in "".join([*command_lines, said_unknown, said_clear, run.output])]


def test_keys_in_the_environment_reach_only_the_processes(tmp_path: Path) -> None:
    make_keys(tmp_path)
    text = {file.name: file.read_text().strip() for file in tmp_path.iterdir()}
    keys = {
        SERVER_PUBLIC_VARIABLE: text["server.public"],
        SERVER_SECRET_VARIABLE: text["server.secret"],
        CLIENT_PUBLIC_VARIABLE: text["client-default.public"],
        CLIENT_SECRET_VARIABLE: text["client-default.secret"],
    }
    run_dir = tmp_path / "run"
    command = [sys.executable, "-m", "herd.cli.main", "train", CATCH, "--run_dir", str(run_dir), "--learner.threads", "1"]
    command += ["--security.curve_keys_from_environment", "--stop.env_frames", "null"]
    with (tmp_path / "out").open("w") as output:
        process = subprocess.Popen(command, cwd=ROOT, env=environment() | keys, stdout=output, stderr=subprocess.STDOUT)
    try:
        until(lambda: total(metrics(run_dir, "learner-0"), "herd_learner_updates_total") > 0 or process.poll() is not None, "updates")
        assert process.poll() is None, (tmp_path / "out").read_text()
        held = {name: process_of(run_dir, name).environ() for name in ("actor-0", "learner-0", "paramserver-0")}
    finally:
        process.terminate()
        code = process.wait(120)
    assert code == 0, (tmp_path / "out").read_text()
    assert {name: sorted(set(keys) & set(variables)) for name, variables in held.items()} == {
        "actor-0": sorted([SERVER_PUBLIC_VARIABLE, CLIENT_SECRET_VARIABLE]),
        "learner-0": sorted(keys),
        "paramserver-0": sorted([SERVER_SECRET_VARIABLE, CLIENT_PUBLIC_VARIABLE]),
    }
    assert read_report(run_dir)["learner_updates"] > 0
    assert_absent({name: value for name, value in text.items() if name.endswith(".secret")}, run_dir)


@pytest.mark.parametrize("command", ["train", "actor"])
def test_a_missing_key_is_reported_before_anything_starts(tmp_path: Path, command: str) -> None:
    keys, run_dir = tmp_path / "keys", tmp_path / "run"
    make_keys(keys)
    missing = "client-default.secret" if command == "actor" else "server.secret"
    (keys / missing).unlink()
    words = ["--run_dir", str(run_dir), "--security.curve_keys", str(keys)]
    words += ["--learner", "tcp://127.0.0.1:1", "--paramserver", "tcp://127.0.0.1:1"] if command == "actor" else []
    start = ["herd.cli.main", "train", CATCH] if command == "train" else [f"herd_{command}", "--config", CATCH]
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", *start, *words],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=patient(120),
        check=False,
    )
    lines = [line for line in done.stderr.splitlines() if not line.startswith("import time:")]
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert done.returncode == 2
    assert len(lines) == 1, lines
    assert f"{keys / missing}: no such file" in lines[0]
    assert "herd keys" in lines[0]
    assert "torch" not in imported
    assert not os.path.lexists(run_dir)


def test_only_processes_with_the_token_contribute(tmp_path: Path) -> None:
    learner_port, paramserver_port = free_ports(2)
    run_dir, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    ports = f'{{"learner": {learner_port}, "paramserver": {paramserver_port}}}'
    words = ["--placement.ports", ports, "--learner.log_interval_seconds", "0.5"]
    with ExitStack() as stack:
        run = stack.enter_context(Run(run_dir, *words))
        run.until(lambda: run.env_frames() > 0, "first frames")
        token = (run_dir / "token").read_text().strip()
        assert (run_dir / "token").stat().st_mode & 0o777 == 0o600
        at = ["--learner", f"tcp://127.0.0.1:{learner_port}", "--paramserver", f"tcp://127.0.0.1:{paramserver_port}"]
        base = ["--config", str(run_dir / "config.yaml"), *at]
        known = {"none": {}, "a guess": {RUN_TOKEN_VARIABLE: "0" * 64}, "it": {RUN_TOKEN_VARIABLE: token}}
        for index, (name, environ) in enumerate(known.items()):
            place = ["--index", str(7 + index), "--run_dir", str(elsewhere / name)]
            stack.enter_context(Process(tmp_path / f"{name}.out", "herd_actor", *base, *place, environ=environ))
        run.until(lambda: total(metrics(elsewhere / "it", "actor-9"), "herd_actor_env_frames_total") > 0, "the one with the token plays")
        for process in ("learner-0", "paramserver-0"):
            for reason in ("unknown_key", "mechanism"):
                run.until(partial(has_refused, run_dir, process, reason, 1), f"the {process} refuses by {reason}")
        for name, index in (("none", 7), ("a guess", 8)):
            seen = metrics(elsewhere / name, f"actor-{index}")
            assert seen
            assert total(seen, "herd_actor_env_frames_total") == 0  # it never got weights to act on
            assert total(seen, "herd_wire_received_bytes_total") == 0
        assert run.stop() == 0
        assert "Traceback" not in run.output
    for file in run_dir.rglob("*"):
        assert file.name == "token" or not file.is_file() or token.encode() not in file.read_bytes(), file
