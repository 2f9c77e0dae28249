"""SWAG: a Gaussian fitted to the weights that SGD passes through.

    theta = mean + sqrt(variance / 2) * z1 + D z2 / sqrt(2 * (K - 1)),    z1, z2 ~ N(0, I)

with the mean and the variance (mean of squares less square of the mean) of all weights that were
collected, and D the deviations of the last K of them from the mean as it was then (Maddox, Garipov,
Izmailov, Vetrov and Wilson, "A Simple Baseline for Bayesian Uncertainty in Deep Learning", NeurIPS
2019). Weights are collected at the end of training, at a constant step size, once an epoch or so.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from csgmcmc.draws import MemoryDraws
from paper.arguments import check_count
from paper.batchnorm import estimate_statistics

SMALLEST_VARIANCE = 1e-30  # as in the authors' code: a weight that never moved stays where it is


class SWAG:
    """Moments of the weights of `model`, of which only the architecture and names are used.

    Args:
        model: the network.
        rank: K, how many of the last deviations are kept; at least 2.
    """

    def __init__(self, model: nn.Module, rank: int = 20) -> None:
        check_count("rank", rank, at_least=2)
        self.model, self.count = model, 0
        self._names = [name for name, _ in model.named_parameters()]
        self.mean = self.squares = torch.zeros(sum(p.numel() for p in model.parameters())).double()
        """Running means of the weights and of their squares, in one row."""
        self.deviations: deque[Tensor] = deque(maxlen=rank)

    @property
    def variance(self) -> Tensor:
        """Of each weight, among all that were collected."""
        return (self.squares - self.mean.square()).clamp(min=SMALLEST_VARIANCE)

    @torch.no_grad()
    def collect(self, weights: nn.Module | Mapping[str, Tensor] | None = None) -> None:
        """Count the present weights of the model, or those of another or of a `state_dict`."""
        source = self.model if weights is None else weights
        state = source.state_dict() if isinstance(source, nn.Module) else source
        row = torch.cat([state[name].flatten() for name in self._names]).double().cpu()
        self.count += 1
        self.mean = self.mean + (row - self.mean) / self.count
        self.squares = self.squares + (row.square() - self.squares) / self.count
        self.deviations.append(row - self.mean)

    @torch.no_grad()
    def draws(
        self, count: int, *, seed: int, loader: Iterable[Any] | None = None, scale: float = 1.0
    ) -> MemoryDraws:
        """Networks from the Gaussian. The weights of the model are those of the last one then.

        Args:
            count: how many.
            seed: of their randomness.
            loader: training data, without augmentation, by which the statistics of batch
                normalisation are estimated for each; not needed without such layers.
            scale: factor of the covariance; the paper's is 1.
        """
        if self.count < 2:
            raise ValueError(f"SWAG needs weights from at least 2 moments, got {self.count}")
        generator = torch.Generator().manual_seed(seed)
        low_rank = torch.stack(list(self.deviations))
        draws = MemoryDraws()
        for number in range(count):
            own = torch.randn(self.mean.shape, generator=generator, dtype=torch.float64)
            shared = torch.randn(len(low_rank), generator=generator, dtype=torch.float64)
            move = self.variance.sqrt() * own
            if len(low_rank) > 1:
                move += shared @ low_rank / (len(low_rank) - 1) ** 0.5
            _set_weights(self.model, self.mean + (scale / 2) ** 0.5 * move)
            if loader is not None:
                estimate_statistics(self.model, loader)
            draws.append(self.model, step=number)
        return draws


def _set_weights(model: nn.Module, row: Tensor) -> None:
    parameters = list(model.parameters())
    parts = row.split([parameter.numel() for parameter in parameters])
    for parameter, part in zip(parameters, parts, strict=True):
        parameter.copy_(part.reshape(parameter.shape))
