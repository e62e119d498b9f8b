"""Entry point of ``herd``: imports and runs the chosen command, and turns bad input into one line and exit code 2."""

from __future__ import annotations

import errno
import importlib
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

# Command -> (module with `run(argv) -> exit code`, what it does). Only the chosen module is imported.
COMMANDS = {
    "train": ("herd.cli.train", "train on this machine: start, show and supervise all processes of a run"),
    "place": ("herd.cli.place", "print the processes of a run on several hosts, for a Slurm job"),
    "sweep": ("herd.cli.sweep", "train an experiment over seeds and a grid of settings, or search the best settings"),
    "check": ("herd.cli.check", "try out an environment, and list what it finds"),
    "evaluate": ("herd.cli.evaluate", "score a checkpoint over whole games"),
    "watch": ("herd.cli.watch", "record a game as a video"),
    "pack": ("herd.cli.pack", "write a trained policy as one file, with its settings, scores and a game"),
    "export": ("herd.cli.export", "write the policy of a run for torch or as ONNX"),
    "plot": ("herd.cli.plot", "draw the learning curves of runs"),
    "report": ("herd.cli.report", "write one HTML page about a run"),
    "status": ("herd.cli.status", "show the runs of this machine or of a cluster, and their progress"),
    "experiments": ("herd.cli.experiments", "list the shipped experiments, or print one to edit"),
    "keys": ("herd.cli.keys", "create the keys that encrypt and authenticate a run's connections"),
    "doctor": ("herd.cli.doctor", "check that this machine is ready to train"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``herd``; returns the exit code: 0 done, 2 bad input (one line on stderr), 1 anything else."""
    try:
        if argv is None:
            from herd.service.main import open_streams  # noqa: PLC0415  inside the handler of interruptions, as below

            open_streams()
        code = _main(list(sys.argv[1:] if argv is None else argv))
    except KeyboardInterrupt as end:
        print(": ".join(("herd: interrupted", *map(str, end.args))), file=sys.stderr)
        code = 1
    if argv is None and "herd.components.user_code" in sys.modules:  # this process ends
        sys.modules["herd.components.user_code"].leave(None, code)
    return code


def _main(words: list[str]) -> int:
    # Imported inside the handler of interruptions, because imports take seconds on a busy machine.
    from herd.cli.options import CommandError  # noqa: PLC0415
    from herd.config.errors import SettingsError, printable  # noqa: PLC0415
    from herd.files import FileError  # noqa: PLC0415
    from herd.service import EXIT_BAD_INPUT  # noqa: PLC0415

    try:
        code = _answer(words)
        sys.stdout.flush()  # here, so that a closed pipe is handled below
    except (CommandError, FileError, SettingsError) as error:
        print(printable(f"herd: {error}"), file=sys.stderr)
        return EXIT_BAD_INPUT
    except OSError as error:
        if error.filename is not None:  # such as a name that is too long, or a folder that this user may not look into
            print(printable(f"herd: {error.filename}: {error.strerror}"), file=sys.stderr)
            return EXIT_BAD_INPUT
        if error.errno not in {errno.EPIPE, errno.ENOSPC}:
            raise
        if error.errno != errno.EPIPE:  # otherwise the reader (head, less) has exited
            print(f"herd: cannot write the output: {error.strerror}", file=sys.stderr)
        # Python's own flush at exit must not report it again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return code


def usage() -> str:
    """Text of ``herd --help``."""
    lines = ["usage: herd COMMAND [...]", "", "Distributed reinforcement learning from one machine to a cluster.", "", "commands:"]
    lines += [f"  {name:<13}{text}" for name, (_, text) in COMMANDS.items()]
    return "\n".join([*lines, "", "herd COMMAND --help explains a command.  herd --version prints the version."])


def _answer(words: list[str]) -> int:
    from herd.cli.options import CommandError  # noqa: PLC0415  see _main
    from herd.config.errors import close_match  # noqa: PLC0415
    from herd.service import EXIT_BAD_INPUT  # noqa: PLC0415

    if words[:1] == ["help"] and len(words) > 1:
        words = [words[1], "--help"]
    if not words or words[0] in {"-h", "--help", "help"}:
        print(usage())
        return 0 if words else EXIT_BAD_INPUT
    name, *words = words
    if name == "--version":
        from importlib.metadata import version  # noqa: PLC0415  only where asked for

        print(f"herd {version('herd-rl')}")
        return 0
    if name not in COMMANDS:
        raise CommandError(f"{name}: no such command{close_match(name, list(COMMANDS))} (see herd --help)")
    module_name, _ = COMMANDS[name]
    entry = importlib.import_module(module_name).run
    code: int = entry(words)
    return code


if __name__ == "__main__":
    sys.exit(main())
