"""Draws in memory: lost when the process ends."""

from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from csgmcmc.draws.base import Draw, Draws
from csgmcmc.draws.manifest import Key
from csgmcmc.errors import DrawConflictError
from csgmcmc.shards import is_first, mesh_of, whole_tensor


class MemoryDraws(Draws):
    """Copies of the weights in memory, for small models and short runs.

    If the model is sharded over processes, the first of them keeps all of each draw.
    A tensor that is the same as in the draw kept before, such as a frozen weight, is kept once.

    It can be pickled and deep-copied.
    """

    def __init__(self) -> None:
        super().__init__()
        self._draws: dict[Key, Draw] = {}
        self._newest: dict[str, Tensor] = {}

    @property
    def _kept(self) -> dict[Key, Draw]:
        return self._draws

    def _append(self, draw: Draw) -> None:
        key, tensors = (draw.chain_id, draw.step), draw.tensors()
        mesh = mesh_of(tensors.values())
        tensors = {name: whole_tensor(tensor) for name, tensor in tensors.items()}
        if not is_first(mesh):
            return
        if key in self._kept:
            kept = self._kept[key].tensors()
            if kept.keys() != tensors.keys() or not all(_same(kept[n], tensors[n]) for n in kept):
                raise DrawConflictError(*key)
            return
        newest = self._newest
        self._newest = {
            name: newest[name] if name in newest and _same(newest[name], tensor) else tensor.clone()
            for name, tensor in tensors.items()
        }
        self._kept[key] = replace(draw, _load=partial(dict, self._newest))

    def _draw(self, key: Key) -> Draw:
        return self._kept[key]


def _same(kept: Tensor, tensor: Tensor) -> bool:
    return kept.dtype == tensor.dtype and torch.equal(kept, tensor.to(kept.device))
