"""``herd place``: the command line of every process of a run on several hosts, for a Slurm script or any other launcher."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING

from herd.cli.options import CommandError, OneLineParser
from herd.cli.run_paths import check_resumable
from herd.cli.train import read_settings
from herd.launch.placement import on_hosts, placement
from herd.run.paths import CONFIG

if TYPE_CHECKING:
    from collections.abc import Sequence


def run(argv: Sequence[str]) -> int:
    """Write the run directory, and print one line for each process, in starting order; returns the exit code."""
    parser = OneLineParser(
        prog="herd place",
        usage="herd place --hosts HOST[,HOST ...] FILE [FILE ...] [--section.key value ...]",
        description="Prints the processes of a run on several hosts, in starting order: host, name and command, separated by tabs. The "
        "first host gets the servers, each learner shard the next host, and actors the others, all with fixed ports. Settings are as for "
        "herd train. They are written to the run directory, which all hosts must share (docs/two-machines.md).",
    )
    parser.add_argument("--hosts", required=True, metavar="HOST,HOST", help="hosts by name or address, separated by commas")
    options, words = parser.parse_known_args(argv)
    hosts = options.hosts.split(",")
    if not all(hosts):
        raise CommandError(f"--hosts: should be hosts separated by commas, not {options.hosts!r}")
    settings = read_settings(words, os.environ)
    from herd.launch.run_directory import RunDirectoryError, claim_run_directory, hold_run_directory  # noqa: PLC0415  after errors

    if settings.resume:
        check_resumable(settings)
    try:
        with hold_run_directory(settings := claim_run_directory(settings)) as held:
            for placed in placement(settings, on_hosts(settings, hosts)):
                program = ["python", "-m", placed.place.component.service.module, "--config", str((held.path / CONFIG).absolute())]
                variables = [f"{name}={value}" for name, value in placed.environment.items()]
                command = [*(["env", *variables] if variables else []), *program, "--run_dir", str(held.path.absolute()), *placed.words()]
                print(placed.spot.host, placed.place.name, shlex.join(command), sep="\t")
    except RunDirectoryError as error:
        raise CommandError(str(error)) from error
    return 0
