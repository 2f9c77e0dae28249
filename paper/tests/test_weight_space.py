"""Weights between draws, against interpolation by hand."""

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.testing import assert_close

from csgmcmc import DrawStore, MemoryDraws, Posterior
from paper.batchnorm import estimate_statistics
from paper.weight_space import draws_between, errors_by_draw, weight_matrix
from tests.posterior.support import Tied, conv_net, fill, in_memory, mlp, outputs_of, random
from tests.posterior.support import randomise as randomised


def linear() -> nn.Module:
    return nn.Linear(4, 3).double()


INPUTS = random(10, 4)
LABELS = torch.arange(10) % 3
LOADER = [(INPUTS[:7], LABELS[:7]), (INPUTS[7:], LABELS[7:])]


def interpolated(first, second, share):
    one, other = first.tensors(), second.tensors()
    return {name: (1 - share) * one[name] + share * other[name] for name in one}


def test_weights_are_interpolated():
    first, second = in_memory(linear, 2)
    model = linear()
    before = copy.deepcopy(model.state_dict())
    between = draws_between(model, first, second, points=5)
    assert [draw.step for draw in between] == [0, 1, 2, 3, 4]
    for share, draw in zip([0, 0.25, 0.5, 0.75, 1], between, strict=True):
        assert_close(draw.tensors(), interpolated(first, second, share), rtol=1e-12, atol=1e-12)
    assert_close(model.state_dict(), before, rtol=0, atol=0)


def test_ends_of_the_line_are_the_draws():
    draws = in_memory(mlp, 2)
    between = draws_between(mlp(), draws[0], draws[1], points=2)
    for found, draw in zip(between, draws, strict=True):
        assert_close(found.tensors(), draw.tensors(), rtol=0, atol=0)


@pytest.mark.parametrize("likelihood", ["categorical", "bernoulli"])
def test_errors_by_draw(likelihood):
    draws = in_memory(linear, 4)
    yes = (random(10, 3, seed=4) > 0).double()
    labels = LABELS if likelihood == "categorical" else yes
    loader = [(INPUTS[:7], labels[:7]), (INPUTS[7:], labels[7:])]
    found = errors_by_draw(Posterior(linear(), draws, likelihood=likelihood), iter(loader))
    for error, logits in zip(found, outputs_of(linear(), draws, INPUTS), strict=True):
        classes = logits.argmax(1) if likelihood == "categorical" else (logits > 0).double()
        assert error == pytest.approx((classes != labels).double().mean().item())
    assert len(set(found)) > 1


def test_batch_normalisation_needs_one_way_to_its_statistics():
    draws = in_memory(conv_net, 2)
    for options in ({}, {"refresh": [], "interpolate_statistics": True}):
        with pytest.raises(ValueError, match="refresh="):
            draws_between(conv_net(), draws[0], draws[1], **options)


def test_statistics_are_interpolated_on_the_literal_line():
    draws = MemoryDraws()
    for step in range(2):
        model = randomised(conv_net(), seed=10 + step)
        estimate_statistics(model, [random(6, 1, 3, 3, seed=20 + step, dtype=torch.float32)])
        draws.append(model, step=step)
    first, second = draws
    between = draws_between(conv_net(), first, second, points=3, interpolate_statistics=True)
    running = [name for name in first.tensors() if "running" in name]
    assert any(not torch.equal(first.tensors()[name], second.tensors()[name]) for name in running)
    for share, draw in zip([0, 0.5, 1], between, strict=True):
        expected = interpolated(first, second, share)
        for name in running:
            assert_close(draw.tensors()[name], expected[name])


def test_statistics_are_re_estimated_at_every_point():
    first, second = in_memory(conv_net, 2)
    train = [random(6, 1, 3, 3, seed=5, dtype=torch.float32) for _ in range(2)]
    between = draws_between(conv_net(), first, second, points=3, refresh=train)
    model = conv_net()
    for share, draw in zip([0, 0.5, 1], between, strict=True):
        model.load_state_dict(interpolated(first, second, share))
        estimate_statistics(model, train)
        assert_close(draw.tensors(), model.state_dict())


class Counting(nn.Module):
    """Has an integer buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(4, 3, dtype=torch.float64))
        self.register_buffer("power", torch.tensor(3))


def test_integers_are_those_of_the_first_draw():
    draws = MemoryDraws()
    for step in range(2):
        draws.append(randomised(Counting(), seed=10 + step), step=step)
    between = draws_between(Counting(), draws[0], draws[1], points=3)
    assert [int(draw.tensors()["power"]) for draw in between] == [10, 10, 10]


def test_a_line_has_two_ends():
    first, second = in_memory(linear, 2)
    with pytest.raises(ValueError, match="points must be at least 2"):
        draws_between(linear(), first, second, points=1)


def test_draws_in_a_narrow_dtype_are_interpolated_in_the_dtype_of_the_model(tmp_path):
    store = DrawStore(tmp_path, dtype=torch.bfloat16)
    fill(store, linear, 2)
    between = draws_between(linear(), store[0], store[1], points=4)
    one, other = (draw.tensors()["weight"].double() for draw in store)
    assert_close(between[1].tensors()["weight"], one * 2 / 3 + other / 3, rtol=1e-9, atol=1e-12)


def test_rows_of_the_matrix_are_the_trainable_parameters():
    draws = in_memory(conv_net, 3)
    model: Any = conv_net()
    model[4].bias.requires_grad_(False)
    matrix = weight_matrix(model, draws)
    for row, draw in zip(matrix, draws, strict=True):
        draw.load_into(model)
        trained = [param for param in model.parameters() if param.requires_grad]
        np.testing.assert_array_equal(row, nn.utils.parameters_to_vector(trained).detach().numpy())
    assert matrix.dtype == np.float32


def test_tied_weights_are_one_column_each(tmp_path):
    store = DrawStore(tmp_path, dtype=torch.bfloat16)
    fill(store, Tied, 2)
    matrix = weight_matrix(Tied(), store)
    assert matrix.shape == (2, 16 + 4 + 4)
    flat = store[1].tensors()["first.weight"].float().reshape(-1)
    np.testing.assert_array_equal(matrix[1, :16], flat.numpy())


def test_a_matrix_of_some_draws():
    draws = in_memory(mlp, 4)
    np.testing.assert_array_equal(
        weight_matrix(mlp(), draws[1:3]), weight_matrix(mlp(), draws)[1:3]
    )
