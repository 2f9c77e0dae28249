"""MC dropout: draws are passes with masks, of the layers that were dropped in training."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from csgmcmc.posterior import Posterior
from paper.networks import mlp, resnet8
from paper.rivals import add_dropout, dropout_draws
from paper.rivals.dropout import dropped_layers
from tests.support import SIGMAS

RATE = 0.3


def linear_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 2))


def exact_moments(model, inputs):
    """Mean and variance over masks of the outputs of two linear layers."""
    hidden = model[0](inputs)
    mean = model[1](hidden)
    products = model[1].weight * hidden[:, None]  # (rows, outputs, units)
    return mean, (products.square() * RATE / (1 - RATE)).sum(-1)


def outputs_of(model, draws, inputs):
    outputs = []
    for draw in draws:
        draw.load_into(model)
        outputs.append(model(inputs))
    return torch.stack(outputs)


@pytest.mark.parametrize("way", ["draws", "training"])
@torch.no_grad()
def test_mean_and_variance_over_masks_of_a_linear_model(way):
    # 6 means and 6 variances, each off by SIGMAS only once in very many seeds.
    model, inputs, count = linear_model(), torch.randn(3, 3), 4000
    mean, variance = exact_moments(model, inputs)
    if way == "draws":
        outputs = outputs_of(linear_model(), dropout_draws(model, RATE, count, seed=1), inputs)
    else:
        add_dropout(model, RATE)
        outputs = torch.stack([model.train()(inputs) for _ in range(count)])
    error = (variance / count).sqrt()
    assert bool(((outputs.mean(0) - mean).abs() < SIGMAS * error).all())
    kurtosis = ((outputs - mean).pow(4).mean(0) / variance**2 - 1).sqrt()
    found = (outputs - mean).square().mean(0)
    assert bool(((found - variance).abs() < SIGMAS * kurtosis * variance / count**0.5).all())


def test_masks_are_columns_of_the_weights():
    model = mlp(6, 8, 7, 4)
    draw = dropout_draws(model, RATE, 1, seed=0)[0].tensors()
    state = model.state_dict()
    for name in ("1.weight", "1.bias", "3.bias", "5.bias"):
        assert torch.equal(draw[name], state[name])
    for name in ("3.weight", "5.weight"):
        factors = draw[name] / state[name]
        assert set(np.round(factors.unique().tolist(), 5)) <= {0.0, round(1 / (1 - RATE), 5)}
        assert torch.allclose(factors, factors[:1].expand_as(factors))


def test_rate_zero_is_the_network_itself_and_evaluation_drops_nothing():
    model, inputs = mlp(6, 8, 4), torch.randn(5, 6)
    plain = model(inputs).softmax(-1)
    draws = dropout_draws(model, 0.0, 3, seed=0)
    predicted: Any = Posterior(model, draws, progress=False).predict(inputs)
    torch.testing.assert_close(predicted.probs, plain.detach().to(predicted.probs.dtype))
    handles = add_dropout(model, 0.5)
    assert torch.equal(model.eval()(inputs).softmax(-1), plain)
    assert not torch.equal(model.train()(inputs).softmax(-1), plain)
    for handle in handles:
        handle.remove()
    assert torch.equal(model.train()(inputs).softmax(-1), plain)


def test_of_a_resnet_the_classifier_is_dropped():
    assert list(dropped_layers(resnet8(width=8))) == ["classifier"]
    assert list(dropped_layers(mlp(4, 3, 2))) == ["3"]


@pytest.mark.parametrize("rate", [-0.1, 1.0])
def test_bad_arguments(rate):
    with pytest.raises(ValueError, match="rate"):
        add_dropout(mlp(4, 3, 2), rate)
    with pytest.raises(ValueError, match="no linear layer"):
        dropout_draws(mlp(4, 2), 0.5, 1, seed=0)
