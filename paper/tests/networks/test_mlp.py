import pytest
import torch
from torch import nn

from paper.networks import mlp


def test_sizes_and_layers():
    model = mlp(784, 400, 400, 10)
    assert sum(param.numel() for param in model.parameters()) == 478_410
    assert model(torch.zeros(3, 1, 28, 28)).shape == (3, 10)
    assert [type(layer) for layer in mlp(4, 3)] == [nn.Flatten, nn.Linear]
    assert (mlp(2, 5, 1)[2](torch.tensor([-1.0])) == 0).all()


def test_one_size_is_not_enough():
    with pytest.raises(ValueError, match="number of sizes must be at least 2"):
        mlp(3)
