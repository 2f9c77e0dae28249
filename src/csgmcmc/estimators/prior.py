"""The prior of a network: as wide in its outputs, whatever the width of its layers."""

from collections.abc import Iterable
from typing import Any

from torch import Tensor, nn


def prior_groups(
    params: Iterable[nn.Parameter], scale: float, num_data: int, lr: float | None = None
) -> list[dict[str, Any]]:
    """Parameter groups whose `weight_decay` is the prior N(0, scale^2 / fan_in) of each weight.

    A unit adds up as many terms as it has inputs; with this prior the sum is as wide for many
    inputs as for one (Neal 1996). What is frozen is left out.

    Where `lr` is given, it is multiplied by the variance of the prior. That is the same as steps of
    lr in weights that are divided by the scale of their prior, and leaves the law as it is. The
    loss curves more the more inputs a unit has, and the larger their weights may be; with these
    steps one lr does for all.
    """
    by_inputs: dict[int, list[nn.Parameter]] = {}
    for param in params:
        if param.requires_grad:
            by_inputs.setdefault(fan_in(param), []).append(param)
    groups: list[dict[str, Any]] = []
    for inputs, members in by_inputs.items():
        variance = scale**2 / inputs
        group: dict[str, Any] = {"params": members, "weight_decay": 1 / (variance * num_data)}
        groups.append(group if lr is None else {**group, "lr": lr * variance})
    return groups


def fan_in(param: Tensor) -> int:
    """Number of inputs that each unit adds up with these weights; 1 for a bias."""
    return param[0].numel() if param.ndim > 1 else 1
