"""The prior of a network, scaled by fan-in so that its outputs do not grow with the width."""

from collections.abc import Iterable
from typing import Any

from torch import nn


def prior_groups(
    params: Iterable[nn.Parameter], scale: float, num_data: int, lr: float | None = None
) -> list[dict[str, Any]]:
    """Parameter groups whose `weight_decay` is the prior N(0, scale^2 / fan_in) of each weight.

    With this prior the variance of a unit's sum does not depend on its number of inputs (Neal
    1996). Frozen parameters are left out.

    If `lr` is given, the step size of a group is lr times the prior variance. That equals steps of
    size lr in weights divided by their prior scale, and leaves the stationary distribution
    unchanged. The curvature of the loss grows with the number of inputs of a unit and with the size
    of its weights; with these step sizes one lr suits all layers.
    """
    by_inputs: dict[int, list[nn.Parameter]] = {}
    for param in params:
        if param.requires_grad:
            fan_in = param[0].numel() if param.ndim > 1 else 1  # 1 for a bias or another vector
            by_inputs.setdefault(fan_in, []).append(param)
    groups: list[dict[str, Any]] = []
    for fan_in, members in by_inputs.items():
        variance = scale**2 / fan_in
        group: dict[str, Any] = {"params": members, "weight_decay": 1 / (variance * num_data)}
        groups.append(group if lr is None else {**group, "lr": lr * variance})
    return groups
