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
from tests.posterior.support import Tied, conv_net, in_memory, mlp, random, randomise

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
    assert found.coords["cycle"].dims == ("draw",)
    assert found.coords["cycle"].values.tolist() == CYCLES.tolist()
    assert found.coords["step"].values.tolist() == list(range(0, 200, 10))
    for chain in (0, 1):
        assert np.array_equal(found["0.bias"].values[chain], biases(draws, chain))
    assert tree.attrs["inference_library"] == "csgmcmc"


def test_names_choose_what_is_taken():
    draws = two_chains()
    by_name = to_arviz(draws, names=["3.bias"])
    by_function = to_arviz(draws, names=lambda name: name.endswith("bias"))
    assert set(by_name["posterior"].data_vars) == {"3.bias"}
    assert set(to_arviz(draws, names="3.bias")["posterior"].data_vars) == {"3.bias"}
    assert set(by_function["posterior"].data_vars) == {"0.bias", "3.bias"}
    with pytest.raises(ValueError, match=r"names asks for 4\.bias, the draws have 0\.weight"):
        to_arviz(draws, names=["4.bias", "3.bias"])
    with pytest.raises(ValueError, match="names asks for nothing"):
        to_arviz(draws, names=lambda _: False)


def test_what_counts_is_left_out_unless_it_is_named():
    draws = MemoryDraws()
    for step in range(4):
        draws.append(randomise(conv_net(), seed=step), step=step)
    assert "1.num_batches_tracked" not in to_arviz(draws)["posterior"].data_vars
    found = to_arviz(draws, names=["1.num_batches_tracked"])["posterior"]
    assert found["1.num_batches_tracked"].values.tolist() == [[0, 1, 2, 3]]


def test_too_many_numbers_are_refused_until_it_is_said():
    draws = two_chains()
    with pytest.raises(ValueError, match=r"hold 2,040 numbers, more than limit=2,000.*names"):
        to_arviz(draws, limit=2000)
    assert to_arviz(draws, limit=2040)["posterior"]["0.bias"].shape == (2, 20, 6)
    assert to_arviz(draws, limit=240, names="0.bias")["posterior"]["0.bias"].shape == (2, 20, 6)


# Chains and cycles


def test_cycles_can_be_the_chains():
    draws = two_chains()
    found = to_arviz(draws, names="0.bias", by="cycle")["posterior"]
    assert found["0.bias"].shape == (8, 5, 6)
    assert found.coords["cycle"].values.tolist() == [0, 1, 2, 3] * 2
    assert found.coords["source_chain"].values.tolist() == [0] * 4 + [1] * 4
    assert found.coords["step"].values[4].tolist() == [0, 10, 20, 30, 40]
    for chain in (0, 1):
        expected = diagnostics.cycles_as_chains(biases(draws, chain), CYCLES)
        assert np.array_equal(found["0.bias"].values[4 * chain : 4 * chain + 4], expected)


@pytest.mark.parametrize(
    ("by", "counts"), [("chain", "20, 18"), ("cycle", "5, 5, 5, 5, 3, 5, 5, 5")]
)
def test_unequal_numbers_are_refused_or_cut_to_the_last(by, counts):
    draws = [draw for draw in two_chains() if draw.chain_id == 0 or draw.step >= 20]
    with pytest.raises(ValueError, match=rf"{by}s have unequal numbers of draws \({counts}\)"):
        to_arviz(draws, by=by)
    found = to_arviz(draws, by=by, cut=True)["posterior"]
    assert found["0.bias"].shape == ((2, 18, 6) if by == "chain" else (8, 3, 6))
    assert found.coords["step"].values.reshape(-1)[0] == 20


def test_chains_that_differ_in_their_steps_have_them_by_chain():
    draws = MemoryDraws()
    for chain in (0, 1):
        for step in range(4):
            draws.append(
                randomise(mlp(), seed=step), step=step + chain, cycle=step // 2, chain_id=chain
            )
    found = to_arviz(draws)["posterior"]
    assert found.coords["step"].dims == ("chain", "draw")
    assert found.coords["step"].values.tolist() == [[0, 1, 2, 3], [1, 2, 3, 4]]
    assert found.coords["cycle"].dims == ("draw",)


def test_function_values_follow_their_draws():
    draws = list(two_chains())
    order = np.random.default_rng(0).permutation(40)
    values = random(40, 3)
    straight = to_arviz({"f": values}, draws=draws)["posterior"]
    shuffled = to_arviz({"f": values[order]}, draws=[draws[row] for row in order])["posterior"]
    assert np.array_equal(straight["f"].values, values.numpy().reshape(2, 20, 3))
    assert np.array_equal(shuffled["f"].values, straight["f"].values)
    assert shuffled.coords["cycle"].values.tolist() == CYCLES.tolist()


def test_function_values_with_numbers_of_chains_and_cycles():
    values = random(40)
    found = to_arviz({"f": values}, chains=[3] * 20 + [5] * 20, cycles=[*CYCLES, *CYCLES])
    assert found["posterior"].coords["chain"].values.tolist() == [3, 5]
    assert found["posterior"].coords["cycle"].values.tolist() == CYCLES.tolist()
    one = to_arviz({"f": values[:20]}, cycles=CYCLES, by="cycle")["posterior"]
    expected = diagnostics.cycles_as_chains(values[:20], CYCLES)
    assert np.array_equal(one["f"].values, expected)


def test_arranged_function_values_stay_as_they_are():
    values = random(2, 20, 3)
    found = to_arviz({"f": values}, dims={"f": ["point"]}, coords={"point": ["a", "b", "c"]})[
        "posterior"
    ]
    assert np.array_equal(found["f"].values, values.numpy())
    assert found["f"].sel(point="b").shape == (2, 20)


@pytest.mark.parametrize(
    ("values", "options", "message"),
    [
        ({"f": np.zeros(4)}, {}, r"f must have dimensions for chains and draws, got shape \(4,\)"),
        ({"f": np.zeros(5)}, {"chains": [0] * 4}, "leading dimension for the 4 draws"),
        ({"f": np.zeros(4)}, {"chains": [0] * 4, "cycles": [0] * 3}, r"cycles of shape \(3,\)"),
        ({"f": np.zeros((2, 4))}, {"by": "cycle"}, "needs the cycle of each draw"),
        ({"f": np.zeros(4)}, {"chains": [0] * 4, "by": "cycle"}, "needs the cycle of each draw"),
        ({"f": np.zeros((2, 4))}, {"by": "step"}, "by must be one of 'chain', 'cycle'"),
        ({"f": np.zeros((2, 4))}, {"names": ["f"]}, "names is for draws"),
        ({"step": np.zeros((2, 4))}, {}, "'step' is the name of a coordinate"),
        ({}, {}, "values is empty"),
        ([], {}, "values is empty"),
        (torch.zeros(3, 2), {}, "values must be draws, or a dictionary"),
        ({"f": np.zeros(4)}, {"draws": []}, "draws is empty"),
    ],
)
def test_bad_input_is_one_sentence(values, options, message):
    with pytest.raises(ValueError, match=message):
        to_arviz(values, **options)


def test_draws_of_two_models_are_refused():
    draws = in_memory(mlp, 1)[:] + in_memory(Tied, 2)[1:]
    with pytest.raises(ValueError, match=r"chain 0, step 1 is of another model: it has no 0\.bias"):
        to_arviz(draws)


def test_draws_know_their_chains_themselves():
    draws = two_chains()
    with pytest.raises(ValueError, match="are for function values"):
        to_arviz(draws, draws=draws)
    with pytest.raises(ValueError, match="known from draws"):
        to_arviz({"f": np.zeros(40)}, draws=draws, cycles=np.zeros(40))


def test_a_missing_package_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "arviz_base", None)
    with pytest.raises(ImportError, match=r"pip install 'csgmcmc\[arviz\]'"):
        to_arviz(two_chains())


# What ArviZ makes of it


@pytest.mark.parametrize("by", ["chain", "cycle"])
def test_statistics_are_those_of_the_diagnostics(by):
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
    np.testing.assert_allclose(table["mcse_mean"], diagnostics.mcse(arrays["3.bias"]), rtol=1e-12)


def test_loo_is_that_of_a_linear_regression():
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
    predicted: Any = posterior.predict(inputs, members=True)
    tree = to_arviz(
        draws,
        log_likelihood=posterior.log_scores(loader),
        observed_data={"targets": targets},
        posterior_predictive={"targets": predicted.members[..., 0]},
    )
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
    assert tree["posterior_predictive"]["targets"].shape == (2, 500, count)
    assert tree["posterior_predictive"].coords["step"].dims == ("draw",)
    assert np.array_equal(tree["observed_data"]["targets"].values, targets.numpy())


@pytest.mark.parametrize("plot", ["plot_forest", "plot_trace"])
def test_plots_are_made(plot, tmp_path):
    mpl.use("Agg")
    values = {"score": random(40), "probs": random(40, 2)}
    tree = to_arviz(values, draws=list(two_chains()), by="cycle", dims={"probs": ["image"]})
    getattr(arviz_plots, plot)(tree).savefig(tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 5000
    plt.close("all")
