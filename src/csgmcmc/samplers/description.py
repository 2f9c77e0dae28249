"""A sampler in a few lines, for people."""

from typing import Any

import torch

from csgmcmc.arguments import counted, plain_value, shown

MOST_GROUPS = 3  # that are described


def describe(sampler: torch.optim.Optimizer) -> str:
    """A sampler, a line for each group: options without the factors of a schedule, and weights."""
    lines: list[str] = []
    for group in sampler.param_groups:
        options = [
            f"{name}={_written(group.get(f'initial_{name}', value))}"
            for name, value in group.items()
            if name != "params" and not name.startswith("initial_") and value is not None
        ]
        size = sum(param.numel() for param in group["params"])
        weights = f"{counted(size, 'weight')} in {counted(len(group['params']), 'tensor')}"
        lines.append(f"{', '.join(options)}: {weights}")
    name = type(sampler).__name__
    if len(lines) == 1:
        return f"{name}({lines[0]})"
    more = f"\n  and {counted(len(lines) - MOST_GROUPS, 'more group')}"
    listed = "".join(f"\n  {line}" for line in lines[:MOST_GROUPS])
    return f"{name} with {len(lines)} groups{listed}{more if lines[MOST_GROUPS:] else ''}"


def _written(option: Any) -> str:
    number = plain_value(option)
    is_number = isinstance(number, (int, float)) and not isinstance(number, bool)
    return f"{number:g}" if is_number else shown(option)
