"""After a run, `check` compares the loss with the likelihood, and says what N should be."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import (
    binary_cross_entropy_with_logits,
    cross_entropy,
    gaussian_nll_loss,
    mse_loss,
)
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from csgmcmc import SGLD, Chain, Constant, Keep, MemoryDraws, Posterior
from csgmcmc.checks.likelihood import likelihood_ratio
from csgmcmc.posterior import Gaussian

ROWS = 120
GENERATOR = torch.Generator().manual_seed(0)
INPUTS = torch.randn(ROWS, 4, generator=GENERATOR)
NOISY = INPUTS @ torch.randn(4, 5, generator=GENERATOR) + torch.randn(ROWS, 5, generator=GENERATOR)
LABELS = (NOISY > 0).float()
CLASSES = NOISY[:, :3].argmax(1)


def sampled(targets, loss, num_data, *, outputs=5, steps=600, **loader_options):
    torch.manual_seed(0)
    model = nn.Linear(4, outputs)
    data = TensorDataset(INPUTS, targets)
    loader = DataLoader(data, **{"batch_size": 60, "shuffle": True, **loader_options})
    sampler = SGLD(model.parameters(), lr=0.05, num_data=num_data, weight_decay=0.01, seed=0)
    schedule = Constant(steps, burn_in=steps // 3, keep=Keep(every=max(1, steps // 15)))
    chain = Chain(model, loss, loader, sampler, schedule, progress=False, watch=False)
    chain.run()
    return model, chain


def checked(targets, loss, num_data, likelihood: Any, **options):
    model, chain = sampled(targets, loss, num_data, **options)
    posterior = Posterior(model, chain.draws, likelihood=likelihood, progress=False)
    held_out = DataLoader(TensorDataset(INPUTS, targets), batch_size=60)
    return posterior.check(held_out, run=chain)


def test_num_data_of_rows_where_labels_are_averaged():
    """The wrong N of a mean over labels, with which all other answers are the right ones."""
    found = checked(LABELS, binary_cross_entropy_with_logits, ROWS, "bernoulli")
    assert found.sampling.holds is False
    assert found.numbers["num_data_expected"] == pytest.approx(5 * ROWS, rel=1e-3)
    assert found.numbers["num_data_ratio"] == pytest.approx(0.2, rel=1e-3)
    words = found.sampling.words
    assert words.startswith("num_data=120, but N x loss is the likelihood's NLL of all data for N=")
    assert words.endswith("N=600, so that the posterior is 5 times too hot")
    assert {found.learned.answer, found.mixing.answer, found.better.answer} == {"unknown"}
    assert len(str(found).splitlines()) <= 5  # this and what to change
    assert any("make the sampler with num_data=600" in advice for advice in found.advice)

    right = checked(LABELS, binary_cross_entropy_with_logits, 5 * ROWS, "bernoulli")
    assert right.sampling.holds is not False, right.sampling.words
    assert right.numbers["num_data_ratio"] == pytest.approx(1, rel=1e-3)
    assert "num_data" not in str(right)


def scaled(variance):
    return lambda outputs, targets: mse_loss(outputs, targets) / (2 * variance)


def with_noise(outputs, targets):
    return gaussian_nll_loss(outputs, targets, torch.full_like(outputs, 0.5))


def summed(outputs, targets):
    whole = binary_cross_entropy_with_logits(outputs, targets, reduction="none")
    return whole.sum(1).mean()


RATIOS = [
    (CLASSES, cross_entropy, "categorical", 3, ROWS),
    (LABELS, summed, "bernoulli", 5, ROWS),
    (NOISY, scaled(0.5), Gaussian(0.5), 5, 5 * ROWS),  # although the normalisation is left out
    (NOISY, with_noise, Gaussian(0.5), 5, 5 * ROWS),
    (NOISY, mse_loss, Gaussian(0.1), 5, 5 * ROWS / 0.2),
    (NOISY[:, 0], lambda x, y: mse_loss(x[:, 0], y), Gaussian(0.5), 1, ROWS),
]


@pytest.mark.parametrize(("targets", "loss", "likelihood", "outputs", "expected"), RATIOS)
def test_expected_num_data(targets, loss, likelihood, outputs, expected):
    found = checked(targets, loss, expected, likelihood, outputs=outputs, steps=15)
    assert found.numbers["num_data_expected"] == pytest.approx(expected, rel=1e-3)
    assert found.numbers["loss_nll_cosine"] == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize(
    "options",
    [
        {"batch_size": 50, "drop_last": True},
        {"batch_size": 50},
        {"batch_size": 2},  # more batches than are read
        {"batch_size": 10, "sampler": DistributedSampler(TensorDataset(INPUTS), 3, 0)},
    ],
)
def test_expected_num_data_with_loader_options(options):
    found = checked(
        *(CLASSES, cross_entropy, ROWS, "categorical"),
        **{"outputs": 3, "steps": 15, **options, "shuffle": "sampler" not in options},
    )
    assert found.numbers["num_data_expected"] == pytest.approx(ROWS, rel=0.03)


def test_loss_that_is_not_the_likelihood_is_not_judged():
    def smoothed(outputs, targets):
        return cross_entropy(outputs, targets, label_smoothing=0.3)

    found = checked(CLASSES, smoothed, 12, "categorical", outputs=3, steps=15)
    assert found.numbers["loss_nll_cosine"] < 0.999
    assert "num_data_expected" not in found.numbers


def test_batches_that_are_not_pairs_are_not_judged():
    model, chain = sampled(CLASSES, cross_entropy, ROWS, outputs=3, steps=15)
    posterior = Posterior(model, chain.draws, progress=False)

    def loss(model, batch):
        return cross_entropy(model(batch["x"]), batch["y"])

    found = posterior.check(
        [(INPUTS, CLASSES)], run=chain, loss=loss, data=[{"x": INPUTS, "y": CLASSES}]
    )
    assert "num_data_expected" not in found.numbers


@pytest.mark.parametrize("ns", [(120, 600), (600, 120)])
def test_groups_with_different_num_data(ns):
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    groups = [
        {"params": [param], "num_data": n} for param, n in zip(model.parameters(), ns, strict=True)
    ]
    loader = DataLoader(TensorDataset(INPUTS, CLASSES), batch_size=60)
    sampler = SGLD(groups, lr=0.05, num_data=ns[0], seed=0)
    chain = Chain(
        model,
        cross_entropy,
        loader,
        sampler,
        Constant(15, keep=Keep(every=1)),
        progress=False,
        watch=False,
    )
    posterior = Posterior(model, chain.run(), progress=False)
    found = posterior.check(loader, run=chain)
    assert found.sampling.holds is False
    assert "num_data=600, but N x loss is" in found.sampling.words
    assert "5 times too cold" in found.sampling.words
    assert found.numbers["num_data_ratio"] == pytest.approx(5, rel=1e-3)


def test_likelihood_ratio_changes_no_state():
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Dropout(0.5))
    draws = MemoryDraws()
    draws.append(model, step=0)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    order = torch.Generator().manual_seed(1)
    data = DataLoader(TensorDataset(INPUTS, CLASSES), 40, shuffle=True, generator=order)
    states = torch.get_rng_state(), order.get_state()
    posterior = Posterior(model, draws)
    found = likelihood_ratio(posterior, cross_entropy, data)
    assert found is not None
    assert found.num_data == pytest.approx(ROWS, rel=1e-5)
    assert torch.equal(torch.get_rng_state(), states[0])
    assert torch.equal(order.get_state(), states[1])
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_penalty_on_the_models_own_weights_is_named():
    """It is the same for a copy of the model, which has other weights: gradients do not show it."""
    torch.manual_seed(0)
    model = nn.Linear(4, 3)

    def loss(outputs, targets):
        return cross_entropy(outputs, targets) + 0.01 * model.weight.square().sum()

    loader = DataLoader(TensorDataset(INPUTS, CLASSES), batch_size=60)
    sampler = SGLD(model.parameters(), lr=0.05, num_data=ROWS, seed=0)
    schedule = Constant(600, burn_in=200, keep=Keep(every=20))
    chain = Chain(model, loss, loader, sampler, schedule, progress=False, watch=False)
    found = Posterior(model, chain.run(), progress=False).check(loader, run=chain)
    assert found.sampling.holds is False
    assert "as a penalty does" in found.sampling.words
    assert "weight_decay or prior" in found.sampling.advice[0]
