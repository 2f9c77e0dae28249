"""Running statistics of batch normalisation, re-estimated for other weights.

A draw stores the statistics that it had in training, and predictions use those. Weights that were
never trained, such as averages of draws or points between them, have none of their own.
"""

import copy
from collections.abc import Iterable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from csgmcmc.loaders import to_device
from csgmcmc.posterior.members import Forward, plain_forward
from csgmcmc.posterior.passes import plain_split


@torch.no_grad()
def refresh_batchnorm(
    model: nn.Module, loader: Iterable[Any], *, forward: Forward = plain_forward
) -> None:
    """Re-estimate the running statistics of `model` from the batches of `loader`, in place.

    Every data point has equal weight. Only the normalising layers are in training mode meanwhile:
    dropout stays off. Nothing else changes, nor do the statistics after an error.
    """
    own_layers = _layers_with_statistics(model)
    if not own_layers:
        return
    twin = copy.deepcopy(model).eval()  # so that there is nothing to restore
    layers = _layers_with_statistics(twin)
    seen = dict.fromkeys(layers, 0)
    for layer in layers:
        layer.reset_running_stats()
        layer.train()
        layer.register_forward_pre_hook(partial(_count, seen))
    for batch in loader:
        forward(twin, to_device(plain_split(batch)[0], next(layers[0].buffers()).device))
    if not any(seen.values()):
        raise ValueError("loader gave no batches to estimate statistics from")
    for old, new in zip(own_layers, layers, strict=True):
        for name, buffer in new.named_buffers():
            old.get_buffer(name).copy_(buffer)


def _layers_with_statistics(model: nn.Module) -> list[_BatchNorm]:
    layers = [layer for layer in model.modules() if isinstance(layer, _BatchNorm)]
    return [layer for layer in layers if layer.running_mean is not None]


def _count(seen: dict[_BatchNorm, int], layer: _BatchNorm, inputs: tuple[Tensor, ...]) -> None:
    """Before each use of a layer: set its momentum so that all data points have equal weight."""
    seen[layer] += len(inputs[0])
    layer.momentum = len(inputs[0]) / seen[layer]
