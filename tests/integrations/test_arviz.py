"""ArviZ's own functions on draws, arranged as docs/howto/arviz.md does."""

from typing import Any

import arviz_base
import arviz_plots
import arviz_stats
import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from csgmcmc import MemoryDraws, Posterior, diagnostics
from csgmcmc.diagnostics import cycles_as_chains
from csgmcmc.posterior import Gaussian
from tests.posterior.support import random

CYCLES = np.repeat([0, 1, 2, 3], 5)


def test_statistics_equal_diagnostics():
    values = cycles_as_chains(random(20, 3), CYCLES)
    tree: Any = arviz_base.from_dict({"posterior": {"f": values}})
    expected = diagnostics.effective_sample_size(values)
    np.testing.assert_allclose(arviz_stats.ess(tree)["f"].values, expected, rtol=1e-12)
    np.testing.assert_allclose(arviz_stats.rhat(tree)["f"].values, diagnostics.r_hat(values))


def test_loo_of_linear_regression_equals_closed_form():
    """Exact draws of a conjugate posterior: leaving out a point has a closed form."""
    count, noise = 30, 0.5
    inputs, generator = random(count, 2, seed=1), torch.Generator().manual_seed(2)
    targets = inputs @ torch.tensor([1.0, -2.0], dtype=torch.float64)
    targets = targets + noise**0.5 * random(count, seed=3)

    def conjugate(x, y):
        precision = torch.eye(2, dtype=torch.float64) + x.T @ x / noise
        return torch.linalg.solve(precision, x.T @ y / noise), torch.linalg.inv(precision)

    mean, covariance = conjugate(inputs, targets)
    root = torch.linalg.cholesky(covariance)
    draws, model = MemoryDraws(), nn.Linear(2, 1, bias=False).double()
    for step in range(1000):
        point = mean + root @ torch.randn(2, generator=generator, dtype=torch.float64)
        draws.append({"weight": point[None]}, step=step // 2, chain_id=step % 2)
    posterior = Posterior(model, draws, likelihood=Gaussian(variance=noise))
    loader = DataLoader(TensorDataset(inputs, targets[:, None]), batch_size=count)
    chains = [draw.chain_id for draw in draws]
    weights = torch.stack([draw.tensors()["weight"] for draw in draws])
    groups = {
        "posterior": {"weight": cycles_as_chains(weights, chains)},
        "log_likelihood": {"y": cycles_as_chains(posterior.log_scores(loader), chains)},
    }
    exact = []
    for left in range(count):
        kept = torch.arange(count) != left
        mean, covariance = conjugate(inputs[kept], targets[kept])
        row = inputs[left]
        without = torch.distributions.Normal(row @ mean, (noise + row @ covariance @ row).sqrt())
        exact.append(without.log_prob(targets[left]))
    tree: Any = arviz_base.from_dict(groups)
    found: Any = arviz_stats.loo(tree, pointwise=True)
    assert found.elpd == pytest.approx(float(sum(exact)), abs=0.2)
    np.testing.assert_allclose(found.elpd_i.values, np.array(exact), atol=0.1)


@pytest.mark.parametrize("plot", ["plot_forest", "plot_trace"])
def test_plots_are_made(plot, tmp_path):
    mpl.use("Agg")
    values = {"score": random(20), "probs": random(20, 2)}
    by_cycle = {name: cycles_as_chains(each, CYCLES) for name, each in values.items()}
    tree: Any = arviz_base.from_dict({"posterior": by_cycle}, dims={"probs": ["image"]})
    getattr(arviz_plots, plot)(tree).savefig(tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 5000
    plt.close("all")
