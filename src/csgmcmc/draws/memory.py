"""Draws in memory: gone with the process."""

from dataclasses import replace

import torch
from torch import Tensor

from csgmcmc.draws.base import Draw, Draws
from csgmcmc.errors import DrawConflictError
from csgmcmc.schedules import Tick


class MemoryDraws(Draws):
    """Copies of the weights in memory, for small models and short runs."""

    def __init__(self) -> None:
        self._draws: dict[tuple[int, int], Draw] = {}

    def _append(
        self, tensors: dict[str, Tensor], tick: Tick, chain_id: int, log_likelihood: float | None
    ) -> None:
        held = self._draws.get((chain_id, tick.step))
        if held is not None:
            if not _equal(held.tensors(), tensors):
                raise DrawConflictError(chain_id, tick.step)
            return
        copies = {name: tensor.clone() for name, tensor in tensors.items()}
        self._draws[chain_id, tick.step] = Draw(
            chain_id, tick.step, tick.cycle, tick.stage, log_likelihood, lambda: dict(copies)
        )

    def _set_log_likelihood(self, chain_id: int, step: int, value: float) -> None:
        self._draws[chain_id, step] = replace(self._draws[chain_id, step], log_likelihood=value)

    def _all(self) -> list[Draw]:
        return list(self._draws.values())


def _equal(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(
        torch.equal(tensor, other[name].to(tensor.device)) for name, tensor in one.items()
    )
