"""The only source of randomness of the samplers.

A normal number is a pure function of seed, chain, step, parameter and position in the parameter.
There is no generator and no state but the number of the step. So the noise does not depend on the
number of threads or replicas, on the device, the dtype or the memory layout of a parameter, nor on
how a parameter is sharded; a chain in a stack draws what it would draw alone; and torch's own
generators are never used. How the numbers are made is in `csgmcmc.noise`.
"""

import secrets
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from csgmcmc.arguments import check_count
from csgmcmc.noise import threefry
from csgmcmc.noise.positions import spans_of
from csgmcmc.shards import local_shard


class Noise:
    """Standard normal noise for parameters.

    Args:
        seed: a whole number below 2**64. `None` takes a new one from the operating system. It is
            kept as the attribute `seed`, so that a run can be repeated.
        chain_id: number of the chain, below 2**32; chains with the same seed draw independently.
    """

    def __init__(self, seed: int | None = None, chain_id: int = 0) -> None:
        self.seed_is_given = seed is not None
        """Whether the user chose the seed: a run that is resumed must not have another one."""
        seed = secrets.randbits(63) if seed is None else seed
        self.seed = check_count("seed", seed, at_least=0, below=2**64)
        self.chain_id = check_count("chain_id", chain_id, at_least=0, below=2**32)
        self.step = 0
        """Number of the step that noise is drawn for. A sampler counts it; it may be set."""

    def like(
        self,
        params: Sequence[Tensor],
        parameter_ids: Sequence[int] | None = None,
        step: int | None = None,
    ) -> list[Tensor]:
        """The noise of a step, in the shapes and dtypes and on the devices of `params`.

        For a parameter that is sharded over processes (a DTensor), each process gets the noise of
        its own shard. `parameter_ids` are the numbers of `params` among all parameters of the
        sampler; by default they are all of them. By default, `step` is that of this object.
        """
        step = self.step if step is None else step
        ids = range(len(params)) if parameter_ids is None else parameter_ids
        noise: dict[int, Tensor] = {}
        others: dict[torch.device, list[int]] = {}
        for index, param in enumerate(params):
            kernels = load_kernels(param.device.type)
            if kernels is None:
                others.setdefault(param.device, []).append(index)
            else:
                noise[index] = self._from_kernel(kernels, param, ids[index], step, 1)
        for device, indices in others.items():  # one call for all: a device starts calls slowly
            chosen = [(params[index], ids[index]) for index in indices]
            noise.update(zip(indices, self._from_tensors(device, chosen, step), strict=True))
        values = [local_shard(param) for param in params]
        return [noise[i].view(value.shape).to(value.dtype) for i, value in enumerate(values)]

    def ahead(self, param: Tensor, steps: int, parameter_id: int = 0) -> Tensor:
        """The noise of one parameter for this step and those after it, of shape (steps, ...)."""
        kernels = load_kernels(param.device.type)
        if kernels is not None:
            made = self._from_kernel(kernels, param, parameter_id, self.step, steps)
            return made.view(steps, *local_shard(param).shape).to(param.dtype)
        later = range(self.step, self.step + steps)
        return torch.stack([self.like([param], [parameter_id], step)[0] for step in later])

    def state_dict(self) -> dict[str, int]:
        """Seed, chain and step: all that there is."""
        return {"seed": self.seed, "chain": self.chain_id, "step": self.step}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Continue from where `state` was taken, with its seed and chain."""
        if "step" not in state:
            raise ValueError("state_dict has noise of version 0.1 of csgmcmc, which has no step")
        self.seed, self.chain_id, self.step = (state[name] for name in ("seed", "chain", "step"))

    def signed_seed(self) -> int:
        """The seed's 64 bits as the signed integer that kernels take."""
        return self.seed - 2**64 if self.seed >= 2**63 else self.seed

    def _from_kernel(
        self, kernels: Any, param: Tensor, number: int, step: int, steps: int
    ) -> Tensor:
        spans = spans_of(param)
        size = steps * len(spans.first) * spans.length
        made = torch.empty(size, dtype=torch.float32, device="cpu")  # whatever the defaults are
        if size:
            key = (self.signed_seed(), self.chain_id, number)
            kernels.fill(made.data_ptr(), *spans, *key, step, steps)
        return made

    def _from_tensors(
        self, device: torch.device, chosen: list[tuple[Tensor, int]], step: int
    ) -> list[Tensor]:
        """The same numbers by torch operations."""
        rows, sizes = [], []
        for param, parameter_id in chosen:
            first, length = spans_of(param)
            rows += [(parameter_id, self.chain_id + chain, at, length) for chain, at in first]
            sizes.append(len(first))
        table = np.array(rows, np.int64).reshape(-1, 4)
        made = iter(threefry.normals(table, seed=self.seed, step=step, device=device))
        nothing = torch.empty(0, dtype=torch.float32, device=device)
        return [torch.cat([nothing, *islice(made, size)]) for size in sizes]


@cache
def load_kernels(device_type: str) -> Any:
    """The module of kernels for a kind of device, imported on first use.

    None where there is none: `threefry` then makes the same numbers by torch operations.
    """
    if device_type == "cpu":
        with suppress(ImportError, OSError):  # not installed, or without its library
            return import_module("csgmcmc.noise.numba_kernels")
    return None
