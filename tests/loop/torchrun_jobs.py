"""What the tests of distributed chains start in several processes, some with torchrun: JOB OUT."""

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.utils.data import DataLoader, TensorDataset

from csgmcmc import (
    SGHMC,
    Chain,
    Constant,
    Cyclical,
    DrawStore,
    Keep,
    Schedule,
    init_distributed,
    shutdown_distributed,
)
from csgmcmc.noise import Noise
from tests.loop.support import Noisy


def network() -> nn.Sequential:
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))


def replicas(out: Path) -> None:
    """Two chains of two replicas, for 1,000 noisy steps; every process writes its weights."""
    here = init_distributed(chains=2)
    torch.manual_seed(here.replica_id)  # what the global generators do must not matter
    model = network()
    sampler = SGHMC(model.parameters(), lr=0.05, num_data=40, seed=1, chain_id=here.chain_id)
    data = Noisy()
    loader = DataLoader(data, batch_size=4, sampler=here.data_sampler(data))
    schedule = Constant(1000, draws=4)
    store = DrawStore(out / "store")
    options = {"progress": False, "checkpoint_every": 500, "accumulate": 2}
    loss = nn.functional.cross_entropy
    Chain(model, loss, loader, sampler, schedule, store, layout=here, **options).run()
    torch.save(
        {"params": list(model.parameters()), "noise": sampler.noise.like([torch.empty(50_000)])[0]},
        out / f"{here.chain_id}-{here.replica_id}.pt",
    )


def restart(out: Path) -> None:
    """One chain of two replicas, of which one is killed once, in the middle."""
    here = init_distributed(chains=1)
    model = network()
    sampler = SGHMC(model.parameters(), lr=0.05, num_data=40, seed=1, chain_id=here.chain_id)
    data = Noisy()
    loader = DataLoader(data, batch_size=4, sampler=here.data_sampler(data))
    schedule = Cyclical(60, cycles=2, exploration=0.5, draws_per_cycle=5)
    first_life = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"

    def die(moment) -> None:
        if "DIE" in os.environ and first_life and here.replica_id == 1 and moment.tick.step == 44:
            os.kill(os.getpid(), signal.SIGKILL)

    loss, store = nn.functional.cross_entropy, DrawStore(out / "store")
    Chain(
        model, loss, loader, sampler, schedule, store,
        layout=here, progress=False, checkpoint_every=7, callbacks=die,
    ).run(resume=True)  # fmt: skip


def sharded_network() -> nn.Sequential:
    """Layers whose rows do not divide by two, and one so large that its noise is made in parts."""
    torch.manual_seed(5)
    return nn.Sequential(
        nn.Linear(6, 301), nn.Tanh(), nn.Linear(301, 7), nn.Tanh(), nn.Linear(7, 2)
    )


def sharded_batches() -> list[tuple[torch.Tensor, torch.Tensor]]:
    """The same for each process: the mean gradient is then that of one process."""
    data = Noisy()
    return list(DataLoader(TensorDataset(data.inputs, data.labels), batch_size=10))


NOISY = Constant(12, keep=Keep(every=4))
RESTARTING = Cyclical(12, cycles=3, exploration=0.5, draws_per_cycle=1, restart=0.5)


def run_sharded(
    model: nn.Module, out: Path, fused: bool | None, layout=None, schedule: Schedule = NOISY
) -> SGHMC:
    """A chain with noise, stopped and resumed."""
    options = {"lr": 0.05, "num_data": 40, "momentum": 0.5, "seed": 1, "fused": fused}
    sampler = SGHMC(model.parameters(), **options)

    def stop(info) -> None:
        if info.tick.step == 5:
            raise KeyboardInterrupt

    parts = (
        model,
        nn.functional.cross_entropy,
        sharded_batches(),
        sampler,
        schedule,
    )
    settings = {"layout": layout, "progress": False, "checkpoint_every": 2}
    with suppress(KeyboardInterrupt):
        Chain(*parts, DrawStore(out), callbacks=stop, **settings).run()
    Chain(*parts, DrawStore(out), **settings).run(resume=True)
    return sampler


def shards(out: Path) -> None:
    """A model sharded over two processes, by the fused and by the plain update."""
    here = init_distributed(chains=1)
    for fused in (None, False):
        model = sharded_network()
        for layer in (model[0], model[2], model[4], model):
            fully_shard(layer, mesh=here.mesh)
        sampler = run_sharded(model, out / f"fused-{fused}", fused, here)
        noise = sampler.noise.like(list(model.parameters()))
        torch.save(noise, out / f"noise-{fused}-{here.replica_id}.pt")


def restarts(out: Path) -> None:
    """A chain that restarts: sharded over two processes, and with two replicas."""
    here = init_distributed(chains=1)
    model = sharded_network()
    for layer in (model[0], model[2], model[4], model):
        fully_shard(layer, mesh=here.mesh)
    run_sharded(model, out / "sharded", None, here, RESTARTING)
    torch.manual_seed(here.replica_id)  # what the global generators do must not matter
    model, data = network(), Noisy()
    sampler = SGHMC(model.parameters(), lr=0.05, num_data=40, seed=1)
    loader = DataLoader(data, batch_size=4, sampler=here.data_sampler(data))
    parts = (model, nn.functional.cross_entropy, loader, sampler, RESTARTING)
    Chain(*parts, DrawStore(out / "replicas"), layout=here, progress=False).run()
    torch.save(list(model.parameters()), out / f"{here.replica_id}.pt")


def two_dimensions(out: Path) -> None:
    """Parameters sharded by tensor parallelism and then by FSDP: each knows its own positions."""
    here = init_distributed(chains=1)
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replica", "tensor"))
    model = nn.Sequential(nn.Linear(6, 16), nn.Linear(16, 5))
    with torch.no_grad():
        for param in model.parameters():
            param.copy_(torch.arange(param.numel()).view(param.shape))
    whole = Noise(seed=1).like(list(model.parameters()))
    plan = {"0": ColwiseParallel(), "1": RowwiseParallel()}
    parallelize_module(model, mesh["tensor"], plan)
    fully_shard(model, mesh=mesh["replica"])
    params: list[Any] = list(model.parameters())
    for mine, param, full in zip(Noise(seed=1).like(params), params, whole, strict=True):
        positions = param.to_local().long()
        assert torch.equal(mine, full.flatten()[positions]), param.placements
    (out / f"{here.replica_id}.txt").write_text("the same")


def seeds(out: Path) -> None:
    """Replicas whose samplers were given no seed."""
    here = init_distributed(chains=1)
    model = network()
    sampler = SGHMC(model.parameters(), lr=0.05, num_data=40)
    try:
        Chain(model, nn.functional.cross_entropy, [1], sampler, Constant(1), layout=here).run()
    except ValueError as error:
        (out / f"{here.replica_id}.txt").write_text(str(error))


if __name__ == "__main__":
    torch.set_num_threads(1)
    next(job for job in (restart,) if job.__name__ == sys.argv[1])(Path(sys.argv[2]))
    shutdown_distributed()
