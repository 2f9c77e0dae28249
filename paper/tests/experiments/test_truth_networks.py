"""Stacks of perceptrons: gradients as autograd's, and weights under the names of an `mlp`."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from paper.experiments.truth_networks import (
    flat,
    gradients_of,
    logits_of,
    losses_and_gradients,
    stacked_weights,
    state_of_chain,
    unflat,
)
from paper.networks import mlp


def some_models(count=3, sizes=(5, 4, 6, 3)):
    torch.manual_seed(0)
    return [mlp(*sizes) for _ in range(count)]


def some_data(chains=3, rows=7):
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(chains, rows, 5, generator=generator)
    return inputs, torch.randint(3, (chains, rows), generator=generator)


def test_losses_and_gradients_are_autograds():
    models, (inputs, labels) = some_models(), some_data()
    losses, gradients = losses_and_gradients(stacked_weights(models), inputs, labels)
    assert torch.equal(
        torch.cat([g.flatten() for g in gradients]),
        torch.cat([g.flatten() for g in gradients_of(stacked_weights(models), inputs, labels)]),
    )
    for chain, model in enumerate(models):
        loss = cross_entropy(model(inputs[chain]), labels[chain])
        loss.backward()
        assert losses[chain].item() == pytest.approx(loss.item(), rel=1e-5)
        own = state_of_chain(gradients, chain)
        for name, parameter in model.named_parameters():
            torch.testing.assert_close(own[name], parameter.grad, rtol=1e-4, atol=1e-6)


def test_masks_are_factors_of_the_hidden_units():
    models, (inputs, labels) = some_models(1), some_data(1)
    masks = [torch.rand(1, 7, 4) > 0.5, torch.rand(1, 7, 6) > 0.5]
    masks = [mask * 2.0 for mask in masks]
    gradients = gradients_of(stacked_weights(models), inputs, labels, masks)
    (model,) = models
    hidden = model[2](model[1](inputs[0])) * masks[0][0]
    hidden = model[4](model[3](hidden)) * masks[1][0]
    cross_entropy(model[5](hidden), labels[0]).backward()
    own = state_of_chain(gradients, 0)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(own[name], parameter.grad, rtol=1e-4, atol=1e-6)


def test_shared_inputs_and_names():
    models, (inputs, _) = some_models(), some_data()
    weights = stacked_weights(models)
    outputs = logits_of(weights, inputs[:1])
    for chain, model in enumerate(models):
        torch.testing.assert_close(outputs[chain], model(inputs[0]))
        for name, tensor in model.state_dict().items():
            assert torch.equal(state_of_chain(weights, chain)[name], tensor)


def test_rows_and_back():
    weights = stacked_weights(some_models())
    rows = flat(weights)
    assert rows.shape == (3, 5 * 4 + 4 + 4 * 6 + 6 + 6 * 3 + 3)
    for one, other in zip(unflat(rows.double(), weights), weights, strict=True):
        assert torch.equal(one, other)
