"""The fast way to run densities, compared with `Chain` and the exact stationary distribution."""

import pytest
import torch

from csgmcmc import SGHMC, SGLD, SGNHT, Chain, Constant, Cyclical, Keep
from csgmcmc.noise import Noise
from paper.density import run_density
from paper.targets import Density, GaussianTarget, LogisticRegression, Mixture25
from tests.support import HESSIAN, MODE, SIGMAS

SCHEDULE = Cyclical(100, cycles=2, exploration=0.3, keep=Keep(every=3))


def starts(chains=8):
    return 4 * torch.randn(chains, 2, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("sampler_type", [SGLD, SGHMC])
@pytest.mark.parametrize(
    ("compiled", "chains"),
    [(False, 8), (False, 1024), pytest.param(True, 8, marks=pytest.mark.slow)],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's own compiler
def test_it_takes_the_steps_of_a_chain_with_the_same_noise(sampler_type, compiled, chains):
    """Of 8 chains the noise of all steps is drawn at once, of 1024 that of 32 steps."""
    model = Density(Mixture25(), starts(chains))
    sampler = sampler_type(model.parameters(), 0.01, num_data=1, seed=5)
    slow = Chain(model, None, None, sampler, SCHEDULE, progress=False).run()
    points = starts(chains)
    fast_sampler = sampler_type([points], 0.01, num_data=1, seed=5)
    fast = run_density(Mixture25(), fast_sampler, SCHEDULE, compile=compiled)
    assert fast.shape == (len(slow), chains, 2)
    expected = torch.stack([draw.tensors()["points"] for draw in slow])
    # Rounding grows along a path, the more so past the limit of stability: here it does not.
    torch.testing.assert_close(fast, expected, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(points, model.points.detach(), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("sampler_type", [SGLD, SGHMC])
def test_its_law_is_that_of_the_discrete_update(sampler_type):
    target = GaussianTarget(MODE, torch.linalg.inv(HESSIAN))
    chains, lr = 4000, 0.2
    points = target.sample(chains, torch.Generator().manual_seed(2))
    sampler = sampler_type([points], lr, num_data=1, seed=0)
    run_density(target, sampler, Constant(200, keep=Keep(every=200)))
    curvatures, vectors = torch.linalg.eigh(HESSIAN)
    along = (points - MODE) @ vectors
    for index, curvature in enumerate(curvatures.tolist()):
        exact = sampler_type.stationary_variance(curvature, lr=lr, num_data=1)
        found = along[:, index].var().item()
        assert abs(found / exact - 1) < SIGMAS * (2 / chains) ** 0.5


def test_minibatches_of_a_logistic_regression():
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(200, 3, generator=generator)
    labels = (features[:, 0] + torch.randn(200, generator=generator) > 0).float()
    target = LogisticRegression(features, labels)
    options = {"num_data": 200, "weight_decay": target.weight_decay, "seed": 0}
    schedule = Constant(3000, keep=Keep(every=5), burn_in=500)
    draws = {}
    for batch_size in (200, 20):
        sampler = SGLD([torch.zeros(64, 3)], 0.05, **options)
        draws[batch_size] = run_density(target, sampler, schedule, batch_size=batch_size)
    sampler = SGLD([torch.zeros(64, 3)], 0.05 / 200, num_data=1, seed=7)
    reference = run_density(target, sampler, schedule)
    for found in draws.values():
        assert (found.mean((0, 1)) - reference.mean((0, 1))).abs().max() < 0.05
    # Smaller batches, drawn with replacement, are noisier, and the draws more spread.
    assert (draws[20].var((0, 1)) / draws[200].var((0, 1))).mean() > 1.03


def test_a_run_in_two_parts_goes_on_with_velocity_and_noise():
    whole, parts = starts(), starts()
    sampler = SGHMC([whole], 0.01, num_data=1, seed=3)
    run_density(Mixture25(), sampler, Constant(64, keep=Keep(every=64)))
    sampler = SGHMC([parts], 0.01, num_data=1, seed=3)
    for _ in range(2):
        run_density(Mixture25(), sampler, Constant(32, keep=Keep(every=32)))
    torch.testing.assert_close(parts, whole)


def test_no_noise_is_drawn_at_temperature_zero(monkeypatch):
    points = starts()
    sampler = SGLD([points], 0.01, num_data=1, temperature=0.0, seed=0)
    monkeypatch.delattr(Noise, "ahead")
    draws = run_density(Mixture25(), sampler, Constant(20, keep=Keep(every=1)))
    assert sampler.noise.step == 20
    reference = torch.nn.Parameter(starts())
    torch_sgd = torch.optim.SGD([reference], 0.01)
    for _ in range(20):
        reference.grad = Mixture25().gradient(reference.detach())
        torch_sgd.step()
    torch.testing.assert_close(draws[-1], reference.detach())


def test_what_it_cannot_do_is_refused():
    target, schedule = Mixture25(), Constant(4, keep=Keep(every=1))
    logistic = LogisticRegression(torch.ones(5, 2), torch.ones(5))
    with pytest.raises(ValueError, match="got SGNHT: use Chain"):
        run_density(target, SGNHT([starts()], 0.1, num_data=1), schedule)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match=r"shape \(chains, dimension\)"):
        run_density(target, SGLD([torch.zeros(2)], 0.1, num_data=1), schedule)
    with pytest.raises(ValueError, match="weight_decay must be 0"):
        run_density(target, SGLD([starts()], 0.1, num_data=1, weight_decay=0.1), schedule)
    with pytest.raises(ValueError, match="Mixture25 has no data"):
        run_density(target, SGLD([starts()], 0.1, num_data=1), schedule, batch_size=2)
    with pytest.raises(ValueError, match=r"num_data=5 and weight_decay=0\.2"):
        run_density(logistic, SGLD([starts()], 0.1, num_data=1), schedule, batch_size=2)
    with pytest.raises(ValueError, match="no longer finite at step 31: lower lr"):
        wide = GaussianTarget(torch.zeros(2), torch.eye(2))
        run_density(wide, SGLD([starts()], 1e6, num_data=1), Constant(40, keep=Keep(every=40)))
