"""Laplace approximations: exact Hessians of logistic regression, and Gauss-Newton of a network."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.autograd.functional import hessian
from torch.func import functional_call, jacrev
from torch.nn.functional import cross_entropy

from csgmcmc.posterior import Posterior
from paper.networks import mlp, resnet8
from paper.rivals import (
    diagonal_laplace,
    ensemble_draws,
    laplace,
    last_layer_laplace,
    linearised_probs,
)
from paper.rivals.laplace import diagonal_curvature, last_layer_curvature, last_linear
from tests.support import SIGMAS

WEIGHT_DECAY = 0.02


def some_data(rows=40, features=3, classes=3):
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(rows, features, generator=generator)
    return inputs, torch.randint(classes, (rows,), generator=generator)


def batches(inputs, labels, size=16):
    return list(zip(inputs.split(size), labels.split(size), strict=True))


def regression() -> Any:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 3))


def exact_hessian(layer, inputs, labels) -> Any:
    """Of the sum of losses, by (class, weight and bias of it): 12 x 12."""

    def loss(flat):
        matrix = flat.reshape(3, 4)
        logits = inputs.double() @ matrix[:, :3].T + matrix[:, 3]
        return cross_entropy(logits, labels, reduction="sum")

    start = torch.cat([layer.weight.detach(), layer.bias.detach()[:, None]], 1).double()
    return hessian(loss, start.flatten())


def test_of_logistic_regression_the_curvature_is_the_hessian():
    model, (inputs, labels) = regression(), some_data()
    wanted = exact_hessian(model[0], inputs, labels)
    found, rows = last_layer_curvature(model, model[0], batches(inputs, labels))
    assert rows == 40
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
    diagonal, rows = diagonal_curvature(model, batches(inputs, labels))
    assert rows == 40
    by_class = wanted.diagonal().reshape(3, 4)
    torch.testing.assert_close(diagonal["0.weight"], by_class[:, :3], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(diagonal["0.bias"], by_class[:, 3], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", ["last layer", "diagonal"])
def test_draws_have_the_inverse_of_the_precision_as_covariance(kind):
    # 12 means and 78 covariances, each off by SIGMAS only once in very many seeds.
    model, (inputs, labels), count = regression(), some_data(), 4000
    precision = exact_hessian(model[0], inputs, labels) + 40 * WEIGHT_DECAY * torch.eye(12)
    if kind == "diagonal":
        precision = precision.diagonal().diag()
    wanted = torch.linalg.inv(precision)
    make = last_layer_laplace if kind == "last layer" else diagonal_laplace
    draws = make(model, batches(inputs, labels), WEIGHT_DECAY, count, seed=3)
    drawn = torch.stack(
        [
            torch.cat([draw.tensors()["0.weight"], draw.tensors()["0.bias"][:, None]], 1).flatten()
            for draw in draws
        ]
    ).double()
    mean = torch.cat([model[0].weight, model[0].bias[:, None]], 1).flatten().detach()
    scale = wanted.diagonal().sqrt()
    assert bool(((drawn.mean(0) - mean).abs() < SIGMAS * scale / count**0.5).all())
    error = ((wanted**2 + torch.outer(scale, scale) ** 2) / count).sqrt()
    assert bool(((torch.cov(drawn.T) - wanted).abs() < SIGMAS * error).all())


def gauss_newton(model, inputs):
    """Sum of J' (diag(p) - p p') J, by name of the parameter, its diagonal."""
    weights = {name: p.detach() for name, p in model.named_parameters()}
    probs = model(inputs).softmax(-1).detach()
    lambdas = torch.diag_embed(probs) - probs[:, :, None] * probs[:, None]
    jacobians = jacrev(lambda w: functional_call(model, w, (inputs,)))(weights)
    return {
        name: torch.einsum("nci,ncd,ndi->i", flat := own.flatten(2), lambdas, flat).reshape(
            own.shape[2:]
        )
        for name, own in jacobians.items()
    }


@pytest.mark.parametrize("most", [1, laplace.MOST_GRADIENTS])
def test_of_a_network_the_diagonal_is_that_of_gauss_newton(most, monkeypatch):
    monkeypatch.setattr(laplace, "MOST_GRADIENTS", most)
    torch.manual_seed(0)
    model, (inputs, labels) = mlp(3, 5, 4, 3), some_data()
    found, _ = diagonal_curvature(model, batches(inputs, labels))
    for name, wanted in gauss_newton(model, inputs).items():
        torch.testing.assert_close(found[name].float(), wanted, rtol=1e-4, atol=1e-5)
    last, _ = last_layer_curvature(model, last_linear(model)[1], batches(inputs, labels))
    own = last.diagonal().reshape(3, 5)
    torch.testing.assert_close(own[:, :4], found["5.weight"], rtol=1e-4, atol=1e-5)


def test_labels_that_are_drawn_give_the_diagonal_on_average():
    # 6 weights, each off by SIGMAS only once in very many seeds.
    torch.manual_seed(1)
    model, count = nn.Sequential(nn.Linear(3, 2, bias=False)), 4000
    row = torch.tensor([[1.0, -2.0, 0.5]])
    data = [(row.expand(count, 3), torch.zeros(count).long())]
    exact, drawn = (diagonal_curvature(model, data, seed)[0]["0.weight"] for seed in (None, 5))
    p = model(row).softmax(-1)[0, 0].double().detach()
    # The squared gradient is x^2 times (1 - p)^2 with probability p, else p^2.
    variance = p * (1 - p) ** 4 + (1 - p) * p**4 - (p * (1 - p)) ** 2
    error = row.double().square() * (count * variance).sqrt()
    assert bool(((exact - drawn).abs() < SIGMAS * error).all())
    torch.testing.assert_close(exact, count * p * (1 - p) * row.double().square().expand(2, 3))


def test_linearised_predictions():
    torch.manual_seed(0)
    inputs, labels = some_data()
    linear = regression()
    draws = last_layer_laplace(linear, batches(inputs, labels), WEIGHT_DECAY, 5, seed=0)
    exact: Any = Posterior(linear, draws, progress=False).predict(inputs)
    torch.testing.assert_close(linearised_probs(linear, draws, inputs), exact.probs.float())

    model = mlp(3, 5, 3)
    draws = diagonal_laplace(model, batches(inputs, labels), WEIGHT_DECAY, 2, seed=0)
    weights = {name: p.detach() for name, p in model.named_parameters()}
    jacobians = jacrev(lambda w: functional_call(model, w, (inputs,)))(weights)
    wanted = torch.zeros(40, 3)
    for draw in draws:
        logits = model(inputs).detach()
        for name, own in jacobians.items():
            move = (draw.tensors()[name] - weights[name]).flatten()
            logits = logits + own.flatten(2) @ move
        wanted += logits.softmax(-1) / 2
    torch.testing.assert_close(linearised_probs(model, draws, inputs), wanted)


def test_a_resnet_keeps_its_statistics_and_mode():
    torch.manual_seed(0)
    model = resnet8(classes=3, width=8).train()
    images, labels = torch.randn(6, 3, 8, 8), torch.tensor([0, 1, 2, 0, 1, 2])
    before = {name: value.clone() for name, value in model.state_dict().items()}
    for draws, changed in (
        (last_layer_laplace(model, [(images, labels)], 0.1, 2, seed=0), {"classifier"}),
        (diagonal_laplace(model, [(images, labels)], 0.1, 2, seed=0), None),
    ):
        tensors = draws[0].tensors()
        differ = {name for name in tensors if not torch.equal(tensors[name], before[name])}
        if changed:
            assert {name.partition(".")[0] for name in differ} == changed
        else:
            assert differ == {name for name, _ in model.named_parameters()}
        assert linearised_probs(model, draws, images).sum(-1).tolist() == pytest.approx([1] * 6)
    assert model.training
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])


def test_an_ensemble_is_a_draw_for_each_network():
    torch.manual_seed(0)
    models, (inputs, _) = [mlp(3, 4, 3) for _ in range(3)], some_data()
    predicted: Any = Posterior(models[0], ensemble_draws(models), progress=False).predict(inputs)
    wanted = torch.stack([model(inputs).softmax(-1) for model in models]).mean(0)
    torch.testing.assert_close(predicted.probs, wanted.to(predicted.probs.dtype).detach())
