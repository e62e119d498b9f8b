"""A finished run of Catch or Atari to evaluate, with settings and a checkpoint as a learner leaves them."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from herd.agent import build_agent
from herd.components.suites import environment_spec
from herd.config.loading import dump_settings
from herd.config.run import RunSettings
from herd.config.run_contract import Origin
from herd.run.tensors import save_checkpoint

RunMaker = Callable[..., Path]
CATCH: dict[str, Any] = {
    "env": {"suite": "catch", "tasks": ["catch"], "frame_height": 6, "frame_width": 5, "frame_stack": 1, "action_repeat": 1},
    "network": {"torso": "mlp"},
}
BREAKOUT: dict[str, Any] = {
    "env": {"tasks": ["breakout"], "frame_height": 42, "frame_width": 42},
    "network": {"core": {"kind": "lstm", "size": 16}, "last_action_and_reward": True},
}


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> Iterator[None]:
    """Small networks are slower on several threads, especially while other tests run at the same time."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def make_run(tmp_path: Path) -> RunMaker:
    def make(sections: Mapping[str, object], *, updates: int = 250, name: str = "run") -> Path:
        torch.manual_seed(5)
        settings = RunSettings.model_validate({"name": name, "actor": {"environments": 4, "inference_precision": "float32"}, **sections})
        agent = build_agent(settings, environment_spec(settings.env))
        with torch.no_grad():  # a fresh policy head is nearly uniform
            head = agent.policy_head or agent.advantage_head
            assert head is not None
            head.weight.mul_(300.0)
        directory = tmp_path / name
        directory.mkdir(exist_ok=True)
        (directory / "config.yaml").write_text(dump_settings(settings))
        origin = Origin.of(settings, environment_spec(settings.env)).as_json()
        state = {**origin, "learner_updates": updates, "statistics": {"env_frames": 160_000}}
        save_checkpoint(directory / "checkpoints", updates, {"model": agent.state_dict()}, state, 3)
        return directory

    return make
