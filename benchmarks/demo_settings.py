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


def search(demo: DigitsDemo) -> dict[str, dict[Method, float]]:
    """Mean NLL over seeds on validation data, of each candidate of each method."""
    found: dict[str, dict[Method, float]] = {}
    for method in METHODS:
        temperatures = TEMPERATURES if method.temperature > 0 else (0.0,)
        candidates = [
            replace(method, lr=lr, temperature=temperature)
            for lr, temperature in product(LRS[method.sampler], temperatures)
        ]
        found[method.name] = {each: validation_nll(demo, each) for each in candidates}
    return found


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
    for scores in search(DigitsDemo(seeds=2)).values():
        for method, nll in sorted(scores.items(), key=lambda item: item[1])[:3]:
            Console().print(f"{nll:.4f} {method}", highlight=False, soft_wrap=True)
