"""Draws as points in weight space, and the models on the line between two of them."""

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from csgmcmc import Draw, MemoryDraws, Posterior
from csgmcmc.posterior import ClassPredictive
from paper.arguments import check_count
from paper.batchnorm import estimate_statistics


def weight_matrix(model: nn.Module, draws: Sequence[Draw]) -> NDArray[np.float32]:
    """The draws as rows: all trainable parameters of `model`, one after another, no buffers."""
    names = [name for name, param in model.named_parameters() if param.requires_grad]
    rows = []
    for draw in draws:
        tensors = draw.tensors()
        rows.append(torch.cat([tensors[name].reshape(-1).float().cpu() for name in names]).numpy())
    return np.stack(rows)


def draws_between(
    model: nn.Module,
    first: Draw,
    second: Draw,
    *,
    points: int = 11,
    refresh: Iterable[Any] | None = None,
    interpolate_statistics: bool = False,
) -> MemoryDraws:
    """Weights on the straight line from `first` to `second`, as draws.

    Running statistics of batch normalisation between two draws are not those of the weights there.
    Give one of the last two arguments for a model that has them.

    Args:
        model: the network; it is not changed.
        first: the draw at the start of the line.
        second: the draw at its end.
        points: number of draws on the line, evenly spaced, both ends included.
        refresh: training data to re-estimate the running statistics with, at every point.
        interpolate_statistics: interpolate the running statistics like the weights: the literal
            line between everything that the two draws hold.
    """
    check_count("points", points, at_least=2)
    normalised = any(name.endswith("running_mean") for name, _ in model.named_buffers())
    if normalised and (refresh is None) != interpolate_statistics:
        raise ValueError(
            "the model has batch normalisation: give either training data as refresh=, to "
            "re-estimate its running statistics at every point, or interpolate_statistics=True"
        )
    model = copy.deepcopy(model)
    between = MemoryDraws()
    for number, share in enumerate(np.linspace(0, 1, points).tolist()):
        model.load_state_dict(_mixed(first, second, share, model.state_dict()))
        if refresh is not None:
            estimate_statistics(model, refresh)
        between.append(model, step=number)
    return between


def errors_by_draw(posterior: Posterior, loader: Iterable[Any]) -> NDArray[np.float64]:
    """Classification error of each draw on the data of `loader`."""
    predicted = posterior.predict_loader(loader, members=True)
    assert isinstance(predicted, ClassPredictive)  # noqa: S101
    return (predicted.member_probs_numpy().argmax(-1) != predicted.labels_numpy()).mean(1)


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
