"""Draws in memory: gone with the process."""

from dataclasses import replace

import torch
from torch import Tensor

from csgmcmc.draws.base import AnotherDrawError, Draw, Draws
from csgmcmc.schedules import Tick


class MemoryDraws(Draws):
    """Copies of the weights in memory, for small models and short runs."""

    def __init__(self) -> None:
        self._draws: dict[tuple[int, int], Draw] = {}

    def _append(
        self, tensors: dict[str, Tensor], tick: Tick, chain: int, log_likelihood: float | None
    ) -> None:
        held = self._draws.get((chain, tick.step))
        if held is not None:
            if not _equal(held.tensors(), tensors):
                raise AnotherDrawError(chain, tick.step)
            return
        copies = {name: tensor.clone() for name, tensor in tensors.items()}
        self._draws[chain, tick.step] = Draw(
            chain, tick.step, tick.cycle, tick.stage, log_likelihood, lambda: dict(copies)
        )

    def _set_log_likelihood(self, chain: int, step: int, value: float) -> None:
        self._draws[chain, step] = replace(self._draws[chain, step], log_likelihood=value)

    def _all(self) -> list[Draw]:
        return list(self._draws.values())


def _equal(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(
        torch.equal(tensor, other[name].to(tensor.device)) for name, tensor in one.items()
    )
