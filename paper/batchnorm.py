"""Running statistics of batch normalisation, estimated for weights that were never trained."""

from collections.abc import Iterable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm


@torch.no_grad()
def estimate_statistics(model: nn.Module, loader: Iterable[Any]) -> None:
    """Set the running statistics of `model` to those of the data of `loader`, in place.

    Unlike `torch.optim.swa_utils.update_bn`, every data point has equal weight, and dropout is off.
    """
    layers = [each for each in model.modules() if isinstance(each, _BatchNorm)]
    layers = [layer for layer in layers if layer.running_mean is not None]
    if not layers:
        return
    modes = [(module, module.training) for module in model.modules()]
    momenta, seen = [layer.momentum for layer in layers], dict.fromkeys(layers, 0)
    model.eval()
    hooks = [layer.register_forward_pre_hook(partial(_count, seen)) for layer in layers]
    for layer in layers:
        layer.reset_running_stats()
        layer.train()
    for batch in loader:
        inputs = batch[0] if isinstance(batch, (tuple, list)) else batch
        model(inputs.to(next(layers[0].buffers()).device))
    for layer, hook, momentum in zip(layers, hooks, momenta, strict=True):
        hook.remove()
        layer.momentum = momentum
    for module, mode in modes:
        module.training = mode


def _count(seen: dict[_BatchNorm, int], layer: _BatchNorm, inputs: tuple[Tensor, ...]) -> None:
    """Before each use of a layer: set its momentum so that all data points have equal weight."""
    seen[layer] += len(inputs[0])
    layer.momentum = len(inputs[0]) / seen[layer]
