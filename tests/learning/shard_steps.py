"""One shard of several in a process of its own: a few updates on its part of given batches. ``python -m tests.learning.shard_steps
FOLDER ddp|fully_shard``.

Reads FOLDER/settings.json and FOLDER/batch-<n>.safetensors; shard 0 leaves FOLDER/after-<size>.safetensors with parameters and the
optimizer's state, and FOLDER/statistics-<size>.json.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import torch
from herd_learner.shards.group import join_group
from safetensors.torch import load_file, save_file

from herd.config.settings import RunSettings
from herd.envs.make import environment_spec
from herd.learning.trainer import Trainer
from tests.learning.small_runs import STEP, slab_of, values_of
from tests.patience import patient

JOIN_SECONDS = patient(90.0)


def main(folder: Path, sharding: str) -> None:
    torch.set_num_threads(1)
    size = int(os.environ.get("WORLD_SIZE", "1"))
    settings = RunSettings.model_validate_json((folder / "settings.json").read_text())
    settings = settings.model_copy(update={"learner": settings.learner.model_copy(update={"shards": size, "sharding": sharding})})
    deadline = time.monotonic() + JOIN_SECONDS
    group = join_group(size, device=torch.device("cpu"), timeout_seconds=30.0, go_on=lambda: time.monotonic() < deadline)
    trainer = Trainer(settings, environment_spec(settings.env), torch.device("cpu"), torch.float32, group)
    told = []
    for file in sorted(folder.glob("batch-*.safetensors")):
        batch = load_file(file)
        count = len(batch["actions"])
        start = sum(count // size + (rank < count % size) for rank in range(group.rank))
        mine = {name: tensor[start : start + group.share(count)].numpy() for name, tensor in batch.items()}
        statistics = trainer(slab_of(settings, mine), STEP)
        told.append({**values_of(statistics.losses), "gradient_norm": statistics.gradient_norm})
    whole = trainer.weights() | {f"optimizer/{name}": tensor for name, tensor in trainer.optimizer_tensors().items()}
    whole |= {f"value_statistics/{name}": tensor for name, tensor in trainer.value_statistics().items()}
    if group.is_first:
        tensors = {name: tensor.contiguous() for name, tensor in whole.items()}
        save_file(tensors, folder / f"after-{size}.safetensors")
        (folder / f"statistics-{size}.json").write_text(json.dumps(told))
    group.leave()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
