"""Draws in memory: lost when the process ends."""

from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from csgmcmc.draws.base import Draw, Draws
from csgmcmc.draws.ordered import ByChainAndStep, Key
from csgmcmc.errors import DrawConflictError
from csgmcmc.shards import mesh_of, number_in, whole_tensor


class MemoryDraws(Draws):
    """Copies of the weights in memory, for small models and short runs.

    Of a model that is sharded over processes, the first of them keeps all of each draw.
    A tensor that is the same as in the draw kept before, such as a frozen weight, is kept once.

    It can be pickled and deep-copied.
    """

    def __init__(self) -> None:
        self._kept: ByChainAndStep[Draw] = ByChainAndStep()
        self._newest: dict[str, Tensor] = {}

    def _append(self, draw: Draw) -> None:
        key, tensors = (draw.chain_id, draw.step), draw.tensors()
        mesh = mesh_of(tensors.values())
        tensors = {name: whole_tensor(tensor) for name, tensor in tensors.items()}
        if mesh is not None and number_in(mesh) > 0:
            return
        if key in self._kept:
            if not _equal(self._kept[key].tensors(), tensors):
                raise DrawConflictError(*key)
            return
        copies = {name: self._copy(name, tensor) for name, tensor in tensors.items()}
        self._newest = copies
        self._kept[key] = replace(draw, _load=partial(dict, copies))

    def _copy(self, name: str, tensor: Tensor) -> Tensor:
        """A copy, or that of the draw kept before if it is the same."""
        newest = self._newest.get(name)
        if newest is None or (newest.device, newest.dtype) != (tensor.device, tensor.dtype):
            return tensor.clone()
        return newest if torch.equal(newest, tensor) else tensor.clone()

    def _set_log_likelihood(self, key: Key, value: float) -> None:
        self._kept[key] = replace(self._kept[key], log_likelihood=value)

    def _draw(self, key: Key) -> Draw:
        return self._kept[key]


def _equal(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(
        torch.equal(tensor, other[name].to(tensor.device)) for name, tensor in one.items()
    )
