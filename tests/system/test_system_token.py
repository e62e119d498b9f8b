"""A run without keys on a shared machine: other users know its settings and ports, but not its token."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from pathlib import Path

from herd.config.curve_keys import RUN_TOKEN_VARIABLE
from herd.telemetry.scrape import total
from tests.system.whole_runs import Process, Run, free_ports, metrics

REFUSED = "herd_wire_authentication_failures_total"


def has_refused(run_dir: Path, process: str, reason: str, least: int) -> bool:
    return total(metrics(run_dir, process), REFUSED, reason=reason) >= least


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
