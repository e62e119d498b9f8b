"""What `herd train` prints about many tasks before anything starts."""

from __future__ import annotations

import pytest

from herd.cli.options import CommandError
from herd.cli.preflight import check_dealing
from herd.config.loading import load_settings
from herd.config.run import RunSettings


def settings_of(num_tasks: int, *, actors: int, environments: int, agents: int = 1) -> RunSettings:
    scales = ",".join(str(scale) for scale in range(1, num_tasks + 1))
    words = ["--env.suite", "catch", "--network.torso", "mlp", "--env.reward_scales", scales, "--agents", str(agents)]
    words += ["--actor.count", str(actors), "--actor.environments", str(environments), "--learner.queue_batches", "9"]
    return load_settings([], words, {})


@pytest.mark.parametrize(
    ("num_tasks", "actors", "environments", "agents"), [(1, 1, 5, 1), (1, 1, 5, 2), (3, 1, 6, 1), (3, 3, 4, 1), (5, 5, 1, 1), (2, 4, 3, 2)]
)
def test_an_even_distribution_of_tasks_gives_no_message(num_tasks: int, actors: int, environments: int, agents: int) -> None:
    assert check_dealing(settings_of(num_tasks, actors=actors, environments=environments, agents=agents)) is None


def test_an_uneven_distribution_of_tasks_gives_a_hint() -> None:
    assert check_dealing(settings_of(3, actors=2, environments=4)) == (
        "there are 3 tasks for 8 environments (actor.count 2 x actor.environments 4): 2 tasks have 3 environments, the others 2; "
        "with actor.environments a multiple of 3 all tasks have equally many"
    )


@pytest.mark.parametrize(("actors", "agents"), [(2, 1), (4, 2), (5, 2)])
def test_a_task_without_environments_is_refused(actors: int, agents: int) -> None:
    with pytest.raises(CommandError) as raised:
        check_dealing(settings_of(7, actors=actors, environments=3, agents=agents))
    line = str(raised.value)
    assert line.startswith("env.tasks: there are 7 tasks for 6 environments")
    assert line.endswith("1 of the tasks would never be played; set actor.environments to 7 or more")
