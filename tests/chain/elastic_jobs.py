"""Chains that begin on some processes and go on with others: OUT, or called by a test."""

import json
import os
import sys
import time
from contextlib import suppress
from pathlib import Path

import torch
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, Dataset

from csgmcmc import SGHMC, Chain, Constant, DrawStore, init_distributed, shutdown_distributed
from csgmcmc.errors import StoreError

STEPS, BATCH = 30, 8


class Numbered(Dataset):
    """Examples that say which they are; batches do not divide them."""

    def __init__(self) -> None:
        self.inputs = torch.randn(45, 6, generator=torch.Generator().manual_seed(0))

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: int):
        return index, self.inputs[index], int(self.inputs[index, 0] > 0)


def run(out: Path, sharded: bool, until: int = STEPS, slow: float = 0.0, **options) -> None:
    """Go on with a chain, up to a step; each process says which examples it took in each."""
    here = init_distributed(chains=1)
    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(6, 13), nn.BatchNorm1d(13).eval(), nn.Tanh(), nn.Linear(13, 2))
    model[1].requires_grad_(False)
    if sharded and here.mesh is not None:
        for layer in (model[0], model[3], model):
            fully_shard(layer, mesh=here.mesh)
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
        model, loss, loader, sampler, Constant(STEPS, every=5), store, callbacks=say, **settings
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


if __name__ == "__main__":
    torch.set_num_threads(1)
    run(Path(sys.argv[1]), sharded=True, slow=float(sys.argv[2]))
    shutdown_distributed()
