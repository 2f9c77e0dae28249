"""Chains that begin on some processes and resume on others: OUT, or called by a test."""

import json
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, Dataset

from csgmcmc import SGHMC, Chain, Constant, DrawStore, Keep, init_distributed, shutdown_distributed
from csgmcmc.errors import StoreError
from csgmcmc.loop.checkpoint import Checkpoints

STEPS, BATCH = 30, 8


class Numbered(Dataset):
    """Examples that say which they are; batches do not divide them."""

    def __init__(self) -> None:
        self.inputs = torch.randn(45, 6, generator=torch.Generator().manual_seed(0))

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: int):
        return index, self.inputs[index], int(self.inputs[index, 0] > 0)


def run(
    out: Path, sharded: bool, until: int = STEPS, slow: float = 0.0, mesh: Any = None, **options
) -> None:
    """Resume a chain up to a step; each process notes the examples of each step."""
    here = init_distributed(chains=1)
    mesh = here.mesh if mesh is None else mesh
    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(6, 13), nn.BatchNorm1d(13).eval(), nn.Tanh(), nn.Linear(13, 2))
    model[1].requires_grad_(False)
    if sharded and mesh is not None:
        for layer in (model[0], model[3], model):
            fully_shard(layer, mesh=mesh)
    params = [param for param in model.parameters() if param.requires_grad]
    sampler = SGHMC(params, lr=0.05, num_data=45, momentum=0.5, seed=1)
    data = Numbered()
    order = here.data_sampler(data, global_batch_size=BATCH)
    loader = DataLoader(data, batch_size=BATCH // here.replicas, sampler=order)
    taken: list[int] = []

    def loss(network: nn.Module, batch) -> torch.Tensor:
        numbers, inputs, labels = batch
        taken[:] = numbers.tolist()
        return nn.functional.cross_entropy(network(inputs), labels)

    def say(info) -> None:
        name = f"batch-{info.tick.step}-{here.replica_id}-of-{here.replicas}.json"
        (out / name).write_text(json.dumps(taken))
        time.sleep(slow)
        if info.tick.step + 1 == until:
            raise KeyboardInterrupt

    settings = {"layout": here, "progress": False, "checkpoint_every": 4, "watch": False, **options}
    store = DrawStore(out / "store")
    chain = Chain(
        model,
        loss,
        loader,
        sampler,
        Constant(STEPS, keep=Keep(every=5)),
        store,
        callbacks=say,
        **settings,
    )
    with suppress(KeyboardInterrupt):
        chain.run(resume=True)


def two_folders(out: Path) -> None:
    """Processes of one chain that do not see the same folder, as on machines that share none."""
    rank = os.environ["RANK"]
    os.chdir(out)
    try:
        run(Path(f"machine-{rank}"), sharded=False)
    except StoreError as error:
        (out / f"said-{rank}.txt").write_text(str(error))


def fail_alone(out: Path) -> None:
    """One process fails, while the other waits for it in a sum."""
    here = init_distributed(chains=1)
    try:
        if here.replica_id == 1:
            raise ValueError("this process alone")
        dist.all_reduce(torch.zeros(1))
    finally:
        shutdown_distributed()
        (out / f"left-{here.replica_id}").touch()


def killed_in_the_first_step(out: Path) -> None:
    """After the checkpoint of its start."""
    Chain._step = lambda _: os._exit(1)  # pyright: ignore[reportAttributeAccessIssue]
    run(out, sharded=True)


def killed_in_a_checkpoint(out: Path) -> None:
    """After the tensors are written, before the file that commits them is."""
    Checkpoints.save = lambda *_: os._exit(1)  # pyright: ignore[reportAttributeAccessIssue]
    dist.init_process_group("gloo")
    run(out, sharded=True, mesh=init_device_mesh("cpu", (1,)))


if __name__ == "__main__":
    torch.set_num_threads(1)
    run(Path(sys.argv[1]), sharded=True, slow=float(sys.argv[2]))
    shutdown_distributed()
