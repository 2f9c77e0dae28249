"""Networks and data that are the same on every device, and how equal results must be."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from csgmcmc import SGHMC, Chain, Cyclical, Draw

STEPS = 24
SCHEDULE = Cyclical(STEPS, cycles=2, exploration=0.5, draws_per_cycle=3)
OPTIONS: dict[str, Any] = {"lr": 0.1, "num_data": 40, "momentum": 0.8, "seed": 3}


def network(dropout: float = 0.0) -> nn.Sequential:
    """A perceptron with batch normalisation, with the same weights every time."""
    layers = nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(dropout), nn.Linear(8, 3)
    model = nn.Sequential(*layers).cpu()
    generator = torch.Generator().manual_seed(5)
    for param in model.parameters():
        nn.init.normal_(param, std=0.5, generator=generator)
    return model


def points(count: int = 40) -> TensorDataset:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(count, 6, generator=generator, device="cpu")
    return TensorDataset(inputs, (inputs[:, 0] > 0).long() + (inputs[:, 1] > 0).long())


def loader(seed: int = 1) -> DataLoader:
    """Batches on the CPU, in an order of `seed`."""
    generator = torch.Generator().manual_seed(seed)
    return DataLoader(points(), batch_size=8, shuffle=True, generator=generator)


def make_chain(model: nn.Module, draws: Any = None, data: Any = None, **options: Any) -> Chain:
    """The same run every time, on the device of the model.

    Its updates are not fused: the kernels of one device round otherwise than another's operators.
    """
    sampler = SGHMC(model.parameters(), **OPTIONS, fused=False)
    options = {"progress": False, "checkpoint_every": 5, **options}
    return Chain(
        model, nn.functional.cross_entropy, data or loader(), sampler, SCHEDULE, draws, **options
    )


def assert_equal(found: Any, expected: Any, device: torch.device) -> None:
    """Equal to the bit on the CPU and the simulated device, and to rounding on others."""
    if isinstance(expected, Mapping):
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            assert_equal(found[name], value, device)
    elif isinstance(expected, Sequence) and not isinstance(expected, str):
        for one, other in zip(found, expected, strict=True):
            assert_equal(one, other, device)
    elif isinstance(expected, Tensor):
        exact = device.type in ("cpu", "sim")
        rtol, atol = (0, 0) if exact else (1e-3, 1e-4)
        pair = found.cpu(), expected.cpu()
        torch.testing.assert_close(*pair, rtol=rtol, atol=atol, equal_nan=True)
    else:
        assert found == expected


def assert_same_draws(
    found: Sequence[Draw], expected: Sequence[Draw], device: torch.device
) -> None:
    assert [draw.step for draw in found] == [draw.step for draw in expected]
    assert len(expected) > 0
    for one, other in zip(found, expected, strict=True):
        assert_equal(one.tensors(), other.tensors(), device)
