"""Predictions, checks, reports and exports on the device say what they say on the CPU."""

import numpy as np
import pytest
import torch
from torch import nn

from csgmcmc import DrawStore, MemoryDraws, Posterior, posterior_from_trained
from csgmcmc.diagnostics import accuracy, effective_sample_size, negative_log_likelihood
from csgmcmc.posterior.likelihoods import discover
from tests.devices.support import (
    assert_equal,
    loader,
    make_chain,
    network,
    points,
)
from tests.posterior.support import in_memory, mlp

CPU = torch.device("cpu")
HELD_OUT = [
    (inputs, labels)
    for inputs, labels in zip(*(each.split(16) for each in points().tensors), strict=True)
]


@pytest.fixture(scope="module")
def draws():
    """Of a chain on the CPU."""
    return make_chain(network()).run()


def of(draws, where, **options):
    return Posterior(network(), draws, device=where, progress=False, **options)


def tensors_of(predictive):
    return {
        name: value for name, value in vars(predictive).items() if isinstance(value, torch.Tensor)
    }


@pytest.mark.parametrize("vectorize", [None, True, False])
@pytest.mark.parametrize("members", [False, True])
def test_predictions(vectorize, members, draws, device):
    found, expected = (
        of(draws, where, vectorize=vectorize).predict_loader(HELD_OUT, members=members)
        for where in (device, CPU)
    )
    assert_equal(tensors_of(found), tensors_of(expected), device)
    assert found.probs.device.type == device.type
    right = (found.probs.argmax(-1) == found.targets).float().mean()  # both are on the device
    assert float(right) == pytest.approx(accuracy(found.probs_numpy(), found.labels_numpy()))
    inputs = HELD_OUT[0][0]
    one = of(draws, device, vectorize=vectorize).predict(inputs)  # on the CPU
    other = of(draws, device, vectorize=vectorize).predict(inputs.to(device))
    assert_equal(tensors_of(one), tensors_of(other), CPU)


def likelihood_forward_and_targets(name):
    """What a network of three outputs may stand for, and targets of it."""
    generator = torch.Generator().manual_seed(3)
    classes = torch.randint(3, (12,), generator=generator)
    positive = torch.rand(12, generator=generator) + 0.1

    def one(model, inputs):
        return model(inputs)[:, 0]

    def pair(model, inputs):
        return model(inputs)[:, 0], model(inputs)[:, 1].exp()

    def plain(model, inputs):
        return model(inputs)

    return {
        "categorical": (name, plain, classes),
        "bernoulli": (name, plain, nn.functional.one_hot(classes, 3).float()),
        "gaussian": (name, pair, positive),
        "student-t": (name, pair, positive),
        "poisson": (name, one, classes),
        "negative-binomial": (name, pair, classes),
    }[name]


@pytest.mark.parametrize("name", discover())
def test_every_likelihood(name, device):
    likelihood, forward, targets = likelihood_forward_and_targets(name)
    inputs = torch.randn(12, 4, generator=torch.Generator().manual_seed(0))
    members = in_memory(mlp, 3)
    found = []
    for where in (device, CPU):
        posterior = Posterior(
            mlp().to(where), members, likelihood=likelihood, forward=forward, progress=False
        )
        predictive = posterior.predict_loader([(inputs, targets)], members=True)
        values = {**tensors_of(predictive), "scores": posterior.log_scores([(inputs, targets)])}
        if hasattr(predictive, "quantile"):
            values["quantile"] = predictive.quantile([0.1, 0.9])
            values["sample"] = predictive.sample(2, seed=0)
        found.append(values)
    assert_equal(found[0], found[1], device)
    assert all(value.device.type == device.type for value in found[0].values())


@pytest.mark.parametrize("method", ["stacking", "harmonic"])
def test_weights(method, draws, device, tmp_path):
    found = []
    for where in (device, CPU):
        posterior = of(draws, where).weigh(method, HELD_OUT, temperature=1.0)
        found.append(torch.from_numpy(posterior.weights))
    assert_equal(found[0], found[1], device)


def test_a_posterior_of_a_store_whose_model_is_on_the_device(device, tmp_path):
    chain = make_chain(network().to(device), DrawStore(tmp_path))
    chain.run()
    posterior = Posterior(chain.model, DrawStore(tmp_path), progress=False, run=chain)
    assert posterior.members.device.type == device.type
    assert posterior.log_scores(HELD_OUT).isfinite().all()
    posterior.weigh("harmonic", HELD_OUT, temperature=1.0)


def test_checks_and_reports(device, tmp_path):
    found = []
    for name, where in (("device", device), ("cpu", CPU)):
        chain = make_chain(network().to(where), DrawStore(tmp_path / name))
        chain.run()
        posterior = Posterior(chain.model, chain.draws, progress=False, run=chain)
        found.append(repr(posterior.check(loader())))
        path = tmp_path / f"{name}.html"
        other = [(2 * inputs, labels) for inputs, labels in HELD_OUT]
        posterior.report(HELD_OUT, other=other, path=path)
        assert path.stat().st_size > 1000
    if device.type == "sim":
        assert found[0] == found[1]


def test_an_exported_program(draws, device, tmp_path):
    posterior = of(draws, device)
    inputs = HELD_OUT[0][0]
    posterior.export(tmp_path / "posterior.pt2", inputs)
    program = torch.export.load(tmp_path / "posterior.pt2").module()
    found = program(inputs.to(device))
    torch.testing.assert_close(found["probs"], posterior.predict(inputs).probs)


@pytest.mark.filterwarnings("ignore:no gain over the scaled network")
@pytest.mark.parametrize("only", [None, "last layer"])
def test_a_posterior_around_trained_weights(only, device, tmp_path):
    """The loader is on the CPU; neither the chain nor the posterior is told the device."""
    found = []
    for name, where in (("device", device), ("cpu", CPU)):
        model = network(dropout=0.3).to(where)
        options = {"epochs": 4, "draws": 4, "only": only, "lr": 0.01}
        posterior = posterior_from_trained(
            model,
            nn.functional.cross_entropy,
            loader(),
            held_out=HELD_OUT,
            folder=tmp_path / name,
            posterior_options={"progress": False},
            progress=False,
            **options,
        )
        assert posterior.members.device.type == where.type
        assert posterior.predict_loader(HELD_OUT).probs.isfinite().all()
        found.append(posterior.draws[1:])  # without the network
    if only is not None:  # which draws no mask of dropout
        for one, other in zip(*found, strict=True):
            torch.testing.assert_close(one.tensors(), other.tensors(), rtol=1e-3, atol=1e-4)


def test_a_range_test_of_trained_weights(device):
    posterior = posterior_from_trained(
        network().to(device),
        nn.functional.cross_entropy,
        loader(),
        held_out=None,
        epochs=2,
        draws=2,
        progress=False,
    )
    assert len(posterior.draws) == 2


def test_memory_draws_of_two_devices(device):
    """The same draw again changes nothing, wherever it is."""
    draws = MemoryDraws()
    model = network()
    draws.append(model, step=0)
    draws.append(model.to(device), step=0)
    assert len(draws) == 1


def test_diagnostics_take_tensors_of_the_device(device):
    probs = torch.tensor([[0.7, 0.3], [0.2, 0.8]], device=device)
    labels = torch.tensor([0, 1], device=device)
    expected = -(np.log(0.7) + np.log(0.8)) / 2
    assert negative_log_likelihood(probs, labels) == pytest.approx(expected)
    assert accuracy(probs, labels) == 1
    chains = torch.randn(2, 50, generator=torch.Generator().manual_seed(0)).requires_grad_()
    expected = effective_sample_size(chains.detach().numpy())
    assert effective_sample_size(chains.to(device)) == pytest.approx(expected)
