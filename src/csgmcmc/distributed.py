"""Chains on many processes: a mesh of chains x replicas, started by `torchrun`.

Different chains never communicate. The replicas of one chain see different data, share gradients
(DDP, or FSDP2 if the user has sharded the model), and draw the same noise, so that they stay equal
bit for bit. Only the first replica of a chain writes draws.
"""

import gc
import os
import sys
import tempfile
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.utils.data import Dataset, DistributedSampler

from csgmcmc.arguments import check_count
from csgmcmc.errors import StoreError
from csgmcmc.files import make_folder
from csgmcmc.shards import do_first, is_sharded
from csgmcmc.stacked import Stack


@dataclass(frozen=True)
class ProcessLayout:
    """Position of this process among all: replica `replica_id` of chain `chain_id`.

    Attributes:
        chain_id: number of this process's chain.
        chains: number of chains.
        replica_id: number of this process among the replicas of its chain.
        replicas: number of processes for each chain.
        device: the device of this process.
        mesh: the device mesh of this chain's replicas, to shard a model over; None for a single
            process.
    """

    chain_id: int = 0
    chains: int = 1
    replica_id: int = 0
    replicas: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    mesh: DeviceMesh | None = None

    @property
    def group(self) -> dist.ProcessGroup | None:
        """The process group of this chain's replicas."""
        return None if self.mesh is None else self.mesh.get_group()

    @property
    def writes(self) -> bool:
        """Whether this process writes the draws of its chain."""
        return self.replica_id == 0

    def data_sampler(
        self,
        dataset: Dataset,
        *,
        shuffle: bool = True,
        seed: int = 0,
        global_batch_size: int | None = None,
    ) -> Any:
        """A sampler that gives each replica its own part of the data, shuffled by `seed`.

        Different chains shuffle differently. The replicas of a chain divide one order among them,
        so that the same batch size over all replicas gives the same steps.

        Args:
            dataset: the data set.
            shuffle: shuffle in each epoch; otherwise the order is that of the data set.
            seed: seed of the order.
            global_batch_size: number of examples in a batch of all replicas together. The last
                batch of an epoch is then filled up with some of its examples. By default an epoch
                is filled up to a multiple of the replicas, so that its last batch may depend on
                their number.
        """
        options = {"shuffle": shuffle, "seed": seed + 1000 * self.chain_id}
        sampler = DistributedSampler(dataset, self.replicas, self.replica_id, **options)
        if global_batch_size is not None:
            size = check_count("global_batch_size", global_batch_size, at_least=1)
            if size % self.replicas:
                raise ValueError(
                    f"global_batch_size={size} does not divide among {self.replicas} replicas: "
                    "give a multiple of their number"
                )
            sampler.total_size = -(-len(dataset) // size) * size  # pyright: ignore[reportArgumentType]
            sampler.num_samples = sampler.total_size // self.replicas
        return sampler

    def gather(self, value: Any) -> list[Any]:
        """The `value` of each replica of the chain. All replicas must call this."""
        if self.replicas == 1 or not dist.is_initialized():
            return [value]
        gathered: list[Any] = [None] * self.replicas
        dist.all_gather_object(gathered, value, group=self.group)
        return gathered

    def check_same_folder(self, folder: Path) -> None:
        """Raise a `StoreError` if a replica of the chain sees another folder than the first one.

        They share draws and checkpoints, which a folder on the disk of one machine cannot do.
        """
        if self.mesh is None:
            return
        make_folder(folder)
        created = do_first(self.mesh, lambda: tempfile.mkdtemp(prefix=".seen-", dir=folder))
        token = folder / Path(created).name
        seen = self.gather(token.exists())
        if self.writes:
            token.rmdir()
        if not all(seen):
            raise StoreError(
                f"{folder} of process {seen.index(False)} of chain {self.chain_id} is not that of "
                "its first process: all processes must see the same folder"
            )


def share_gradients(model: nn.Module, layout: ProcessLayout) -> nn.Module:
    """The module whose backward pass averages gradients over the replicas of a chain."""
    if layout.replicas == 1 or is_sharded(model):  # FSDP2 averages by itself
        return model
    if isinstance(model, Stack):
        raise ValueError("a stack cannot have replicas: give each process chains of its own")
    return nn.parallel.DistributedDataParallel(model, process_group=layout.group)


def init_distributed(chains: int | None = None) -> ProcessLayout:
    """Join the processes that `torchrun` has started; a single process without it.

    Args:
        chains: number of chains; the processes are divided among them. By default one per process.
    """
    world = int(os.environ.get("WORLD_SIZE", "1"))
    chains = world if chains is None else check_count("chains", chains, at_least=1)
    if world % chains:
        raise ValueError(
            f"chains={chains} does not divide the {world} processes: start a multiple of chains"
        )
    device = torch.device("cpu")
    found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if found is not None and found.type != "mps":  # which has no process groups
        device = torch.device(found.type, int(os.environ.get("LOCAL_RANK", "0")))
        torch.get_device_module(found.type).set_device(device)
    if world == 1:
        return ProcessLayout(device=device)
    if not dist.is_initialized():
        _initialise(dist.Backend.default_device_backend_map.get(device.type, "gloo"))
    mesh = _mesh(device.type, chains, world // chains)
    chain_id, replica_id = mesh.get_local_rank("chain"), mesh.get_local_rank("replica")
    return ProcessLayout(chain_id, chains, replica_id, world // chains, device, mesh["replica"])


@cache
def _mesh(device: str, chains: int, replicas: int) -> DeviceMesh:
    """Cached, as each mesh creates new process groups."""
    return init_device_mesh(device, (chains, replicas), mesh_dim_names=("chain", "replica"))


def shutdown_distributed() -> None:
    """Leave the process group, at the end of a program that has called `init_distributed`.

    Python must not exit while threads of a process group are alive: they sometimes abort it. They
    live as long as anything refers to the group, and chains, which do, are in reference cycles.

    Waits for the other processes, except while an exception is raised, as in a `finally` block:
    they may be waiting for this one, and end when it leaves.
    """
    if not dist.is_initialized():
        return
    if sys.exception() is None:
        dist.barrier()
    _mesh.cache_clear()
    gc.collect()
    dist.destroy_process_group()


def _initialise(backend: str) -> None:
    """Make the process group, also after torchrun has restarted this process.

    On one machine, restarted processes get the key-value store of the previous ones, with addresses
    of processes that have ended in it. A prefix with the number of the restart separates the two.
    """
    if os.environ.get("GROUP_WORLD_SIZE", "1") != "1":
        dist.init_process_group(backend)
        return
    store, rank, world = next(dist.rendezvous("env://"))
    restart = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    prefixed = dist.PrefixStore(f"restart-{restart}", store)
    dist.init_process_group(backend, store=prefixed, rank=rank, world_size=world)
