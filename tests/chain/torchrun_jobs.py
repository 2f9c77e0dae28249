"""What the tests of distributed chains start with torchrun: JOB OUT."""

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

import torch
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader

from csgmcmc import (
    SGHMC,
    Chain,
    Constant,
    Cyclical,
    DrawStore,
    init_distributed,
    shutdown_distributed,
)
from tests.chain.support import Noisy


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


def shards(out: Path) -> None:
    """A model sharded over two processes: its shards draw apart, and its draws are whole."""
    here = init_distributed(chains=1)
    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(200, 500, bias=False), nn.Linear(500, 1))
    with torch.no_grad():
        for param in model.parameters():
            param.zero_()
    start = {name: value.clone() for name, value in model.state_dict().items()}
    for layer in model:
        fully_shard(layer, mesh=here.mesh)
    fully_shard(model, mesh=here.mesh)
    sampler = SGHMC(model.parameters(), lr=0.05, num_data=40, momentum=0.5, seed=1)
    batches = [(torch.zeros(4, 200), torch.zeros(4, 1))]

    def no_gradient(outputs, targets):
        return ((outputs - targets) * 0).mean()

    def stop(moment) -> None:
        if moment.tick.step == 2:
            raise KeyboardInterrupt

    store, schedule = DrawStore(out / "store"), Constant(4, every=1)
    options = {"layout": here, "progress": False, "checkpoint_every": 2}
    with suppress(KeyboardInterrupt):
        Chain(
            model, no_gradient, batches, sampler, schedule, store, callbacks=stop, **options
        ).run()
    Chain(model, no_gradient, batches, sampler, schedule, store, **options).run(resume=True)
    assert start.keys() == model.state_dict().keys()
    mine = model.state_dict()["0.weight"].to_local()
    torch.save(mine, out / f"shard-{here.replica_id}.pt")


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
    jobs = {"replicas": replicas, "restart": restart, "shards": shards, "seeds": seeds}
    jobs[sys.argv[1]](Path(sys.argv[2]))
    shutdown_distributed()
