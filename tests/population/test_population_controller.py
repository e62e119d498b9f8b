"""Reports go in, events and orders come out: who is copied, what is repeated, and what a restarted controller still knows."""

from __future__ import annotations

import math
from random import Random
from typing import Any

import msgpack
import pytest

from herd.protocols.population.journal import Decided, Done, Failed, Lineages, Returned
from herd.protocols.population.messages import POPULATION, Applied, OwnSetting
from herd.rpc.codec import MalformedMessage, encode
from tests.population.reports import SETTINGS, controller_of, play, report_of


def test_a_better_member_is_copied_from_its_named_checkpoint() -> None:
    controller = controller_of()
    theirs = {key: value / 10 for key, value in SETTINGS.items()}
    assert play(controller, report_of(1, num_episodes=50, fitness=0.9, settings=theirs)) == []
    (decided,) = play(controller, report_of(0))
    assert (decided.donor, decided.donor_updates, decided.donor_env_frames) == (1, 40, 4000)
    assert decided.before == SETTINGS
    assert all(round(decided.settings[key] / value, 3) in {1.0, 1.2, 0.833} for key, value in theirs.items())
    order = controller.order_of(0)
    assert order is not None
    assert order.copied is not None
    assert (order.copied.donor, order.copied.learner_updates) == (1, 40)
    assert {setting.key: setting.value for setting in order.settings} == decided.settings
    assert controller.order_of(1) is None


@pytest.mark.parametrize(
    "partner",
    [
        {"fitness": 0.54},
        {"fitness": None},
        {"fitness": 0.9, "checkpoint": None},
    ],
)
def test_a_member_without_better_fitness_or_checkpoint_is_not_copied(partner: dict[str, Any]) -> None:
    controller = controller_of()
    play(controller, report_of(1, num_episodes=50, **partner))
    (decided,) = play(controller, report_of(0))
    assert decided.donor is decided.donor_updates is None


def test_only_members_that_reported_are_copied_even_if_silent_now() -> None:
    controller = controller_of()
    assert play(controller, report_of(0))[0].donor is None
    controller = controller_of()
    play(controller, report_of(1, num_episodes=50, fitness=0.9))
    applied = None
    for number in range(1, 6):  # member 1 sends no more reports
        (decided,) = play(controller, report_of(0, num_episodes=100 * number, applied=applied))
        assert decided.donor == 1
        applied = decided.number
        play(controller, report_of(0, num_episodes=100 * number, applied=applied))


def test_without_a_copy_settings_change_or_no_order_is_given() -> None:
    outcomes = set()
    for seed in range(40):
        controller = controller_of(seed=seed)
        (decided,) = play(controller, report_of(0))
        assert decided.donor is None
        changed = decided.settings != SETTINGS
        assert (controller.order_of(0) is not None) is changed is decided.is_order
        outcomes.add(changed)
    assert outcomes == {True, False}


def test_an_order_is_repeated_until_done_and_counted_once() -> None:
    controller = controller_of()
    play(controller, report_of(1, num_episodes=50, fitness=0.9))
    (decided,) = play(controller, report_of(0))
    order = controller.order_of(0)
    for _ in range(3):
        assert play(controller, report_of(0, num_episodes=900)) == []  # not carried out yet: nothing new is decided
        assert controller.order_of(0) == order
    assert play(controller, report_of(0, applied=decided.number)) == [
        Done(number=decided.number, member=0, env_frames=5000, learner_updates=50)
    ]
    assert play(controller, report_of(0, num_episodes=199, applied=decided.number)) == []
    assert controller.order_of(0) is None
    (again,) = play(controller, report_of(0, num_episodes=200, applied=decided.number))
    assert again.number > decided.number


def test_a_failed_order_is_dropped_and_the_next_needs_new_games() -> None:
    controller = controller_of()
    play(controller, report_of(1, num_episodes=50, fitness=0.9))
    (decided,) = play(controller, report_of(0))
    assert play(controller, report_of(0, declined=decided.number)) == [Failed(number=decided.number, member=0, reason="no disk")]
    assert controller.order_of(0) is None
    assert play(controller, report_of(0, num_episodes=199, declined=decided.number)) == []
    (again,) = play(controller, report_of(0, num_episodes=200, declined=decided.number))
    assert again.number == decided.number + 1


def test_events_missing_from_the_journal_are_not_applied() -> None:
    controller = controller_of()
    play(controller, report_of(1, num_episodes=50, fitness=0.9))
    first = controller.heard(report_of(0))
    assert controller.order_of(0) is None
    assert controller.heard(report_of(0)) == first  # the same number, partner and settings
    (decided,) = play(controller, report_of(0))
    (done,) = controller.heard(report_of(0, applied=decided.number, fitness=0.99, checkpoint=(60, 6000)))
    # Until it is in the journal, its result is not copied: its lineage could not be traced.
    (other,) = play(controller, report_of(1, num_episodes=200, fitness=0.2))
    assert (other.donor, other.donor_updates, other.donor_applied) == (0, 40, 0)
    controller.note(done)


def test_a_member_is_copied_from_its_newest_reported_checkpoint() -> None:
    controller = controller_of()
    for games in (100, 200, 300):
        assert play(controller, report_of(1, num_episodes=games, fitness=0.9, checkpoint=(games, 10 * games)))
        controller.members[1].pending = None  # the order is carried out before the next report
    (decided,) = play(controller, report_of(0))
    assert decided.donor_updates == 300


def test_a_restored_member_is_recorded_and_gets_new_order_numbers() -> None:
    controller = controller_of()
    play(controller, report_of(1, num_episodes=50, fitness=0.9))
    (decided,) = play(controller, report_of(0))
    play(controller, report_of(0, applied=decided.number))
    assert play(controller, report_of(0)) == [Returned(member=0, number=0)]
    assert play(controller, report_of(0)) == []
    (again,) = play(controller, report_of(0, num_episodes=300))
    assert again.number > decided.number


def test_order_numbers_are_not_reused_after_the_journal_is_lost() -> None:
    controller = controller_of()
    play(controller, report_of(1, applied=41, num_episodes=50))
    (decided,) = play(controller, report_of(0))
    assert decided.number == 42


def test_reports_of_order_numbers_too_far_ahead_are_refused() -> None:
    controller = controller_of()
    play(controller, report_of(1, applied=5, num_episodes=50))
    assert controller.objection(report_of(1, applied=5 + (1 << 32))) is None
    said = controller.objection(report_of(1, applied=6 + (1 << 32)))
    assert said == f"member 1 says that it carried out order {6 + (1 << 32)}, and the newest one is 5"


@pytest.mark.parametrize("settings", [{}, {**SETTINGS, "loss.kind": "dice"}, {"loss.entropy_cost": 1e-2}])
def test_reports_with_settings_outside_the_sweep_are_refused(settings: dict[str, Any]) -> None:
    """Settings become labels of metrics, and another member would copy them."""
    controller = controller_of()
    assert controller.objection(report_of(0)) is None
    said = controller.objection(report_of(0, settings=settings))
    assert said is not None
    assert said.startswith("member 0 reports settings that are not of this run's sweep")


class _Members:
    """Members that obey, fail, die and come back at random, possibly from older checkpoints, with the contents of those checkpoints."""

    def __init__(self, num_members: int, random: Random) -> None:
        self.random = random
        self.ancestry: list[tuple[Any, ...]] = [() for _ in range(num_members)]
        self.settings = [dict(SETTINGS) for _ in range(num_members)]
        self.applied: list[Applied | None] = [None] * num_members
        self.declined = [0] * num_members
        self.frames = [5000] * num_members
        self.checkpoints: dict[tuple[int, int, int], tuple[Any, ...]] = {}
        self.older: list[list[tuple[Any, ...]]] = [[] for _ in range(num_members)]
        for agent in range(num_members):
            self.save(agent)

    def report(self, agent: int) -> Any:
        frames = self.frames[agent]
        return report_of(
            agent,
            env_frames=frames,
            learner_updates=frames // 10,
            num_episodes=frames // 50,
            fitness=self.random.random(),
            checkpoint=(frames // 10, frames),
            settings=self.settings[agent],
            declined=self.declined[agent] or None,
        ).model_copy(update={"applied": self.applied[agent]})

    def obey(self, agent: int, order: Any) -> None:
        applied = self.applied[agent]
        if order is None or order.number in {0 if applied is None else applied.number, self.declined[agent]}:
            return
        if self.random.random() < 0.2:
            self.declined[agent] = order.number
            return
        if order.copied is not None:
            copied = order.copied
            link = (order.number, agent, copied.donor, copied.learner_updates)
            self.ancestry[agent] = (*self.checkpoints[copied.donor, copied.learner_updates, copied.applied], link)
        self.settings[agent] = {setting.key: setting.value for setting in order.settings}
        frames = self.frames[agent]
        self.applied[agent] = Applied(number=order.number, env_frames=frames, learner_updates=frames // 10)
        self.save(agent)

    def save(self, agent: int) -> None:
        """A checkpoint with the same number of updates replaces the previous one."""
        applied = self.applied[agent]
        number = 0 if applied is None else applied.number
        self.checkpoints[agent, self.frames[agent] // 10, number] = self.ancestry[agent]
        self.older[agent].append((self.ancestry[agent], self.settings[agent], applied, self.frames[agent]))

    def go_back(self, agent: int) -> None:
        """The newest checkpoints of a member are damaged."""
        older = self.older[agent]
        del older[max(1, len(older) - self.random.randrange(1, 30)) :]
        self.ancestry[agent], self.settings[agent], self.applied[agent], self.frames[agent] = older[-1]


@pytest.mark.parametrize("seed", range(5))
def test_the_journal_gives_the_lineage_of_members_despite_any_kills(seed: int) -> None:
    random = Random(seed)
    members = _Members(4, random)
    journal: list[Any] = []
    controller = controller_of(4, seed=seed)
    for turn in range(3004):
        if random.random() < 0.05:  # the controller is killed
            controller = controller_of(4, seed=seed, events=journal)
        agent = random.randrange(4) if turn < 3000 else turn - 3000  # at the end, each member reports once more
        if random.random() < 0.01:
            members.go_back(agent)
        else:
            members.frames[agent] += 10 * random.randrange(1, 200)
            members.save(agent)
        report = members.report(agent)
        for event in controller.heard(report):
            journal.append(event)
            if random.random() < 0.05:  # killed after writing to disk, but before updating its own state
                controller = controller_of(4, seed=seed, events=journal)
                break
            controller.note(event)
        else:
            controller.keep(report)
        if turn < 3000 and random.random() < 0.8:  # otherwise the answer is lost
            members.obey(agent, controller.order_of(agent))
    decided = [event.number for event in journal if isinstance(event, Decided)]
    ended = [event.number for event in journal if isinstance(event, Done | Failed)]
    assert len(set(decided)) == len(decided) > 50
    assert len(set(ended)) == len(ended)
    assert any(isinstance(event, Returned) for event in journal)
    lineages = Lineages(journal)
    assert len(lineages.copies) > 20
    for agent in range(4):
        found = [(copy.number, copy.receiver, copy.donor, copy.donor_updates) for copy in lineages.ancestry(agent)]
        assert found == list(members.ancestry[agent])
        assert found


@pytest.mark.parametrize("value", [1e308, -3.5e38, math.inf])
def test_a_report_of_numbers_that_no_learner_can_have_cannot_be_read(value: float) -> None:
    """A forged one would be copied into the order of another member, whose device computes in single precision."""
    report = report_of(0, settings={"optimizer.learning_rate": 1e-3})
    forged = report.model_copy(update={"settings": (OwnSetting.model_construct(key="optimizer.learning_rate", value=value),)})
    assert POPULATION.decode(encode(report)[0]) == report
    with pytest.raises(MalformedMessage, match="settings"):
        POPULATION.decode(msgpack.packb(forged.header()))
