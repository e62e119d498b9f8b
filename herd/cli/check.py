"""``herd check``: tries out environments, and says what to do about what it finds."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from herd.cli.options import CommandError
from herd.config.experiments import shipped_experiments
from herd.config.loading import load_settings
from herd.config.loading.sources import split_arguments

if TYPE_CHECKING:
    from collections.abc import Sequence

_HEAD = """usage: herd check ENVIRONMENT | FILE ... [--section.key value ...]

Plays random actions in each environment of a run, in a process of its own, and lists what it finds: whether resets and steps
return what the spaces declare, whether seeds repeat games, rewards, ends, speed, pictures, and changes to the process.

  herd check mine:make
  herd check mine:make --env.kwargs '{"size": 5}'
  herd check mine.yaml

ENVIRONMENT is a registered id, or module:callable of your own. FILE is a run file or the name of an experiment.
The exit code is 1 if an environment has a problem that prevents learning."""
_SIGNS = {"fine": "  ok      ", "note": "  note    ", "problem": "  PROBLEM ", "summary": "  "}


def run(argv: Sequence[str]) -> int:
    """Check; the exit code is 1 if there is a problem."""
    if {"-h", "--help"} & set(argv):
        print(_HEAD)
        return 0
    if not argv or argv[0].startswith("-"):
        raise CommandError("check needs an environment, such as mine:make or CartPole-v1, or a run file (see herd check --help)")
    task, *others = argv
    if Path(task).exists() or task in shipped_experiments():
        settings = load_settings(*split_arguments(argv), os.environ)
    else:
        settings = load_settings([], ["--env.suite", "gymnasium", "--env.tasks", task, *others], os.environ)
    from herd.components.suites import missing_packages, suite_of  # noqa: PLC0415  loads numpy; not needed for --help
    from herd.components.suites.checking import NOTE, PROBLEM, THOROUGH, check_task  # noqa: PLC0415

    suite = suite_of(settings.env)
    if not suite.check:
        raise CommandError(f"env.suite {settings.env.suite} plays no environments of yours: there is nothing to check")
    if (missing := missing_packages(suite)) is not None:
        raise CommandError(missing)
    has_problems = False
    for task in settings.env.tasks:
        print(task)
        for finding in check_task(settings.env, task, THOROUGH):
            has_problems |= finding.level == PROBLEM
            print(_SIGNS[finding.level] + finding.what.removeprefix(f"{task}: "))
            if finding.advice and finding.level in {NOTE, PROBLEM}:
                print(f"          -> {finding.advice}")
    return int(has_problems)
