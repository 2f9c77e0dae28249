"""PSGLD with a preconditioner that is fixed while sampling."""

from typing import Any

import torch

from paper.psgld import PSGLD
from tests.support import HESSIAN, MODE, assert_moments


def test_at_temperature_0_it_is_rmsprop():
    ours, theirs = (torch.nn.Parameter(torch.tensor([1.0, -2.0])) for _ in range(2))
    settings: Any = {"alpha": 0.9, "eps": 0.1, "weight_decay": 0.2}
    optimizers = (
        PSGLD([ours], 0.1, num_data=4, temperature=0, **settings),
        torch.optim.RMSprop([theirs], 0.1, **settings),
    )
    for _ in range(20):
        for param, optimizer in zip((ours, theirs), optimizers, strict=True):
            param.grad = param.detach().sin()
            optimizer.step()
    torch.testing.assert_close(ours, theirs)


def test_the_stationary_covariance_with_a_fixed_preconditioner():
    """It solves a Lyapunov equation."""
    lr, num_data, eps = 0.1, 4.0, 0.1
    points = MODE + torch.zeros(20_000, 2, dtype=torch.float64)
    chain = PSGLD([points], lr, num_data=num_data, temperature=0, eps=eps, alpha=0.9, seed=4)
    learned = torch.tensor([0.7, 1.6], dtype=torch.float64)
    for _ in range(300):  # exploration: the average settles at the squared gradient
        points.grad = learned.expand_as(points).clone()
        chain.step()
    frozen = chain.state[points]["square_average"].clone()
    torch.testing.assert_close(frozen[0], learned.square())
    points.copy_(MODE.expand_as(points))
    chain.param_groups[0]["temperature"] = 1.0
    for _ in range(600):
        points.grad = (points - MODE) @ HESSIAN
        chain.step()
    assert torch.equal(chain.state[points]["square_average"], frozen)
    preconditioner = 1 / (learned + eps)
    contraction = torch.eye(2, dtype=torch.float64) - lr * preconditioner.diag() @ HESSIAN
    added = (2 * lr / num_data * preconditioner).diag()
    covariance = added.clone()
    for _ in range(2000):
        covariance = contraction @ covariance @ contraction.T + added
    assert_moments(points, covariance)
