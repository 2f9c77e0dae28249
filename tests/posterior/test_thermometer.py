"""Temperatures and noise of a chain whose law is known exactly."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from csgmcmc import PSGLD, SGHMC, SGLD, Chain, Constant, Cyclical, Posterior, stack
from csgmcmc.posterior.thermometer import kinetic_temperatures, parameter_reports

SIZE = 200
NUM_DATA = 50


class Means(nn.Module):
    """Unknown means, in two parameters, of data with noise of variance 1: a Gaussian posterior."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.zeros(SIZE))
        self.second = nn.Parameter(torch.zeros(SIZE))

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.cat([self.first, self.second]).expand(len(inputs), -1)


def half_square(outputs: Tensor, targets: Tensor) -> Tensor:
    return (targets - outputs).square().sum(1).mean() / 2


def make_loader(batch_size: int) -> DataLoader:
    generator = torch.Generator().manual_seed(0)
    targets = torch.randn(NUM_DATA, 2 * SIZE, generator=generator)
    targets -= targets.mean(0)  # so that the posterior's mean is 0
    order = torch.Generator().manual_seed(1)
    return DataLoader(
        TensorDataset(torch.zeros(NUM_DATA, 1), targets), batch_size, shuffle=True, generator=order
    )


def run(sampler_type, batch_size=NUM_DATA // 2, steps=3000, **options):
    model = Means()
    defaults = {"lr": 0.05, "num_data": NUM_DATA, "seed": 0}
    sampler = sampler_type(model.parameters(), **{**defaults, **options})
    schedule = Constant(steps, every=steps // 12, burn_in=steps // 12)
    loader = make_loader(batch_size)
    chain = Chain(model, half_square, loader, sampler, schedule, progress=False)
    return chain, chain.run()


@pytest.mark.parametrize("sampler_type", [SGLD, SGHMC])
def test_temperatures_of_a_chain_are_those_asked_for_plus_the_minibatch_noise(sampler_type):
    chain, draws = run(sampler_type, temperature=2.0)
    reports = parameter_reports(chain.model, list(draws), chain)
    assert reports.keys() == {"first", "second"}
    for report in reports.values():
        assert report.size == SIZE
        # Half batches of 50 without replacement: the variance of their means over passes is
        # (1 / 25) * (1 - 25 / 50) / (1 - 1 / 50), that of two halves of one pass sums to twice it.
        assert report.noise.minibatch / 0.05**2 == pytest.approx(0.04, rel=0.5)
        friction = 0.1 if sampler_type is SGHMC else 1.0
        assert report.noise.injected == pytest.approx(2 * friction * 0.05 * 2.0 / NUM_DATA)
        assert report.temperature is not None
        # A curvature of 1: T * 2 (1 + m) / (2 (1 + m) - lr), 1% above T, and the minibatches' part.
        assert report.temperature.low < 2.0 * 1.1
        assert report.temperature.high > 2.0 * 0.9
        assert report.temperature.high - report.temperature.low < 1.0
        assert report.temperature.target == pytest.approx(2.0, rel=0.05)


def test_a_chain_that_is_hotter_than_it_says_is_found_out():
    chain, draws = run(SGLD, temperature=3.0)
    for group in chain.sampler.param_groups:
        group["initial_temperature"] = 1.0
    for report in parameter_reports(chain.model, list(draws), chain).values():
        assert report.temperature is not None
        assert report.temperature.verdict == "too hot"
        assert report.temperature.value == pytest.approx(3.0, rel=0.2)


def test_kinetic_temperatures_while_it_runs():
    found = []
    model = Means()
    sampler = SGHMC(
        model.parameters(), 0.001, num_data=NUM_DATA, momentum=0.9, temperature=2.0, seed=0
    )
    Chain(
        model,
        half_square,
        make_loader(NUM_DATA),
        sampler,
        Constant(2000, every=400, burn_in=400),
        on_draw=lambda _: found.append(kinetic_temperatures(model, sampler)),
        progress=False,
    ).run()
    values = [one[name].value for one in found for name in ("first", "second")]
    assert len(values) == 8
    # Chi-square of 200 weights each: a standard error of 2.5% of the mean, 4.5 of them.
    assert np.mean(values) == pytest.approx(2.0, rel=4.5 * (2 / (8 * SIZE)) ** 0.5)
    with pytest.raises(ValueError, match="velocities are those of SGHMC, got SGLD"):
        kinetic_temperatures(model, SGLD(model.parameters(), 0.1, num_data=1))  # pyright: ignore[reportArgumentType]


def test_cold_draws_of_a_short_sampling_stage_are_too_cold():
    model = Means()
    sampler = SGLD(model.parameters(), 0.01, num_data=NUM_DATA, temperature=1.0, seed=0)
    schedule = Cyclical(400, cycles=4, exploration=0.95, samples_per_cycle=3)
    chain = Chain(model, half_square, make_loader(25), sampler, schedule, progress=False)
    reports = parameter_reports(model, list(chain.run()), chain)
    verdicts = {report.temperature.verdict for report in reports.values() if report.temperature}
    assert verdicts == {"too cold"}


def test_priors_accumulation_stacks_and_other_samplers():
    whole, draws = run(SGLD, weight_decay=1.0, temperature=2.0)
    for report in parameter_reports(whole.model, list(draws), whole).values():
        assert report.temperature is not None  # without the prior's gradient it would be half
        assert report.temperature.value == pytest.approx(2.0, rel=0.25)
    prior = torch.distributions.Normal(0.0, (1 / NUM_DATA) ** 0.5)
    same, draws = run(SGLD, prior=prior, temperature=2.0)
    for report in parameter_reports(same.model, list(draws), same).values():
        assert report.temperature is not None
        assert report.temperature.value == pytest.approx(2.0, rel=0.25)

    def noise_of(model, **options):
        sampler = SGLD(model.parameters(), 0.05, num_data=NUM_DATA, seed=0)
        schedule = Constant(20, every=5)
        chain = Chain(
            model, half_square, make_loader(10), sampler, schedule, progress=False, **options
        )
        reports = parameter_reports(Means(), list(chain.run()), chain)
        assert reports.keys() == {"first", "second"}
        return reports["first"].noise

    single = noise_of(Means())
    halved = noise_of(Means(), accumulate=2)
    assert halved.minibatch == pytest.approx(single.minibatch / 2, rel=0.05)
    shared, dealt = stack(Means, chains=2), stack(Means, chains=2, separate_batches=True)
    assert noise_of(shared).injected == pytest.approx(single.injected)
    assert noise_of(shared).minibatch == pytest.approx(single.minibatch, rel=0.05)
    assert noise_of(dealt).minibatch == pytest.approx(2 * single.minibatch, rel=0.05)

    other, draws = run(PSGLD, lr=0.001, steps=120)
    assert parameter_reports(other.model, list(draws), other)["first"].noise.injected > 0


def test_what_cannot_be_measured_is_said():
    model = Means()
    chain = Chain(
        model,
        half_square,
        make_loader(10),
        torch.optim.SGD(model.parameters(), 0.1),
        Constant(4, every=2),
        progress=False,
    )
    with pytest.raises(ValueError, match="SGD injects no noise"):
        parameter_reports(model, list(chain.run()), chain)


def test_measuring_changes_neither_the_model_nor_the_random_state():
    chain, draws = run(SGLD, steps=24)
    before = [param.clone() for param in chain.model.parameters()]
    state = torch.random.get_rng_state()
    parameter_reports(chain.model, list(draws), chain)
    assert torch.equal(state, torch.random.get_rng_state())
    pairs = zip(before, chain.model.parameters(), strict=True)
    assert all(torch.equal(*pair) for pair in pairs)
    assert all(param.requires_grad for param in chain.model.parameters())
    assert Posterior(chain.model, draws, likelihood="gaussian")  # and it may still be used
