"""``helm test`` runs our own image and program, and checks every service of the release."""

from __future__ import annotations

import pytest

from herd.telemetry import self_test
from tests.helm.rendering import container_of, find, names, render, render_ci, with_values

pytestmark = pytest.mark.processes


def test_the_self_test_checks_every_service(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def watch(*arguments: object) -> bool:
        asked.extend(arguments)
        return True

    monkeypatch.setattr(self_test, "watch", watch)
    container = container_of(find(render_ci("multi-learner-values.yaml"), "Pod", "herd-test"))
    assert container["command"] == ["python", "-m", self_test.__name__]
    assert container["image"] == "registry.example.org/rl/herd-paramserver:0.1.0"  # this image is part of every release and has no torch
    assert self_test.main(container["args"]) == 0
    assert asked == [
        [f"http://herd-learner-{rank}.herd-learner:9400" for rank in range(8)],
        [
            *(f"http://herd-{service}:9400" for service in ("paramserver", "paramserver-replica", "bandit", "inference")),
            *(f"http://herd-replay-{index}.herd-replay:9400" for index in range(2)),
        ],
        240.0,
    ]


def test_the_self_test_is_a_hook_that_is_cleaned_up() -> None:
    annotations = find(render(), "Pod", "herd-test")["metadata"]["annotations"]
    assert annotations["helm.sh/hook"] == "test"
    assert "before-hook-creation" in annotations["helm.sh/hook-delete-policy"]


def test_the_self_test_can_be_disabled() -> None:
    off = names(render(*with_values("selfTest.enabled=false")))
    assert not {each for each in off if each[1] == "herd-test"}
    assert {each for each in names(render()) if each[1] == "herd-test"} == {("Pod", "herd-test"), ("NetworkPolicy", "herd-test")}
