import sys
from typing import Any

import arviz_plots
import arviz_stats
import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from csgmcmc import DrawStore, MemoryDraws, Posterior, diagnostics
from csgmcmc.integrations import arviz
from csgmcmc.posterior import Gaussian
from tests.posterior.support import conv_net, mlp, random, randomise

CYCLES = np.repeat([0, 1, 2, 3], 5)


def to_arviz(*args, **options) -> Any:  # any: a member of a tree may be a tree
    return arviz.to_arviz(*args, **options)


def two_chains(draws=None):
    """Two chains of four cycles of five draws, the second chain first."""
    draws = MemoryDraws() if draws is None else draws
    for chain in (1, 0):
        for step, cycle in enumerate(CYCLES):
            model = randomise(mlp(), seed=50 * chain + step)
            draws.append(model, step=10 * step, cycle=int(cycle), chain_id=chain)
    return draws


def biases(draws, chain):
    return np.stack([draw.tensors()["0.bias"].double().numpy() for draw in draws.of_chain(chain)])


# Draws


@pytest.mark.parametrize("kind", ["memory", "store", "list"])
def test_draws_become_variables_by_chain_and_draw(kind, tmp_path):
    draws = two_chains(DrawStore(tmp_path / "store") if kind == "store" else None)
    tree = to_arviz(list(draws)[::-1] if kind == "list" else draws)
    found = tree["posterior"]
    assert set(found.data_vars) == {"0.weight", "0.bias", "3.weight", "3.bias"}
    assert found["0.weight"].dims[:2] == ("chain", "draw")
    assert found["0.weight"].shape == (2, 20, 6, 4)
    assert found.coords["chain"].values.tolist() == [0, 1]
    assert found.coords["cycle"].dims == ("chain", "draw")
    assert found.coords["cycle"].values.tolist() == [CYCLES.tolist()] * 2
    assert found.coords["step"].values.tolist() == [list(range(0, 200, 10))] * 2
    for chain in (0, 1):
        assert np.array_equal(found["0.bias"].values[chain], biases(draws, chain))
    assert tree.attrs["inference_library"] == "csgmcmc"


def test_names_select_tensors():
    draws = two_chains()
    assert set(to_arviz(draws, names=["3.bias"])["posterior"].data_vars) == {"3.bias"}
    with pytest.raises(KeyError, match=r"4\.bias"):
        to_arviz(draws, names=["4.bias", "3.bias"])


def test_integer_buffers_are_left_out_unless_named():
    draws = MemoryDraws()
    for step in range(4):
        draws.append(randomise(conv_net(), seed=step), step=step)
    assert "1.num_batches_tracked" not in to_arviz(draws)["posterior"].data_vars
    found = to_arviz(draws, names=["1.num_batches_tracked"])["posterior"]
    assert found["1.num_batches_tracked"].values.tolist() == [[0, 1, 2, 3]]


# Chains and cycles


def test_cycles_as_chains():
    draws = two_chains()
    found = to_arviz(draws, names=["0.bias"], by="cycle")["posterior"]
    assert found["0.bias"].shape == (8, 5, 6)
    assert found.coords["cycle"].values[:, 0].tolist() == [0, 1, 2, 3] * 2
    assert found.coords["source_chain"].values.tolist() == [0] * 4 + [1] * 4
    assert found.coords["step"].values[4].tolist() == [0, 10, 20, 30, 40]
    for chain in (0, 1):
        expected = diagnostics.cycles_as_chains(biases(draws, chain), CYCLES)
        assert np.array_equal(found["0.bias"].values[4 * chain : 4 * chain + 4], expected)


@pytest.mark.parametrize("by", ["chain", "cycle"])
def test_unequal_numbers_of_draws_raise(by):
    draws = [draw for draw in two_chains() if draw.chain_id == 0 or draw.step >= 20]
    with pytest.raises(ValueError, match=f"each {by}"):
        to_arviz(draws, by=by)


def test_coordinates_of_chains_with_different_steps():
    draws = MemoryDraws()
    for chain in (0, 1):
        for step in range(4):
            draws.append(
                randomise(mlp(), seed=step), step=step + chain, cycle=step // 2, chain_id=chain
            )
    found = to_arviz(draws)["posterior"]
    assert found.coords["step"].dims == ("chain", "draw")
    assert found.coords["step"].values.tolist() == [[0, 1, 2, 3], [1, 2, 3, 4]]


def test_function_values_follow_the_order_of_draws():
    draws = list(two_chains())
    order = np.random.default_rng(0).permutation(40)
    values = random(40, 3)
    straight = to_arviz({"f": values}, draws=draws)["posterior"]
    shuffled = to_arviz({"f": values[order]}, draws=[draws[row] for row in order])["posterior"]
    assert np.array_equal(straight["f"].values, values.numpy().reshape(2, 20, 3))
    assert np.array_equal(shuffled["f"].values, straight["f"].values)
    assert shuffled.coords["cycle"].values[0].tolist() == CYCLES.tolist()


def test_names_of_further_dimensions():
    options = {"dims": {"f": ["point"]}, "coords": {"point": ["a", "b", "c"]}}
    found = to_arviz({"f": random(40, 3)}, draws=list(two_chains()), **options)["posterior"]
    assert found["f"].sel(point="b").shape == (2, 20)


@pytest.mark.parametrize(
    ("values", "options", "message"),
    [
        ({"f": np.zeros(4)}, {}, "draws"),
        ({"f": np.zeros(5)}, {"draws": list(two_chains())}, "f must have 40 rows"),
        ({"f": np.zeros((2, 4))}, {"by": "step"}, "by must be"),
        ([], {}, "values must be"),
        (torch.zeros(3, 2), {}, "values must be"),
    ],
)
def test_invalid_arguments_raise(values, options, message):
    with pytest.raises(ValueError, match=message):
        to_arviz(values, **options)


def test_missing_package_names_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "arviz_base", None)
    with pytest.raises(ImportError, match=r"pip install 'csgmcmc\[arviz\]'"):
        to_arviz(two_chains())


# ArviZ's own functions


@pytest.mark.parametrize("by", ["chain", "cycle"])
def test_statistics_equal_diagnostics(by):
    draws = two_chains()
    tree = to_arviz(draws, by=by)
    arrays = {name: values.values for name, values in tree["posterior"].data_vars.items()}
    sizes, hats = arviz_stats.ess(tree, method="bulk"), arviz_stats.rhat(tree)
    for name, values in arrays.items():
        expected = diagnostics.effective_sample_size(values)
        np.testing.assert_allclose(sizes[name].values, expected, rtol=1e-12)
        np.testing.assert_allclose(hats[name].values, diagnostics.r_hat(values), rtol=1e-12)
    options: dict[str, Any] = {"round_to": "none"}  # typed as a number
    table = arviz_stats.summary(tree, var_names=["3.bias"], **options)
    np.testing.assert_allclose(table["mean"], arrays["3.bias"].mean((0, 1)), rtol=1e-12)


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
    tree = to_arviz(draws, log_likelihood=posterior.log_scores(loader))
    exact = []
    for left in range(count):
        kept = torch.arange(count) != left
        mean, covariance = conjugate(inputs[kept], targets[kept])
        row = inputs[left]
        without = torch.distributions.Normal(row @ mean, (noise + row @ covariance @ row).sqrt())
        exact.append(without.log_prob(targets[left]))
    found: Any = arviz_stats.loo(tree, pointwise=True)
    assert found.elpd == pytest.approx(float(sum(exact)), abs=0.2)
    np.testing.assert_allclose(found.elpd_i.values, np.array(exact), atol=0.1)
    assert tree["log_likelihood"].coords["step"].dims == ("chain", "draw")


@pytest.mark.parametrize("plot", ["plot_forest", "plot_trace"])
def test_plots_are_made(plot, tmp_path):
    mpl.use("Agg")
    values = {"score": random(40), "probs": random(40, 2)}
    tree = to_arviz(values, draws=list(two_chains()), by="cycle", dims={"probs": ["image"]})
    getattr(arviz_plots, plot)(tree).savefig(tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 5000
    plt.close("all")
