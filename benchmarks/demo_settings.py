"""The settings of the digits demo: for each method those with the lowest NLL on validation data.

python benchmarks/demo_settings.py
"""

from dataclasses import replace
from itertools import product

import numpy as np
import torch
from rich.console import Console

from csgmcmc.demo.digits import METHODS, DigitsDemo, Method, predict, sample
from csgmcmc.diagnostics import negative_log_likelihood
from csgmcmc.errors import DivergedError
from csgmcmc.samplers import SGHMC, SGLD

LRS = {SGLD: (0.1, 0.2, 0.5, 1.0), SGHMC: (0.05, 0.1, 0.2, 0.5)}
TEMPERATURES = (0.03, 0.1, 0.3, 1.0)


def search(demo: DigitsDemo) -> dict[str, Method]:
    """The settings of each method with the lowest mean NLL over seeds, on validation data."""
    best: dict[str, Method] = {}
    for method in METHODS:
        temperatures = TEMPERATURES if method.temperature > 0 else (0.0,)
        candidates = [
            replace(method, lr=lr, temperature=temperature)
            for lr, temperature in product(LRS[method.sampler], temperatures)
        ]
        losses = [validation_nll(demo, candidate) for candidate in candidates]
        best[method.name] = candidates[int(np.argmin(losses))]
    return best


def validation_nll(demo: DigitsDemo, method: Method) -> float:
    """Mean NLL over seeds, on validation data; infinite if a chain diverges."""
    losses = []
    for seed in demo.seed_numbers:
        try:
            predictive = predict(sample(demo, method, seed), demo.data.validation)
        except DivergedError:
            return float("inf")
        losses.append(negative_log_likelihood(predictive.probs_numpy(), predictive.labels_numpy()))
    return float(np.mean(losses))


if __name__ == "__main__":
    torch.set_num_threads(1)
    for found in search(DigitsDemo(seeds=2)).values():
        Console().print(found, highlight=False, soft_wrap=True)
