"""Runs a command line of herd or of a service in this process, up to the point where a run would start."""

from __future__ import annotations

import io
import json
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from pkgutil import resolve_name
from typing import Any
from unittest import mock

from herd.cli.main import main
from herd.components.suites import environment_spec
from herd.components.user_code import Answer
from herd.config.loading import dump_settings
from herd.config.run import RunSettings
from herd.config.run_contract import Origin
from herd.run.checkpoints import write_checkpoint
from herd.service.startup import parse_command_line

FILES = {
    # A separate copy, so that a recipe may change without the list.
    "game.yaml": "learner: {batch_size: 16, queue_batches: 4}\n",
    "empty.yaml": "",
    "list.yaml": "- breakout\n",
    "twice.yaml": "seed: 1\nseed: 2\n",
    "broken.yaml": "learner: {batch_size: [\n",
    "unknown.yaml": "lerner: {batch_size: 64}\n",
    "batch.yaml": "learner: {batch_size: 64}\n",
    "wrong_type.yaml": "learner: {batch_size: many}\n",
    "section.yaml": "learner: 3\n",
    "recursive.yaml": "env: &env\n  kwargs: *env\n",
    "hexadecimal.yaml": f"seed: 0x{'f' * 5000}\n",
    "own_code.py": "def Broken(spec):\n    raise RuntimeError('not done yet')\n",
}


class StartedError(AssertionError):
    """The command was accepted and would have started its work."""


def furnish(folder: Path) -> None:
    """Write the files and runs that the command lines name."""
    for name, text in FILES.items():
        (folder / name).write_text(text)
    (folder / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    (folder / "latin").mkdir()
    (folder / "latin" / "config.yaml").write_bytes("name: Zoë".encode("latin-1"))
    (folder / "pipe").mkdir()
    os.mkfifo(folder / "pipe" / "server.secret")
    (folder / "folder.yaml").mkdir()
    (folder / "empty").mkdir()
    for name in ("run", "finished", "population"):
        settings = RunSettings(run_dir=folder / name)
        (folder / name).mkdir()
        (folder / name / "config.yaml").write_text(dump_settings(settings))
    other = RunSettings(name="other")
    state = Origin.of(other, environment_spec(other.env)).as_json()
    write_checkpoint(folder / "finished" / "checkpoints", 42, {"state.json": json.dumps(state).encode()}, keep=1)
    for agent in range(2):
        (folder / "population" / "agents" / str(agent)).mkdir(parents=True)


def answer(command: str, environment: Mapping[str, str]) -> tuple[int, str, str]:
    """Run a command line in the working directory; returns exit code, stdout and stderr. Raises StartedError if it is accepted."""

    def started(*_: Any, **__: Any) -> None:
        raise StartedError(command)

    words = shlex.split(command)
    output, errors = io.StringIO(), io.StringIO()
    environ = {name: value for name, value in os.environ.items() if not name.startswith("HERD_")} | dict(environment)
    with (
        mock.patch.dict(os.environ, environ, clear=True),
        mock.patch("herd.launch.supervisor.Supervisor.run", started),
        mock.patch("herd.cli.sweep.train_all", started),
        mock.patch("herd.components.suites.checking.call_apart", called_here),
        mock.patch("herd.components.user_code.call_apart", called_here),
        mock.patch.object(sys, "path", list(sys.path)),  # makes the user's own code importable
        redirect_stdout(output),
        redirect_stderr(errors),
    ):
        try:
            code = main(words[1:]) if words[0] == "herd" else run_service(*words)
        except SystemExit as end:
            code = int(end.code or 0)
        finally:
            sys.modules.pop("own_code", None)
    return code, output.getvalue(), errors.getvalue()


def called_here(function: str, arguments: Sequence[Any], *_: Any) -> Answer:
    """Do what `herd.components.user_code.call_apart` does, but in this process."""
    return Answer(json.loads(json.dumps(list(resolve_name(function)(*json.loads(json.dumps(arguments)))))), None, "")


def run_service(_python: str, _m: str, module: str, *words: str) -> int:
    """Read a service's settings as ``python -m herd_actor`` does."""
    parse_command_line(module.removeprefix("herd_"), words)
    raise StartedError(module)
