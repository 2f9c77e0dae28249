"""Draws in memory: lost when the process ends."""

from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from csgmcmc.draws.base import Draw, Draws
from csgmcmc.errors import DrawConflictError


class MemoryDraws(Draws):
    """Copies of the weights in memory, for small models and short runs.

    It can be pickled and deep-copied.
    """

    def __init__(self) -> None:
        self._draws: dict[tuple[int, int], Draw] = {}

    def _append(self, draw: Draw) -> None:
        key, tensors = (draw.chain_id, draw.step), draw.tensors()
        if key in self._draws:
            if not _equal(self._draws[key].tensors(), tensors):
                raise DrawConflictError(*key)
            return
        copies = {name: tensor.clone() for name, tensor in tensors.items()}
        self._draws[key] = replace(draw, _load=partial(dict, copies))

    def _has(self, chain_id: int, step: int) -> bool:
        return (chain_id, step) in self._draws

    def _set_log_likelihood(self, chain_id: int, step: int, value: float) -> None:
        self._draws[chain_id, step] = replace(self._draws[chain_id, step], log_likelihood=value)

    def _all(self) -> list[Draw]:
        return list(self._draws.values())


def _equal(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(
        torch.equal(tensor, other[name].to(tensor.device)) for name, tensor in one.items()
    )
