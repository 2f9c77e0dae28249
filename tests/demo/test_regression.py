import numpy as np
import pytest
import torch
from rich.console import Console

from csgmcmc.diagnostics import r_hat
from examples.demo import regression
from examples.demo.regression import NetworkPosterior, RegressionDemo
from paper.targets import Target


def test_gradient_is_that_of_the_potential():
    target = NetworkPosterior(*regression.make_data())
    points = regression.starts(3, seed=0)
    assert torch.allclose(target.gradient(points), Target.gradient(target, points))


def test_potential_is_that_of_prior_and_likelihood():
    inputs, targets = regression.make_data()
    target = NetworkPosterior(inputs, targets)
    points = regression.starts(2, seed=0)
    prior = torch.distributions.Normal(0.0, 1.0).log_prob(points).sum(-1)
    noise = torch.distributions.Normal(target.outputs(points, inputs), regression.NOISE)
    total = -prior - noise.log_prob(targets).sum(-1)
    constant = target.potential(points) - total
    assert torch.allclose(constant, constant[0].expand(2))


def test_no_data_in_the_gap():
    inputs, _ = regression.make_data()
    low, high = regression.GAP
    assert ((inputs < low) | (inputs > high)).all()


def test_exact_chains_agree_and_the_band_opens_in_the_gap():
    target = NetworkPosterior(*regression.make_data())
    draws, accepted = regression.run_hmc(RegressionDemo(), target)
    assert 0.6 < accepted < 0.95
    outputs = target.outputs(draws.flatten(0, 1), regression.make_grid()).unflatten(0, (16, -1))
    assert r_hat(outputs[:, :, ::10].numpy()).max() < 1.1
    exact = regression.band(target, draws.flatten(0, 1))
    gap = regression.in_gap()
    data = np.abs(regression.make_grid().numpy()) < 1
    assert exact.std[gap].mean() > 1.8 * exact.std[data & ~gap].mean()


def test_too_few_steps_are_refused():
    with pytest.raises(ValueError, match="steps"):
        RegressionDemo(steps=100)


def test_short_run_prints_a_table_and_writes_a_picture(tmp_path):
    console = Console(record=True, width=100)
    demo = RegressionDemo(steps=300, hmc_chains=2, hmc_paths=2)
    regression.show_regression(demo, tmp_path, console)
    printed = console.export_text()
    for word in ("SGDM", "ensemble", "cSGHMC", "exact (HMC)"):
        assert word in printed
    assert (tmp_path / "regression.png").stat().st_size > 10_000
