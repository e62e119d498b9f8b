"""Processes of a run are killed, one after the other; the run goes on by itself."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path

from herd.config.contract import contract_digest
from herd.config.curve_keys import RUN_TOKEN_VARIABLE
from herd.config.loading import load_settings
from herd.envs.make import environment_spec
from herd.wire.sockets import new_context
from herd.wire.weights_client import Version, WeightsClient
from tests.system.whole_runs import Run, newest_checkpoint_name, pid_of, read_report


class Onlooker:
    """A client of the parameter server that never says what it has: it sees what an actor that just started would."""

    def __init__(self, run: Run) -> None:
        run_dir = run.run_dir
        log = run_dir / "logs" / "paramserver-0.log"
        run.until(lambda: log.is_file() and "endpoint=" in log.read_text(), "the parameter server's address")
        match = re.search(r"endpoint=(tcp://\S+)", log.read_text())
        assert match is not None
        settings = load_settings([run_dir / "config.yaml"], [], {})
        self._context = new_context(environ={RUN_TOKEN_VARIABLE: (run_dir / "token").read_text().strip()})
        contract = contract_digest(settings, environment_spec(settings.env))
        self._client = WeightsClient(self._context, match.group(1), run_id=settings.name, contract=contract)
        self.seen: list[Version] = []

    def look(self) -> Version:
        """The newest version it has seen, after asking once more."""
        self._client.request(None)
        frame = self._client.poll(0.05)
        assert self._client.refused is None
        if frame is not None:
            assert not self.seen or frame.version >= self.seen[-1], "versions went back"
            self.seen.append(frame.version)
        return self.seen[-1] if self.seen else (0, 0)

    def close(self) -> None:
        self._client.close()
        self._context.term()


def test_the_run_survives_whatever_is_killed(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    with Run(run_dir, "--learner.log_interval_seconds", "0.5", "--learner.checkpoint_interval_seconds", "1") as run:
        onlooker = Onlooker(run)
        try:
            run.until(lambda: onlooker.look()[1] >= 20 and newest_checkpoint_name(run_dir) is not None, "updates and a checkpoint")
            for process in ("actor-0", "learner-0", "paramserver-0"):
                pid, version = pid_of(run_dir, process), onlooker.look()
                assert pid is not None
                os.kill(pid, signal.SIGKILL)
                run.until_replaced(process, pid)
                frames = run.env_frames()

                def goes_on(version: Version = version, frames: int = frames) -> bool:
                    lineage, updates = onlooker.look()
                    return (lineage, updates) > version and run.env_frames() > frames + 20_000

                run.until(goes_on, f"training after {process} was killed")
                assert f"{process} ended (SIGKILL)" in run.output
            # Only the learner's restart opened a lineage, and it was followed.
            assert {lineage for lineage, _ in onlooker.seen} == {1, 2}
            assert run.stop() == 0, run.output
        finally:
            onlooker.close()
    assert run.output.count("ended (") == 3  # nobody else fell over
    report = read_report(run_dir)
    # Learned from after the last checkpoint, or waiting in the dead learner's queue: lost with it, and said so.
    assert set(report["accounting"]["dropped"]) <= {"learner_restart"}
    assert json.loads((run_dir / "lineage.json").read_text()) == {"lineage": 2}
