import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy
from torch.testing import assert_close

from csgmcmc import DrawStore, MemoryDraws, Posterior, refresh_batchnorm
from csgmcmc.posterior import Gaussian, weight_matrix, weight_path
from tests.posterior.support import (
    Tied,
    conv_net,
    fill,
    in_memory,
    mlp,
    outputs_of,
    random,
    randomise,
)


def linear() -> nn.Module:
    return nn.Linear(4, 3).double()


INPUTS = random(10, 4)
LABELS = torch.arange(10) % 3
LOADER = [(INPUTS[:7], LABELS[:7]), (INPUTS[7:], LABELS[7:])]


def posterior_of(model, **options):
    """Whose own draws do not matter."""
    draws = MemoryDraws()
    draws.append(model, step=0)
    return Posterior(model, draws, **options)


def error_of(logits, labels):
    return (logits.argmax(1) != labels).double().mean().item()


def test_models_on_the_path():
    """Logits of a linear model are linear in its weights."""
    first, second = in_memory(linear, 2)
    model = linear()
    before = copy.deepcopy(model.state_dict())
    path = weight_path(posterior_of(model), first, second, LOADER, points=5)
    np.testing.assert_array_equal(path.shares, [0, 0.25, 0.5, 0.75, 1])
    ends = outputs_of(model, [first, second], INPUTS)
    assert path.error is not None
    for share, nll, error in zip(path.shares, path.nll, path.error, strict=True):
        logits = (1 - share) * ends[0] + share * ends[1]
        assert nll == pytest.approx(cross_entropy(logits, LABELS).item(), rel=1e-12)
        assert error == pytest.approx(error_of(logits, LABELS))
    assert len(set(path.error)) > 1
    assert_close(model.state_dict(), before, rtol=0, atol=0)


def test_the_ends_are_the_draws():
    draws = in_memory(mlp, 2)
    inputs = random(10, 4, dtype=torch.float32)
    path = weight_path(posterior_of(mlp()), draws[0], draws[1], [(inputs, LABELS)], points=2)
    assert path.error is not None
    for number, logits in enumerate(outputs_of(mlp(), draws, inputs)):
        exact = cross_entropy(logits.double(), LABELS).item()
        assert path.nll[number] == pytest.approx(exact, rel=1e-5)
        assert path.error[number] == pytest.approx(error_of(logits, LABELS))


def test_batch_normalisation_needs_one_way_to_its_statistics():
    draws = in_memory(conv_net, 2)
    both = r"give training data as refresh= .* or interpolate_statistics=True"
    with pytest.raises(ValueError, match=both):
        weight_path(posterior_of(conv_net()), draws[0], draws[1], [])
    with pytest.raises(ValueError, match="not both"):
        weight_path(
            posterior_of(conv_net()),
            draws[0],
            draws[1],
            [],
            refresh=[],
            interpolate_statistics=True,
        )


def test_statistics_are_interpolated_on_the_literal_line():
    draws = MemoryDraws()
    for step in range(2):
        model = randomise(conv_net(), seed=10 + step)
        refresh_batchnorm(model, [random(6, 1, 3, 3, seed=20 + step, dtype=torch.float32)])
        draws.append(model, step=step)
    inputs = random(10, 1, 3, 3, dtype=torch.float32)
    path = weight_path(
        posterior_of(conv_net()),
        draws[0],
        draws[1],
        [(inputs, LABELS)],
        points=3,
        interpolate_statistics=True,
    )
    one, other = (draw.tensors() for draw in draws)
    running = [name for name in one if "running" in name]
    assert any(not torch.equal(one[name], other[name]) for name in running)
    model = conv_net()
    for nll, share in zip(path.nll, path.shares, strict=True):
        model.load_state_dict({name: (1 - share) * one[name] + share * other[name] for name in one})
        logits = model.eval()(inputs).detach()
        assert nll == pytest.approx(cross_entropy(logits, LABELS).item(), rel=1e-4)


def test_statistics_are_made_anew_at_every_point():
    first, second = in_memory(conv_net, 2)
    inputs = random(10, 1, 3, 3, dtype=torch.float32)
    train = [random(6, 1, 3, 3, seed=5, dtype=torch.float32) for _ in range(2)]
    path = weight_path(
        posterior_of(conv_net()), first, second, [(inputs, LABELS)], points=3, refresh=train
    )
    model = conv_net()
    one, other = first.tensors(), second.tensors()
    for nll, share in zip(path.nll, path.shares, strict=True):
        state = {name: (1 - share) * one[name] + share * other[name] for name in one}
        model.load_state_dict(state)
        refresh_batchnorm(model, train)
        logits = model.eval()(inputs).detach()
        assert nll == pytest.approx(cross_entropy(logits, LABELS).item(), rel=1e-4)


class Steps(nn.Module):
    """A whole number, as a counter has, that the outputs depend on."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(4, 3, dtype=torch.float64))
        self.register_buffer("power", torch.tensor(3))

    def forward(self, inputs):
        return inputs @ self.weight + self.power


def test_whole_numbers_are_those_of_the_first():
    draws = MemoryDraws()
    for step in range(2):
        draws.append(randomise(Steps(), seed=10 + step), step=step)
    loader = [(INPUTS, torch.zeros(10, 3, dtype=torch.float64))]
    path = weight_path(
        posterior_of(Steps(), likelihood="bernoulli"), draws[0], draws[1], loader, points=3
    )
    weights = [draw.tensors()["weight"] for draw in draws]
    logits = INPUTS @ (weights[0] + weights[1]) / 2 + 10
    exact = binary_cross_entropy_with_logits(logits, torch.zeros_like(logits))
    assert path.nll[1] == pytest.approx(exact.item(), rel=1e-12)


def test_regression_has_no_error_rate():
    first, second = in_memory(linear, 2)
    targets = random(10, 3, seed=4)
    path = weight_path(
        posterior_of(linear(), likelihood=Gaussian(0.5)),
        first,
        second,
        [(INPUTS, targets)],
        points=3,
    )
    assert path.error is None
    middle = outputs_of(linear(), [first, second], INPUTS).mean(0)
    constant = np.log(2 * np.pi * 0.5) / 2
    assert path.nll[1] == pytest.approx(float((middle - targets).square().mean()) + constant)


def test_labels_that_are_wrong_are_counted_for_yes_and_no():
    first, second = in_memory(linear, 2)
    yes = (random(10, 3, seed=4) > 0).double()
    path = weight_path(
        posterior_of(linear(), likelihood="bernoulli"), first, second, [(INPUTS, yes)], points=2
    )
    assert path.error is not None
    for found, logits in zip(
        path.error, outputs_of(linear(), [first, second], INPUTS), strict=True
    ):
        assert found == pytest.approx(((logits > 0) != (yes > 0.5)).double().mean().item())


def test_a_path_has_two_ends():
    first, second = in_memory(linear, 2)
    with pytest.raises(ValueError, match="points must be at least 2"):
        weight_path(posterior_of(linear()), first, second, LOADER, points=1)


def test_the_data_of_a_path_may_be_a_generator():
    first, second = in_memory(linear, 2)
    path = weight_path(posterior_of(linear()), first, second, iter(LOADER), points=2)
    assert path.nll.shape == (2,)


def test_draws_in_a_narrow_dtype_are_mixed_in_the_dtype_of_the_model(tmp_path):
    store = DrawStore(tmp_path, dtype=torch.bfloat16)
    fill(store, linear, 2)
    path = weight_path(posterior_of(linear()), store[0], store[1], LOADER, points=4)
    ends = outputs_of(linear(), store, INPUTS)
    exact = cross_entropy(ends[0] * 2 / 3 + ends[1] / 3, LABELS).item()
    assert path.nll[1] == pytest.approx(exact, rel=1e-9)


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
