"""One shard of several in a process of its own: a few updates on its part of given batches. ``python -m tests.learner.shard_steps
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
from herd_learner.update import Update
from safetensors.torch import load_file, save_file

from herd.config.settings import RunSettings
from herd.envs.make import environment_spec
from tests.patience import patient

JOIN_SECONDS = patient(90.0)


def main(folder: Path, sharding: str) -> None:
    torch.set_num_threads(1)
    size = int(os.environ.get("WORLD_SIZE", "1"))
    settings = RunSettings.model_validate_json((folder / "settings.json").read_text())
    settings = settings.model_copy(update={"learner": settings.learner.model_copy(update={"shards": size, "sharding": sharding})})
    deadline = time.monotonic() + JOIN_SECONDS
    group = join_group(size, device=torch.device("cpu"), timeout_seconds=30.0, go_on=lambda: time.monotonic() < deadline)
    update = Update(settings, environment_spec(settings.env), torch.device("cpu"), torch.float32, group)
    told = []
    for file in sorted(folder.glob("batch-*.safetensors")):
        batch = load_file(file)
        count = len(batch["actions"])
        start = sum(count // size + (rank < count % size) for rank in range(group.rank))
        mine = {name: tensor[start : start + group.share(count)] for name, tensor in batch.items()}
        statistics = update(mine, 1e-2)
        told.append([*statistics.losses, statistics.gradient_norm])
    whole = update.weights() | {f"optimizer/{name}": tensor for name, tensor in update.optimizer_tensors().items()}
    if group.is_first:
        tensors = {name: tensor.contiguous() for name, tensor in whole.items()}
        save_file(tensors, folder / f"after-{size}.safetensors")
        (folder / f"statistics-{size}.json").write_text(json.dumps(told))
    group.leave()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
