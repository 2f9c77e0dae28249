"""The only source of randomness of the samplers.

A normal number is a pure function of seed, chain, step, parameter and position in the parameter.
There is no generator and no state but the number of the step. So the noise does not depend on the
number of threads or replicas, on the device, the dtype or the memory layout of a parameter, nor on
how a parameter is sharded; a chain in a stack draws what it would draw alone; and torch's own
generators are never used. How the numbers are made is in `csgmcmc.noise`.
"""

import secrets
from collections.abc import Sequence

import torch
from torch import Tensor

from csgmcmc.arguments import check_count
from csgmcmc.noise import threefry
from csgmcmc.noise.backends import Key, load_kernels, refuse_capture
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
        made: dict[int, Tensor] = {}
        by_device: dict[torch.device, list[int]] = {}
        for index, param in enumerate(params):
            by_device.setdefault(param.device, []).append(index)
        for device, indices in by_device.items():  # at once: a device starts calls slowly
            refuse_capture(device, step)
            own_ids, spans = [ids[i] for i in indices], [spans_of(params[i]) for i in indices]
            kernels = load_kernels(device)
            if kernels is None:
                flat = threefry.normals(self.key(step), own_ids, spans, device)
            else:
                flat = [_numbers(device, own.total) for own in spans]
                kernels.fill_all(self.key(step), own_ids, spans, flat)
            made.update(zip(indices, flat, strict=True))
        values = [local_shard(param) for param in params]
        return [made[i].view(value.shape).to(value.dtype) for i, value in enumerate(values)]

    def ahead(self, param: Tensor, steps: int, parameter_id: int = 0) -> Tensor:
        """The noise of one parameter for this step and those after it, of shape (steps, ...)."""
        kernels = load_kernels(param.device)
        if kernels is None:
            later = range(self.step, self.step + steps)
            return torch.stack([self.like([param], [parameter_id], step)[0] for step in later])
        refuse_capture(param.device, self.step)
        spans = spans_of(param)
        made = _numbers(param.device, steps * spans.total)
        kernels.fill_all(self.key(self.step), [parameter_id], [spans], [made], steps)
        return made.view(steps, *local_shard(param).shape).to(param.dtype)

    def key(self, step: int) -> Key:
        """What the noise of a step depends on, besides parameter and position."""
        return Key(self.seed, self.chain_id, step)

    def state_dict(self) -> dict[str, int]:
        """Seed, chain and step, which determine the noise."""
        return {"seed": self.seed, "chain": self.chain_id, "step": self.step}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Continue from where `state` was taken, with its seed and chain."""
        self.seed, self.chain_id, self.step = (state[name] for name in ("seed", "chain", "step"))


def _numbers(device: torch.device, size: int) -> Tensor:
    return torch.empty(size, dtype=torch.float32, device=device)  # whatever the defaults are
