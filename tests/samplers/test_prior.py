import pytest
import torch
from torch.distributions import Independent, Laplace, Normal

from csgmcmc import SGHMC, SGLD
from tests.support import make, same_bits, small_model, train


def by_autograd(param):
    point = param.clone().requires_grad_()
    return torch.autograd.grad(point.square().sum() / 8, point)[0]


@pytest.mark.parametrize(
    "prior",
    [lambda param: param / 4, by_autograd, Normal(0.0, 2.0)],
    ids=["gradient", "own autograd", "distribution"],
)
def test_gaussian_prior_is_weight_decay(prior):
    """Precision 1/4 is N * weight_decay with N = 10."""
    by_prior, by_decay = small_model(torch.float64), small_model(torch.float64)
    train(by_prior, make(SGHMC, by_prior.parameters(), prior=prior), steps=10)
    train(by_decay, make(SGHMC, by_decay.parameters(), weight_decay=0.025), steps=10)
    for one, other in zip(by_prior.parameters(), by_decay.parameters(), strict=True):
        torch.testing.assert_close(one, other)


def test_priors_differ_by_group():
    flat, laplace = torch.full((3,), 2.0), torch.full((3,), 2.0)
    chain = make(
        SGLD, [{"params": [flat]}, {"params": [laplace], "prior": Laplace(0.0, 0.5)}], temperature=0
    )
    flat.grad, laplace.grad = torch.zeros(3), torch.zeros(3)
    chain.step()
    assert (flat == 2).all()
    # The gradient of |x| / 0.5 is 2, over N = 10, times lr 0.1.
    torch.testing.assert_close(laplace, torch.full((3,), 2 - 0.1 * 2 / 10))


def test_distribution_over_whole_parameters():
    row = torch.ones(2, 3)
    prior = Independent(Normal(torch.zeros(3), torch.tensor([1.0, 2.0, 4.0])), 1)
    chain = make(SGLD, [row], prior=prior, temperature=0, lr=1.0, num_data=1.0)
    row.grad = torch.zeros(2, 3)
    chain.step()
    torch.testing.assert_close(row, 1 - torch.tensor([[1.0, 0.25, 0.0625]]).expand(2, 3))


def test_prior_is_code_and_stays_when_a_state_is_loaded():
    def prior(param):
        return param

    model, other = small_model(), small_model()
    chain = make(SGHMC, model.parameters(), prior=prior)
    train(model, chain, steps=3)
    state = chain.state_dict()
    assert all("prior" not in group for group in state["param_groups"])
    assert chain.param_groups[0]["prior"] is prior
    loaded = make(SGHMC, other.parameters(), prior=prior)
    other.load_state_dict(model.state_dict())
    loaded.load_state_dict(state)
    train(model, chain, steps=3, first=3)
    train(other, loaded, steps=3, first=3)
    assert same_bits(model, other)


def test_two_priors_raise():
    with pytest.raises(ValueError, match=r"weight_decay is a prior too.*0\.1"):
        make(SGLD, [torch.zeros(1)], prior=Normal(0.0, 1.0), weight_decay=0.1)


def test_a_gradient_of_the_wrong_shape_raises():
    param = torch.zeros(2, 3)
    param.grad = torch.zeros(2, 3)
    with pytest.raises(ValueError, match=r"prior must return .*shape \(2, 3\)"):
        make(SGLD, [param], prior=lambda p: p[0]).step()
