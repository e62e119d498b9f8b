"""``python -m tests.gpu.nccl_of_one PORT``: an update through DistributedDataParallel and NCCL, in a group of one process on one GPU."""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist
from torch import Tensor

from herd.components.suites import environment_spec
from herd.training.trainer import Trainer
from tests.gpu.agreement import buffer_of, distance, on_cpu, settings_of
from tests.training.small_runs import STEP


class FirstOfTwo:
    """The other process has nothing: every sum is this one's."""

    size = 2

    def all_reduce_sum(self, tensor: Tensor) -> Tensor:
        dist.all_reduce(tensor)
        return tensor

    def all_gather(self, mine: Tensor) -> Tensor:
        rows = torch.zeros(self.size, len(mine), dtype=mine.dtype, device=mine.device)
        dist.all_gather([rows[0]], mine)
        return rows


def gradients(run: str, shards: FirstOfTwo | None) -> dict[str, Tensor]:
    settings = settings_of(run)
    trainer = Trainer(settings, environment_spec(settings.env), torch.device("cuda"), torch.float32, shards)
    buffer = buffer_of(settings, 0, pinned=True)
    batch = trainer.to_device(buffer)
    trainer.begin(batch, buffer.num_replayed)
    launched = trainer.launch(batch)
    found = on_cpu({name: own.grad for name, own in trainer.agent.named_parameters() if own.grad is not None})
    trainer.finish(launched, STEP)
    assert trainer.arrived(wait=True)[0].is_finite
    return found


def main() -> None:
    torch.backends.cudnn.allow_tf32 = False
    dist.init_process_group(
        "cpu:gloo,cuda:nccl", init_method=f"tcp://127.0.0.1:{sys.argv[1]}", rank=0, world_size=1, device_id=torch.device("cuda", 0)
    )
    for run in ("deep", "popart, pixel control, replay"):
        alone, summed = gradients(run, None), gradients(run, FirstOfTwo())
        # DistributedDataParallel divides by the size of the group, which is 1, after each loss was multiplied by the number of shards.
        halved = {name: tensor / 2 for name, tensor in summed.items()}
        found = distance(halved, alone)
        assert found < 1e-4, f"{run}: {found}"
        print(run, "agrees", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
