"""Samplers that can draw their noise and update in one pass over the weights."""

from abc import abstractmethod
from typing import Any, ClassVar

import torch

from csgmcmc.noise.backends import Coefficients
from csgmcmc.noise.fused import FusedTerms, can_fuse, fused_update, pays
from csgmcmc.samplers.base import Group, Move, Sampler, States
from csgmcmc.shards import local_shard


class FusedSampler(Sampler):
    """Base of samplers whose `options` include `fused`: None, True or False."""

    _is_fused: ClassVar[bool] = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        # A class that overrides only `update` must not be moved by the kernel of its base.
        owner = next(kind for kind in cls.__mro__ if "update" in vars(kind))
        cls._is_fused = "fused_terms" in vars(owner)

    @abstractmethod
    def fused_terms(self, group: Group, states: States) -> FusedTerms | None:
        """What the fused kernel needs for `update`; None if it cannot do this step."""

    def check_options(self, options: Group) -> None:
        super().check_options(options)
        if options["fused"] not in (None, True, False):
            raise ValueError(f"fused must be None, True or False, got {options['fused']!r}")

    def check_group(self, group: Group) -> None:
        super().check_group(group)
        if group["fused"] and not can_fuse(list(map(local_shard, group["params"]))):
            raise ValueError(
                "fused must be None or False, got True: the kernels need contiguous float32 "
                "parameters on one device, a CPU with numba or a GPU with Triton"
            )

    def _apply(self, move: Move, step: int) -> None:
        group, ids, params, values, gradients = move
        # torch.compile fuses by itself; the kernels, which it cannot trace, only make the noise.
        fused = group["fused"]
        if fused is not False and self._is_fused and not torch.compiler.is_compiling():
            terms = self.fused_terms(group, States(self.state, params))
            if terms is not None and (fused or pays(terms.noise_std, values)):
                columns = (values, gradients, terms.velocities, terms.scales)
                if can_fuse(*columns):
                    rate, decay = group["lr"], group["weight_decay"]
                    numbers = Coefficients(rate, self.momentum(group), terms.noise_std, decay)
                    fused_update(self.noise, step, ids, params, columns, numbers)
                    return
        super()._apply(move, step)
