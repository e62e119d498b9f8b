"""Whole runs on a shared machine, with CURVE keys or with a token: strangers contribute nothing, and no secret is written anywhere."""

from __future__ import annotations

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
from tests.system.whole_runs import Process, Run, free_ports, metrics, pid_of, read_report

REFUSED = "herd_wire_authentication_failures_total"
FROM_ENVIRONMENT = "--security.curve_keys_from_environment"


def has_refused(run_dir: Path, process: str, reason: str) -> bool:
    return total(metrics(run_dir, process), REFUSED, reason=reason) >= 2


def process_of(run_dir: Path, name: str) -> psutil.Process:
    pid = pid_of(run_dir, name)
    assert pid is not None
    return psutil.Process(pid)


def contents(folder: Path) -> dict[str, str]:
    return {file.name: file.read_text().strip() for file in folder.iterdir()}


@pytest.mark.parametrize("protection", ["keys", "token"])
def test_only_processes_with_the_secret_contribute(tmp_path: Path, protection: str) -> None:
    run_dir, elsewhere, keys, stranger_keys = (tmp_path / name for name in ("run", "elsewhere", "keys", "stranger-keys"))
    learner_port, paramserver_port = free_ports(2)
    ports = f'{{"learner": {learner_port}, "paramserver": {paramserver_port}}}'
    words = ["--placement.ports", ports, "--learner.log_interval_seconds", "0.5", "--paramserver.replicas", "1"]
    variables: dict[str, str] = {}
    unknown: tuple[list[str], dict[str, str]] = [], {RUN_TOKEN_VARIABLE: "0" * 64}
    clear: list[str] = []
    if protection == "keys":
        make_keys(keys)
        make_keys(stranger_keys, client="stranger")
        (stranger_keys / "server.public").write_text((keys / "server.public").read_text())
        text = contents(keys)
        variables = {
            SERVER_PUBLIC_VARIABLE: text["server.public"],
            SERVER_SECRET_VARIABLE: text["server.secret"],
            CLIENT_PUBLIC_VARIABLE: text["client-default.public"],
            CLIENT_SECRET_VARIABLE: text["client-default.secret"],
        }
        words += [FROM_ENVIRONMENT]
        clear = [FROM_ENVIRONMENT, "false"]
        unknown = [*clear, "--security.curve_keys", str(stranger_keys), "--security.curve_client", "stranger"], {}
    with ExitStack() as stack:
        run = stack.enter_context(Run(run_dir, *words, environ=variables))
        run.until(lambda: run.env_frames() > 0, "first frames")
        if protection == "keys":
            secret = {name: value for name, value in variables.items() if name in {SERVER_PUBLIC_VARIABLE, CLIENT_SECRET_VARIABLE}}
        else:
            secret = {RUN_TOKEN_VARIABLE: (run_dir / "token").read_text().strip()}
            assert (run_dir / "token").stat().st_mode & 0o777 == 0o600

        # Strangers use the index of the run's own actor and the next one, and the run's settings; only the secret is different.
        at = ["--learner", f"tcp://127.0.0.1:{learner_port}", "--paramserver", f"tcp://127.0.0.1:{paramserver_port}"]

        def start(name: str, index: int, more: list[str], environ: dict[str, str]) -> Process:
            place = ["--config", str(run_dir / "config.yaml"), *at, "--run_dir", str(elsewhere / name), "--index", str(index)]
            return stack.enter_context(Process(tmp_path / f"{name}.out", "herd_actor", *place, *more, environ=environ))

        strangers = [start("unknown", 0, *unknown), start("clear", 1, clear, {})]
        member = start("member", 9, [], secret)
        run.until(lambda: total(metrics(elsewhere / "member", "actor-9"), "herd_actor_env_frames_total") > 0, "the member plays")
        for process in ("learner-0", "paramserver-0"):
            for reason in ("unknown_key", "mechanism"):
                run.until(partial(has_refused, run_dir, process, reason), f"the {process} refuses by {reason}")
        run.until_more_frames(20_000)
        for name, index in (("unknown", 0), ("clear", 1)):
            seen = metrics(elsewhere / name, f"actor-{index}")
            assert seen
            assert total(seen, "herd_actor_env_frames_total") == 0  # it never got weights to act on
            assert total(seen, "herd_wire_received_bytes_total") == 0
        family = {name: process_of(run_dir, name) for name in ("learner-0", "actor-0", "paramserver-0", "paramserver-1")}
        said = [" ".join(process.cmdline()) for process in (*family.values(), *family["learner-0"].parents()[:1])]
        if protection == "keys":
            assert "does not know this client's key (client-stranger)" in strangers[0].output
            assert "security.curve_keys" in strangers[1].output
            assert {name: set(variables) & set(process.environ()) for name, process in family.items()} == {
                "learner-0": set(variables),
                "actor-0": {SERVER_PUBLIC_VARIABLE, CLIENT_SECRET_VARIABLE},
                "paramserver-0": {SERVER_SECRET_VARIABLE, CLIENT_PUBLIC_VARIABLE},
                "paramserver-1": set(variables),
            }
        assert [process.stop() for process in (*strangers, member)] == [0, 0, 0]
        assert run.stop() == 0
        assert "Traceback" not in run.output
        said += [process.output for process in (run, *strangers, member)]
    assert read_report(run_dir)["learner_updates"] > 20
    log = (run_dir / "logs" / "learner-0.log").read_text()
    assert log.count("refused a client with an unknown key") <= 2  # at most one line a minute
    said += [file.read_bytes().decode(errors="replace") for file in run_dir.rglob("*") if file.is_file() and file.name != "token"]
    secrets = [secret[RUN_TOKEN_VARIABLE]] if protection == "token" else [variables[SERVER_SECRET_VARIABLE], secret[CLIENT_SECRET_VARIABLE]]
    assert not [text for text in said if any(each in text for each in secrets)]
