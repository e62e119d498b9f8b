"""One of several shards in its own process: a few updates on its part of given batches.

``python -m tests.training.shard_steps FOLDER ...`` reads settings.json and batch-<n>.safetensors in each FOLDER. Shard 0 writes
after-<size>.safetensors (parameters and optimizer state) and statistics-<size>.json there. The environment
variable DEVICE is cpu or cuda.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import torch
from herd_learner.group.collectives import ShardGroup, join_group
from safetensors.torch import load_file, save_file

from herd.components.suites import environment_spec
from herd.config.run import RunSettings
from herd.training.trainer import Trainer
from tests.patience import patient
from tests.training.small_runs import STEP, buffer_of, values_of

JOIN_SECONDS = patient(90.0)
DEVICE = torch.device(os.environ.get("DEVICE", "cpu"))


def main(folders: list[Path]) -> None:
    torch.set_num_threads(1)
    torch.backends.cudnn.allow_tf32 = False
    size = int(os.environ.get("WORLD_SIZE", "1"))
    deadline = time.monotonic() + JOIN_SECONDS
    group = join_group(size, device=DEVICE, settings={}, timeout_seconds=JOIN_SECONDS, go_on=lambda: time.monotonic() < deadline)
    for folder in folders:
        train(folder, group, size)
    group.leave()


def train(folder: Path, group: ShardGroup, size: int) -> None:
    settings = RunSettings.model_validate_json((folder / "settings.json").read_text())
    settings = settings.model_copy(update={"learner": settings.learner.model_copy(update={"shards": size})})
    trainer = Trainer(settings, environment_spec(settings.env), DEVICE, torch.float32, group)
    told = []
    for file in sorted(folder.glob("batch-*.safetensors")):
        batch = load_file(file)
        count = len(batch["actions"])
        start = sum(count // size + (rank < count % size) for rank in range(group.rank))
        mine = {name: tensor[start : start + group.share(count)].numpy() for name, tensor in batch.items()}
        statistics = trainer(buffer_of(settings, mine), STEP)
        numbers = {**values_of(statistics.losses), "gradient_norm": statistics.gradient_norm}
        if (health := statistics.health) is not None:
            assert health.explained_variance is not None
            numbers |= {"kl": health.update_kl, "effective": health.effective_sample_size, "explained": health.explained_variance}
        told.append(numbers)
    whole = trainer.weights() | {f"optimizer/{name}": tensor for name, tensor in trainer.parts["optimizer"].tensors().items()}
    whole |= {f"auxiliary/{name}": tensor for name, tensor in trainer.parts["auxiliary"].tensors().items()}
    whole |= {f"value_statistics/{name}": tensor for name, tensor in trainer.parts["value_statistics"].tensors().items()}
    # The statistics must be equal on all ranks; otherwise the values of a task mean something else on each.
    own = {name: tensor.tolist() for name, tensor in trainer.parts["value_statistics"].tensors().items()}
    assert group.gather(own) == [own] * size
    if group.is_first:
        tensors = {name: tensor.contiguous().cpu() for name, tensor in whole.items()}
        save_file(tensors, folder / f"after-{size}.safetensors")
        (folder / f"statistics-{size}.json").write_text(json.dumps(told))


if __name__ == "__main__":
    main([Path(word) for word in sys.argv[1:]])
    os._exit(0)  # ends as the learner does, for the same reason
