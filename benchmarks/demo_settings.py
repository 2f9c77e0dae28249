"""The settings of the digits demo: for each method those with the lowest NLL on validation data.

python benchmarks/demo_settings.py

Every method has 12 candidates: SGDM and Snapshot have no temperature, and in its place a finer grid
of learning rates and weight decays. Seeds are not those of the demo's table. Beyond this search,
the exploration of cSGHMC (0.2, of 0.2, 0.4 and 0.7), the 4 cycles (of 4 and 8) and the ranges of
all grids come from earlier runs, on validation data too.
"""

from collections.abc import Iterable
from dataclasses import replace
from itertools import product

import numpy as np
import torch
from rich.console import Console

from csgmcmc.diagnostics import negative_log_likelihood
from csgmcmc.errors import DivergedError
from examples.demo.digits import METHODS, DigitsDemo, Method, predict, sample

SEARCH = DigitsDemo(first_seed=100, seeds=16)
OPTIMISER_GRID = {
    "lr": (0.1, 0.15, 0.2),
    "weight_decay": (1e-3, 3e-3, 6e-3, 1e-2),
    "temperature": (0.0,),
}
SAMPLER_GRID = {
    "lr": (0.1, 0.2),
    "weight_decay": (3e-3, 1e-2),
    "temperature": (0.03, 0.1, 0.3),
}


def candidates(method: Method) -> list[Method]:
    """All settings that the search tries for `method`."""
    grid = SAMPLER_GRID if method.temperature > 0 else OPTIMISER_GRID
    return [
        replace(method, **dict(zip(grid, values, strict=True)))
        for values in product(*grid.values())
    ]


def validation_nll(demo: DigitsDemo, method: Method) -> float:
    """Mean NLL over seeds, on validation data; infinite if a chain diverges."""
    try:
        posteriors = sample(demo, method)
    except DivergedError:
        return float("inf")
    predictions = [predict(posterior, demo.data.validation) for posterior in posteriors]
    return float(
        np.mean([negative_log_likelihood(p.probs_numpy(), p.labels_numpy()) for p in predictions])
    )


def search(demo: DigitsDemo, tried: Iterable[Method]) -> dict[Method, float]:
    """Validation NLL of each candidate."""
    return {each: validation_nll(demo, each) for each in tried}


if __name__ == "__main__":
    torch.set_num_threads(1)
    for method in METHODS:
        found = search(SEARCH, candidates(method))
        for each, nll in sorted(found.items(), key=lambda item: item[1])[:5]:
            Console().print(f"{nll:.4f} {each}", highlight=False, soft_wrap=True)
