"""Jobs that the tests of sharded draws run in several processes."""

import errno
import itertools
import os
import weakref
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from benchmarks.faults.runs import Points, kill_this_process
from csgmcmc import (
    SGHMC,
    Chain,
    Constant,
    DrawStore,
    Keep,
    MemoryDraws,
    init_distributed,
    shards,
)
from csgmcmc.draws import keep_trainable, tensors
from csgmcmc.draws.manifest import Manifest
from csgmcmc.errors import CsgmcmcError, DrawConflictError, StoreError
from csgmcmc.shards import local_shard

KINDS = ("fully", "tensor", "hybrid")
"""Ways to shard: FSDP2, tensor parallelism below it, and FSDP2 with replicas."""


class Network(nn.Module):
    """Rows that no number of processes divides, a buffer, a tied weight, and a frozen layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Linear(6, 13), nn.BatchNorm1d(13)
        self.second, self.third, self.last = nn.Linear(13, 16), nn.Linear(16, 6), nn.Linear(6, 2)
        self.again = self.last  # two names for one layer
        for param in self.first.parameters():
            param.requires_grad = False

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = self.norm(self.first(inputs)).tanh()
        return self.last(self.third(self.second(hidden).tanh()))


def network(seed: int = 5) -> Network:
    torch.manual_seed(seed)
    return Network()


def sharded(kind: str, processes: int, seed: int = 5) -> Network:
    """The same numbers, held by all processes together."""
    model = network(seed)
    if kind == "fully":
        fully_shard(model, mesh=init_device_mesh("cpu", (processes,)))
        return model
    names = ("replica", "tensor") if kind == "tensor" else ("replica", "shard")
    mesh = init_device_mesh("cpu", (2, processes // 2), mesh_dim_names=names)
    if kind == "hybrid":
        fully_shard(model, mesh=mesh)
    else:
        plan = {"second": ColwiseParallel(), "third": RowwiseParallel()}
        parallelize_module(model, mesh["tensor"], plan)
        fully_shard(model, mesh=mesh["replica"])
    return model


def write(out: Path) -> None:
    """Draws of models that are sharded in different ways, and draws that are refused."""
    here = init_distributed(chains=1)
    for kind in KINDS:
        model = sharded(kind, here.replicas)
        store = DrawStore(out / kind, only=keep_trainable(model) if kind == "fully" else None)
        store.append(model, step=3, cycle=1)
        store.append(model, step=3, cycle=1)  # the same again changes nothing
        # A buffer that is not sharded is that of the first process.
        model.norm.get_buffer("running_mean").add_(here.replica_id)
        store.append(model, step=4)
        with torch.no_grad():
            model.second.weight.add_(here.replica_id == 1)  # in one process only
        refuses(store, model, DrawConflictError, step=3)
        assert len(store) == 2
    base = sharded("fully", here.replicas)
    with torch.no_grad():
        local_shard(base.first.weight).add_(here.replica_id == 1)
    refuses(DrawStore(out / "fully", only=keep_trainable(base)), base, StoreError, step=9)
    DrawStore(out / "narrow", dtype=torch.bfloat16).append(sharded("fully", here.replicas), step=0)
    memory = MemoryDraws()
    memory.append(sharded("hybrid", here.replicas), step=0)
    assert len(memory) == int(here.replica_id == 0)


def refuses(
    store: DrawStore, model: nn.Module, error: type[CsgmcmcError], step: int, chain_id: int = 0
) -> None:
    """All processes must raise: otherwise the others would wait."""
    try:
        store.append(model, step=step, chain_id=chain_id)
    except error:
        return
    raise AssertionError("not refused")


def read(out: Path) -> None:
    """Load every draw into models that are sharded over these processes."""
    here = init_distributed(chains=1)
    for kind in KINDS:
        for draw in DrawStore(out / kind):
            stored = draw.tensors()
            for other in KINDS:
                model: Any = sharded(other, here.replicas, seed=7)
                draw.load_into(model)
                for name, value in model.state_dict().items():
                    whole = value.full_tensor() if hasattr(value, "full_tensor") else value
                    assert torch.equal(whole, stored[name]), (kind, other, name)
    (out / f"read-{here.replica_id}").touch()


def killed(out: Path, victim: int | None = None, point: int = 0) -> None:
    """A chain, of which one process kills itself.

    The first process does so before or after a call of the file system, the others in a gather.
    """
    here = init_distributed(chains=1)
    model = sharded("fully", here.replicas)
    trained = [param for param in model.parameters() if param.requires_grad]
    sampler = SGHMC(trained, lr=0.05, num_data=40, seed=1)
    data = [(torch.randn(8, 6, generator=torch.Generator().manual_seed(i)), torch.arange(8) % 2)
            for i in range(5)]  # fmt: skip

    def say(info) -> None:
        if info.tick.collect and here.writes:
            with (out / "kept").open("a") as file:
                file.write(f"{info.tick.step}\n")

    if victim == here.replica_id == 0:
        Points(out, point, kill_this_process).install()
    elif victim == here.replica_id:
        gather, count = shards.whole_tensor, itertools.count()
        shards.whole_tensor = lambda each: (
            kill_this_process() if next(count) == point else gather(each)
        )
    options = {"layout": here, "progress": False, "checkpoint_every": 4, "callbacks": say}
    schedule, store = Constant(12, keep=Keep(every=2)), DrawStore(out / "store")
    Chain(model, nn.functional.cross_entropy, data, sampler, schedule, store, **options).run(
        resume=True
    )


def begin_at_once(out: Path) -> None:
    """Two chains with different frozen weights, each of which finds no base in the store."""
    here = init_distributed(chains=1)
    models = [sharded("fully", here.replicas, seed) for seed in (5, 6)]
    stores = [DrawStore(out / "store", only=keep_trainable(model)) for model in models]
    read, looks = stores[1]._base.tensors, itertools.count()
    stores[1]._base.tensors = lambda: read() if next(looks) else {}  # the first look is too early
    stores[0].append(models[0], step=3)
    refuses(stores[1], models[1], StoreError, step=3, chain_id=1)


def killed_before_the_line(out: Path) -> None:
    here = init_distributed(chains=1)
    Manifest.append = lambda *_, **__: os._exit(1)  # pyright: ignore[reportAttributeAccessIssue]
    DrawStore(out / "store").append(sharded("fully", here.replicas), step=3)


def count_gathered(out: Path) -> None:
    """Note how many gathered tensors are alive at once, in a store of each way to write."""
    here = init_distributed(chains=1)
    model = sharded("fully", here.replicas)
    alive: weakref.WeakSet[Any] = weakref.WeakSet()
    most = [0]
    gather = shards.whole_tensor

    def counted(tensor: torch.Tensor) -> torch.Tensor:
        whole = gather(tensor)
        if whole is not tensor:
            alive.add(whole)
        most[0] = max(most[0], len(alive))
        return whole

    shards.whole_tensor = counted
    plain, only = DrawStore(out / "plain"), DrawStore(out / "only", only=keep_trainable(model))
    narrow = DrawStore(out / "narrow", dtype=torch.bfloat16)
    for store in (plain, only, narrow):
        store.append(model, step=3)
        store.append(model, step=3)  # compares it with the one that is stored
    (out / f"most-{here.replica_id}").write_text(str(most[0]))


def fail_to_write(out: Path) -> None:
    """The first process fails in the middle of a file, while the others gather."""
    here = init_distributed(chains=1)
    model, store = sharded("fully", here.replicas), DrawStore(out / "store")
    convert = tensors.for_disk

    def full_disk(name: str, *others: Any) -> torch.Tensor:
        if name == "norm.weight":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return convert(name, *others)

    tensors.for_disk = full_disk
    refuses(store, model, StoreError, step=3)
    tensors.for_disk = convert
    store.append(model, step=3)
    assert len(store) == 1
