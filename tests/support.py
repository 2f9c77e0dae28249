"""Shared by several test files."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from csgmcmc import Sampler

# A statistic of independent chains fails if it is further than this many standard errors from the
# exact value: a false alarm has probability 1 in 150,000.
SIGMAS = 4.5

# The Hessian of the mean loss in tests of stationary distributions: two correlated directions.
HESSIAN = torch.tensor([[2.0, 0.6], [0.6, 1.0]], dtype=torch.float64)
MODE = torch.tensor([1.0, -2.0], dtype=torch.float64)

# Options without a default.
REQUIRED = {"lr": 0.1, "num_data": 10.0}


def make(sampler: type[Sampler], params: Any, **options: Any) -> Any:
    """A sampler with its defaults, the required options, and `options`."""
    return sampler(params, **{**REQUIRED, "seed": 1, **options})  # pyright: ignore[reportCallIssue]


def eigen_covariance(variance_along: Callable[[float], float]) -> Tensor:
    """The covariance that has `variance_along(curvature)` along each eigenvector of HESSIAN."""
    curvatures, vectors = torch.linalg.eigh(HESSIAN)
    variances = torch.tensor([variance_along(float(c)) for c in curvatures], dtype=torch.float64)
    return vectors @ variances.diag() @ vectors.T


def run_on_quadratic(
    sampler: type[Sampler],
    *,
    steps: int,
    chains: int,
    minibatch_variance: float = 0.0,
    **options: Any,
) -> Tensor:
    """Last points of independent chains on the mean loss (x - MODE)' HESSIAN (x - MODE) / 2.

    They start from the exact posterior, so that burn-in only has to reach the stationary
    distribution of the discrete update from there. A step at temperature 0 without gradient, which
    moves nothing, comes first: all chains then have the same preconditioner. `minibatch_variance`
    is the variance of noise that is added to the gradients.
    """
    options = {**REQUIRED, **options}
    scale = options.get("temperature", 1.0) / options["num_data"]
    factor = torch.linalg.cholesky(scale * torch.linalg.inv(HESSIAN))
    start = torch.Generator().manual_seed(11)
    points = MODE + torch.randn(chains, 2, generator=start, dtype=MODE.dtype) @ factor.T
    chain = make(sampler, [points], **options)
    take_cold_step(chain)
    minibatch = torch.Generator().manual_seed(12)
    for _ in range(steps):
        points.grad = (points - MODE) @ HESSIAN
        if minibatch_variance > 0:
            noise = torch.randn(points.shape, generator=minibatch, dtype=points.dtype)
            points.grad += minibatch_variance**0.5 * noise
        chain.step()
    return points


def take_cold_step(chain: Sampler) -> None:
    """A step at temperature 0 without gradient."""
    (group,) = chain.param_groups
    (param,) = group["params"]
    temperature, group["temperature"] = group["temperature"], 0.0
    param.grad = torch.zeros_like(param)
    weight_decay, group["weight_decay"] = group["weight_decay"], 0.0
    chain.step()
    group["temperature"], group["weight_decay"] = temperature, weight_decay


def assert_moments(points: Tensor, covariance: Tensor, tolerance: float = 0.0) -> None:
    """Mean and covariance of independent `points` are MODE and `covariance`.

    Within SIGMAS standard errors, plus a relative error of `tolerance` of the covariance.
    """
    variances = covariance.diagonal()
    scale = (variances[:, None] * variances[None, :]).sqrt()
    mean_error = (points.mean(0) - MODE).abs()
    assert (mean_error <= SIGMAS * (variances / len(points)).sqrt()).all(), mean_error
    # Standard error of a sample covariance of Gaussian points.
    standard_error = ((scale.square() + covariance.square()) / len(points)).sqrt()
    error = (torch.cov(points.T) - covariance).abs()
    assert (error <= SIGMAS * standard_error + tolerance * scale).all(), error / scale


def small_model(dtype: torch.dtype = torch.float32) -> nn.Module:
    """A network with parameters of several shapes and strides, the same every time."""
    generator = torch.Generator().manual_seed(3)
    model = nn.Sequential(
        nn.Conv2d(2, 3, 3), nn.Tanh(), nn.Flatten(), nn.Linear(12, 5), nn.Tanh(), nn.Linear(5, 3)
    )
    model.to(dtype)
    model.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
    with torch.no_grad():
        for param in model.parameters():
            param.normal_(std=0.5, generator=generator)
    return model


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int, first: int = 0) -> None:
    """Steps `first` to `first + steps` of a fixed sequence of minibatches."""
    dtype = next(model.parameters()).dtype
    for step in range(first, first + steps):
        generator = torch.Generator().manual_seed(step)
        inputs = torch.randn(8, 2, 4, 4, generator=generator, dtype=dtype)
        labels = torch.randint(3, (8,), generator=generator)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()


def same_bits(first: nn.Module, second: nn.Module) -> bool:
    pairs = zip(first.parameters(), second.parameters(), strict=True)
    return all(torch.equal(one, other) for one, other in pairs)
