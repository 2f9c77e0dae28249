"""Draws as points in weight space, and what lies between two of them."""

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
from csgmcmc.posterior.posterior import Posterior
from csgmcmc.posterior.predictive import ClassPredictive


@dataclass(frozen=True)
class WeightPath:
    """Models on the straight line between two draws.

    Attributes:
        shares: share of the second draw in each, from 0 to 1.
        nll: mean negative log-likelihood of the data under each.
        error: share of points whose top class is wrong; None for regression.
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
) -> WeightPath:
    """How good the models on the line from `first` to `second` are on the data of `loader`.

    `refresh` is training data to re-estimate the statistics of batch normalisation with, at every
    point: a model that has such layers needs it, since statistics do not interpolate.
    """
    shares = np.linspace(0, 1, check_count("points", points, at_least=2))
    model = copy.deepcopy(posterior.model)
    if refresh is None and layers_with_statistics(model):
        raise ValueError("the model has batch normalisation: give training data as refresh=")
    between = MemoryDraws()
    for number, share in enumerate(shares):
        model.load_state_dict(_mixed(first, second, float(share), model.state_dict()))
        if refresh is not None:
            refresh_batchnorm(model, refresh, forward=posterior.forward)
        between.append(model, step=number)
    batches = list(loader)  # which are read twice
    path = posterior.with_draws(between)
    nll = -path.log_scores(batches).mean(1).cpu().numpy()
    predictive = path.predict_loader(batches, members=True)
    error = None
    if isinstance(predictive, ClassPredictive):
        error = (predictive.member_probs_numpy().argmax(-1) != predictive.labels()).mean(1)
    return WeightPath(shares, nll, error)


def _mixed(
    first: Draw, second: Draw, share: float, like: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Between two draws, in the dtypes of `like`; counters and the like are the first one's."""
    one, other = first.tensors(), second.tensors()
    return {
        name: torch.lerp(one[name].to(tensor), other[name].to(tensor), share)
        if tensor.is_floating_point()
        else one[name]
        for name, tensor in like.items()
    }
