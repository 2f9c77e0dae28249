"""Minibatches in three orders: how wide the posterior gets, and how many draws it is worth.

    python -m benchmarks.batch_orders --data DIR     # writes benchmarks/results/batch-orders.json

Bayesian logistic regression on the Australian credit data, batches of 32, 20 chains of 10,000 steps
of which the last half is kept, as in the paper's table 5; each chain has its own batches. Standard
deviations are relative to those of long HMC (median over the coefficients, all chains together),
and the effective sample size is that of the paper, truncated, about the reference's moments.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from csgmcmc import SGHMC, Constant, Stepper
from paper.data import two_classes, with_intercept
from paper.diagnostics import reference_ess

ROOT = Path(__file__).parents[1]
REFERENCE = ROOT / "docs" / "results" / "logistic.json"
RESULTS = ROOT / "benchmarks" / "results" / "batch-orders.json"
BATCH, CHAINS, STEPS = 32, 20, 10_000
ORDERS = ("with replacement", "shuffled", "symmetric")
SETTINGS = [(0.0, 0.1), (0.0, 0.3), (0.5, 0.2)]
"""Momentum and lr."""


class Rows:
    """Rows of every chain's minibatches, (chains, BATCH), an epoch at a time."""

    draws_globally = False  # the order is from its own generator

    def __init__(self, num_data: int, *, replace: bool) -> None:
        self.num_data, self.replace = num_data, replace
        self.generator = torch.Generator().manual_seed(0)

    def __len__(self) -> int:
        return self.num_data // BATCH

    def __iter__(self) -> Iterator[Tensor]:
        shape = CHAINS, self.num_data
        rows = torch.rand(shape, generator=self.generator).argsort(1)
        if self.replace:
            rows = torch.randint(self.num_data, shape, generator=self.generator)
        yield from rows[:, : len(self) * BATCH].split(BATCH, dim=1)


class Coefficients(torch.nn.Module):
    """Those of all chains, from draws of the prior N(0, 1)."""

    def __init__(self, size: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(1)
        start = torch.randn(CHAINS, size, generator=generator, dtype=torch.float64)
        self.points = torch.nn.Parameter(start)


def sample(features: Tensor, labels: Tensor, order: str, momentum: float, lr: float) -> np.ndarray:
    """Draws of shape (chains, STEPS / 2, coefficients)."""
    num_data, model = len(features), Coefficients(features.shape[1])
    options = {"momentum": momentum, "num_data": num_data, "weight_decay": 1 / num_data}
    sampler = SGHMC(model.parameters(), lr, seed=0, **options)
    stepper = Stepper(model, sampler, Constant(STEPS))
    rows = Rows(num_data, replace=order == ORDERS[0])
    kept = []
    for chosen in stepper.batches(rows, order="symmetric" if order == ORDERS[2] else "loader"):
        inputs, targets = features[chosen], labels[chosen]
        with torch.no_grad():  # of the mean loss of each chain; written out, it takes half the time
            residuals = torch.einsum("sbd,sd->sb", inputs, model.points).sigmoid() - targets
            model.points.grad = torch.einsum("sbd,sb->sd", inputs, residuals) / BATCH
        stepper.step()
        if stepper.taken > STEPS // 2:
            kept.append(model.points.detach().clone())
    return torch.stack(kept, 1).numpy()


def main() -> None:
    """Run all orders with all settings."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path)
    columns, labels = two_classes("australian", parser.parse_args().data)
    features = with_intercept(columns)
    found = json.loads(REFERENCE.read_text())["records"]["australian, reference"]
    mean, sd = np.array(found["mean"]), np.array(found["sd"])
    rows = []
    for momentum, lr in SETTINGS:
        for order in ORDERS:
            draws = sample(features, labels, order, momentum, lr)
            sizes = [np.median(reference_ess(d, mean, sd**2, truncate=True)) for d in draws]
            pooled = draws.reshape(-1, draws.shape[-1])
            rows.append(
                {
                    "order": order,
                    "momentum": momentum,
                    "lr": lr,
                    "sd_ratio": round(float(np.median(pooled.std(0) / sd)), 4),
                    "ess": round(float(np.mean(sizes)), 2),
                    "ess_error": round(float(np.std(sizes, ddof=1) / len(sizes) ** 0.5), 2),
                }
            )
            print(rows[-1], flush=True)
    RESULTS.write_text(json.dumps({"command": "python -m benchmarks.batch_orders", "rows": rows}))


if __name__ == "__main__":
    main()
