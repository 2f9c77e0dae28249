"""Draws as points in weight space, and the models on the line between two of them."""

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from csgmcmc.arguments import check_count
from csgmcmc.draws import Draw, MemoryDraws
from csgmcmc.posterior.batchnorm import layers_with_statistics, refresh_batchnorm
from csgmcmc.posterior.evaluation import evaluate
from csgmcmc.posterior.posterior import Posterior


@dataclass(frozen=True)
class WeightPath:
    """Models on the straight line between two draws.

    Attributes:
        shares: share of the second draw in each, from 0 to 1.
        nll: negative log-likelihood of the data under each, per target, as in `Posterior.check`.
        error: classification error of each; None for regression.
    """

    shares: NDArray[np.float64]
    nll: NDArray[np.float64]
    error: NDArray[np.float64] | None


def weight_matrix(model: nn.Module, draws: Sequence[Draw]) -> NDArray[np.float32]:
    """The draws as rows: all trainable parameters of `model`, one after another, no buffers."""
    names = [name for name, param in model.named_parameters() if param.requires_grad]
    rows = []
    for draw in draws:
        tensors = draw.tensors()
        rows.append(torch.cat([tensors[name].reshape(-1).float().cpu() for name in names]).numpy())
    return np.stack(rows)


def weight_path(
    posterior: Posterior,
    first: Draw,
    second: Draw,
    loader: Iterable[Any],
    *,
    points: int = 11,
    refresh: Iterable[Any] | None = None,
    interpolate_statistics: bool = False,
) -> WeightPath:
    """Loss and error of the models on the line from `first` to `second`, on the data of `loader`.

    A model with batch normalisation also has running statistics, which at a point between two draws
    are not those of that point's weights. Give one of the last two arguments for such a model.

    Args:
        posterior: whose model and likelihood are used; its own draws are not.
        first: the draw at the start of the line.
        second: the draw at its end.
        loader: data to evaluate the models on.
        points: number of models on the line, with both ends.
        refresh: training data to re-estimate the running statistics with, at every point.
        interpolate_statistics: interpolate the running statistics like the weights: the literal
            line between all that the two draws hold.
    """
    shares = np.linspace(0, 1, check_count("points", points, at_least=2))
    model = copy.deepcopy(posterior.model)
    if refresh is not None and interpolate_statistics:
        raise ValueError("give refresh= or interpolate_statistics=True, not both")
    if refresh is None and not interpolate_statistics and layers_with_statistics(model):
        raise ValueError(
            "the model has batch normalisation: give training data as refresh= to re-estimate its "
            "running statistics at every point, or interpolate_statistics=True to interpolate them "
            "like the weights"
        )
    between = MemoryDraws()
    for number, share in enumerate(shares):
        model.load_state_dict(_mixed(first, second, float(share), model.state_dict()))
        if refresh is not None:
            refresh_batchnorm(model, refresh, forward=posterior.forward)
        between.append(model, step=number)
    found = evaluate(posterior.with_draws(between), loader)
    error = None
    if found.member_probs is not None:
        error = (found.member_probs.argmax(-1) != found.labels).mean(1)
    return WeightPath(shares, -found.log_scores.mean(1) / found.targets_per_point, error)


def _mixed(
    first: Draw, second: Draw, share: float, like: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Interpolated tensors, in the dtypes of `like`; integer ones are those of `first`."""
    one, other = first.tensors(), second.tensors()
    return {
        name: torch.lerp(one[name].to(tensor), other[name].to(tensor), share)
        if tensor.is_floating_point()
        else one[name]
        for name, tensor in like.items()
    }
