"""Temperatures and noise of a chain whose stationary distribution is known exactly."""

import copy
import gc
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from csgmcmc import (
    SGHMC,
    SGLD,
    SGNHT,
    AdamSGHMC,
    Chain,
    Constant,
    Cyclical,
    Keep,
    MemoryDraws,
    Posterior,
    Tick,
    stack,
)
from csgmcmc.checks.sampling import Run
from csgmcmc.distributed import ProcessLayout
from tests.checks.support import make_run, reports
from tests.posterior.support import randomise
from tests.support import SIGMAS

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
    schedule = Constant(steps, keep=Keep(every=steps // 12), burn_in=steps // 12)
    loader = make_loader(batch_size)
    chain = Chain(model, half_square, loader, sampler, schedule, progress=False)
    return chain, chain.run()


@pytest.mark.parametrize("sampler_type", [SGLD, SGHMC])
def test_temperatures_of_a_chain(sampler_type):
    chain, draws = run(sampler_type, temperature=2.0)
    found = reports(chain.model, list(draws), chain)
    assert found.keys() == {"first", "second"}
    for report in found.values():
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


def test_a_chain_hotter_than_its_temperature_is_too_hot():
    chain, draws = run(SGLD, temperature=3.0)
    for group in chain.sampler.param_groups:
        group["initial_temperature"] = 1.0
    for report in reports(chain.model, list(draws), chain).values():
        assert report.temperature is not None
        assert report.temperature.low > report.temperature.target
        assert report.temperature.value == pytest.approx(3.0, rel=0.2)


def test_cold_draws_of_a_short_sampling_stage_are_too_cold():
    model = Means()
    sampler = SGLD(model.parameters(), 0.01, num_data=NUM_DATA, temperature=1.0, seed=0)
    schedule = Cyclical(400, cycles=4, exploration=0.95, draws_per_cycle=3)
    chain = Chain(model, half_square, make_loader(25), sampler, schedule, progress=False)
    found = reports(model, list(chain.run()), chain)
    measured = [report.temperature for report in found.values()]
    assert all(one is not None and one.high < one.target for one in measured)


def test_stacks_and_other_samplers():
    def noise_of(model):
        sampler = SGLD(model.parameters(), 0.05, num_data=NUM_DATA, seed=0)
        schedule = Constant(20, keep=Keep(every=5))
        chain = Chain(model, half_square, make_loader(10), sampler, schedule, progress=False)
        found = reports(Means(), list(chain.run()), chain)
        assert found.keys() == {"first", "second"}
        return found["first"].noise

    single = noise_of(Means())
    shared, dealt = stack(Means, chains=2), stack(Means, chains=2, separate_batches=True)
    assert noise_of(shared).injected == pytest.approx(single.injected)
    assert noise_of(shared).minibatch == pytest.approx(single.minibatch, rel=0.05)
    assert noise_of(dealt).minibatch == pytest.approx(2 * single.minibatch, rel=0.05)

    other, draws = run(SGNHT, steps=120)
    assert reports(other.model, list(draws), other)["first"].noise.injected > 0


def test_measuring_changes_neither_the_model_nor_the_random_state():
    chain, draws = run(SGLD, steps=24)
    before = [param.clone() for param in chain.model.parameters()]
    state = torch.random.get_rng_state()
    reports(chain.model, list(draws), chain)
    assert torch.equal(state, torch.random.get_rng_state())
    pairs = zip(before, chain.model.parameters(), strict=True)
    assert all(torch.equal(*pair) for pair in pairs)
    assert all(param.requires_grad for param in chain.model.parameters())
    assert Posterior(chain.model, draws, likelihood="gaussian")  # and it may still be used


# By hand: draws from the exact posterior, and what is to be measured at them.


def targets_around(centre: float, count: int = NUM_DATA) -> Tensor:
    return centre + torch.randn(count, 2 * SIZE, generator=torch.Generator().manual_seed(0))


def in_order(targets: Tensor, batch_size: int) -> DataLoader:
    return DataLoader(TensorDataset(torch.zeros(len(targets), 1), targets), batch_size)


def posterior_draws(targets: Tensor, ticks, temperature=1.0, seed=0) -> MemoryDraws:
    """Independent draws from N(mean of the targets, T / N), one for each tick."""
    generator = torch.Generator().manual_seed(seed)
    draws = MemoryDraws()
    for tick in ticks:
        noise = torch.randn(2 * SIZE, generator=generator)
        weights = targets.mean(0) + (temperature / len(targets)) ** 0.5 * noise
        draws.append(
            {"first": weights[:SIZE], "second": weights[SIZE:]},
            step=tick.step,
            cycle=tick.cycle,
            stage=tick.stage,
        )
    return draws


def ticks_of(cycles: list[int]) -> list[Tick]:
    return [Tick(step, c, "sample", 1.0, 1.0, collect=True) for step, c in enumerate(cycles)]


def run_of(data, sampler_type: type = SGLD, schedule=None, model=None, **options):
    """A run that has taken no step, to be asked about draws that are known."""
    model = Means() if model is None else model
    options = {"lr": 0.05, "num_data": NUM_DATA, "seed": 0, **options}
    sampler = sampler_type(model.parameters(), **options)
    schedule = Constant(100) if schedule is None else schedule
    return make_run(model, half_square, data, sampler, schedule)


def matrix(draws, name="first") -> Tensor:
    return torch.stack([draw.tensors()[name] for draw in draws]).double()


def batch_variance(targets: Tensor, batch_size: int) -> Tensor:
    """Of the gradient of each weight of `first`, the weight minus the batch's mean target."""
    means = torch.stack([batch.mean(0) for batch in targets.double().split(batch_size)])
    return means.var(0)[:SIZE]


def squared_gradient(report, temperature, lr, num_data) -> float:
    """The mean of g^2 that the target of a temperature was made from."""
    return (report.temperature.target - temperature) * 2 / (lr * num_data)


@pytest.mark.parametrize("cycles", [[0] * 12, [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]])
def test_exact_draws_of_a_posterior_far_from_0_have_its_temperature(cycles):
    """40 batches, of which each draw sees 32. Of 4 intervals of 99% none may miss: 4% by chance."""
    targets = targets_around(20.0, 80)
    draws = posterior_draws(targets, ticks_of(cycles), temperature=2.0)
    order = torch.Generator().manual_seed(1)
    data = DataLoader(TensorDataset(torch.zeros(80, 1), targets), 2, shuffle=True, generator=order)
    run = run_of(data, num_data=80, temperature=2.0, lr=1e-4)
    for report in reports(run.stepper.model, list(draws), run).values():
        found: Any = report.temperature
        assert found.low < 2.0 < found.high
        # A draw's own is 2 * chi-square of 200 weights and the origin's error; counted from 0 the
        # interval would be some 30 wide.
        assert found.high - found.low < 1.2
        assert found.low < found.target < found.high


@pytest.mark.parametrize(
    ("cycles", "sides"),
    [
        ([0, 0, 0], [0, 0, 1]),
        ([0, 1, 1], [0, 1, 1]),
        ([0, 1, 2], [0, 1, 0]),
        ([5, 5, 5], [0, 0, 1]),
    ],
)
def test_origin_is_the_mean_of_other_cycles_or_of_the_other_half_of_one(cycles, sides):
    targets = targets_around(5.0)
    draws = posterior_draws(targets, ticks_of(cycles))
    run = run_of(in_order(targets, 10))
    found: Any = reports(run.stepper.model, list(draws), run)["first"].temperature
    weights, centre = matrix(draws), targets.double().mean(0)[:SIZE]
    products = []
    for i, side in enumerate(sides):
        origin = weights[[other != side for other in sides]].mean(0)
        products.append(((weights[i] - origin) * (weights[i] - centre)).mean().item())
    assert found.value == pytest.approx(NUM_DATA * np.mean(products), rel=1e-4)
    error = NUM_DATA * np.std(products, ddof=1) / 3**0.5
    assert found.high - found.value == pytest.approx(error * stats.t.ppf(0.995, 2), rel=1e-3)


def test_cycles_of_different_chains_are_different():
    targets = targets_around(5.0)
    one = posterior_draws(targets, ticks_of([0, 0]))
    both = MemoryDraws()
    for number, draw in enumerate(one):
        both.append(draw.tensors(), step=0, chain_id=number)
        both.append(draw.tensors(), step=1, chain_id=number)
    run = run_of(in_order(targets, 10))
    apart: Any = reports(run.stepper.model, list(both), run)["first"].temperature
    alone: Any = reports(run.stepper.model, list(one), run)["first"].temperature
    assert apart.value == pytest.approx(alone.value, rel=1e-4)  # from the other run's only


def test_the_gradient_of_a_short_epoch_is_exact():
    """32 batches are all of it: no variance is taken out of the square."""
    targets = targets_around(5.0, 64)
    draws = posterior_draws(targets, ticks_of([0, 0, 0]))
    run = run_of(in_order(targets, 2), num_data=64, lr=0.5)
    report = reports(run.stepper.model, list(draws), run)["first"]
    exact = (matrix(draws) - targets.double().mean(0)[:SIZE]).square().mean().item()
    assert squared_gradient(report, 1.0, 0.5, 64) == pytest.approx(exact, rel=1e-4)
    variance = batch_variance(targets, 2).mean().item()
    assert report.noise.minibatch == pytest.approx(0.5**2 * variance, rel=1e-4)


class Fresh:
    """An epoch of 40 batches of 2, each drawn from the population by itself."""

    def __init__(self, targets: Tensor) -> None:
        self.targets, self.generator = targets, torch.Generator().manual_seed(2)

    def __iter__(self):
        for _ in range(40):
            chosen = torch.randint(len(self.targets), (2,), generator=self.generator)
            yield torch.zeros(2, 1), self.targets[chosen]


def squares_of_a_long_epoch(data, targets):
    """The squared gradient as measured at 12 draws, the exact one, and SIGMAS standard errors."""
    draws = posterior_draws(targets, ticks_of([0] * 12))
    run = run_of(data, num_data=80, lr=0.5)
    report = reports(run.stepper.model, list(draws), run)["first"]
    exact = (matrix(draws) - targets.double().mean(0)[:SIZE]).square().mean().item()
    excess = 1 / 2 / 32  # variance of the mean of 32 batches of 2: (g + e)^2 - excess
    error = ((4 * exact * excess + 2 * excess**2) / (12 * SIZE)) ** 0.5
    return squared_gradient(report, 1.0, 0.5, 80), exact, SIGMAS * error


def test_the_excess_of_32_batches_of_a_long_epoch_is_removed_from_the_square():
    targets = targets_around(5.0, 80)
    found, exact, error = squares_of_a_long_epoch(Fresh(targets), targets)
    assert found == pytest.approx(exact, abs=error)
    assert error < exact / 3


def test_batches_of_an_epoch_are_drawn_without_replacement():
    targets = targets_around(5.0, 80)
    order = torch.Generator().manual_seed(1)
    dataset = TensorDataset(torch.zeros(80, 1), targets)
    data = DataLoader(dataset, 2, shuffle=True, generator=order)
    found, exact, error = squares_of_a_long_epoch(data, targets)
    assert found == pytest.approx(exact, abs=error)


def test_priors_enter_the_gradient():
    targets = targets_around(5.0)
    draws = posterior_draws(targets, ticks_of([0, 0]))
    first, second = matrix(draws)
    prior = torch.distributions.Normal(1.0, 0.5)
    cases: list[tuple[dict[str, Any], Callable[[Tensor], Tensor]]] = [
        ({"weight_decay": 0.3}, lambda weights: 0.3 * weights),
        ({"prior": prior}, lambda weights: (weights - 1.0) / 0.25 / NUM_DATA),
    ]
    for options, drift in cases:
        run = run_of(in_order(targets, 10), **options)
        found: Any = reports(run.stepper.model, list(draws), run)["first"].temperature
        centre = targets.double().mean(0)[:SIZE]
        products = [
            ((one - other) * (one - centre + drift(one))).mean().item()
            for one, other in ((first, second), (second, first))
        ]
        assert found.value == pytest.approx(NUM_DATA * np.mean(products), rel=1e-4)


def test_noise_of_a_cyclical_schedule_is_that_of_its_sampling_steps():
    targets = targets_around(5.0)
    schedule = Cyclical(40, cycles=2, exploration=0.4, draws_per_cycle=3)
    ticks = [schedule(step) for step in range(40) if schedule(step).collect]
    draws = posterior_draws(targets, ticks)
    run = run_of(in_order(targets, 10), schedule=schedule, lr=0.2, temperature=0.5)
    report = reports(run.stepper.model, list(draws), run)["first"]
    lrs = 0.1 * (np.cos(np.pi * np.arange(8, 20) / 20) + 1)  # of each cycle's last 12 steps
    assert report.noise.injected == pytest.approx(2 * lrs.mean() * 0.5 / NUM_DATA)
    variance = batch_variance(targets, 10).mean().item()
    assert report.noise.minibatch == pytest.approx((lrs**2).mean() * variance, rel=1e-4)
    # The target is that of the steps whose draws were kept: the 4th, 8th and 12th.
    exact = (matrix(draws) - targets.double().mean(0)[:SIZE]).square().mean().item()
    lr = lrs[[3, 7, 11]].mean()
    assert squared_gradient(report, 0.5, lr, NUM_DATA) == pytest.approx(exact, rel=1e-4)


def test_a_schedule_scales_lr_and_temperature():
    targets = targets_around(5.0)
    draws = posterior_draws(targets, ticks_of([0, 0]))
    schedule = Constant(10, lr_scale=0.5, temperature_scale=0.25)
    run = run_of(in_order(targets, 10), schedule=schedule, temperature=2.0)
    report = reports(run.stepper.model, list(draws), run)["first"]
    assert report.noise.injected == pytest.approx(2 * 0.025 * 0.5 / NUM_DATA)
    exact = (matrix(draws) - targets.double().mean(0)[:SIZE]).square().mean().item()
    assert squared_gradient(report, 0.5, 0.025, NUM_DATA) == pytest.approx(exact, rel=1e-3)


def test_minibatch_noise_depends_on_batches_per_step():
    targets = targets_around(5.0)
    draws = list(posterior_draws(targets, ticks_of([0, 0])))
    variance = 0.05**2 * batch_variance(targets, 10).mean().item()

    def minibatch(batches_per_step: float, model: nn.Module | None = None) -> float:
        run = run_of(in_order(targets, 10), model=model)
        run.stepper.batches_per_step = batches_per_step
        found = reports(Means(), draws, run)
        assert {name: report.size for name, report in found.items()} == {
            "first": SIZE,
            "second": SIZE,
        }
        return found["first"].noise.minibatch

    assert minibatch(1) == pytest.approx(variance, rel=1e-4)
    assert minibatch(3) == pytest.approx(variance / 3, rel=1e-4)
    assert minibatch(1, stack(Means, chains=5)) == pytest.approx(variance, rel=1e-4)
    dealt = stack(Means, chains=5, separate_batches=True)
    assert minibatch(1 / 5, dealt) == pytest.approx(5 * variance, rel=1e-4)


@pytest.mark.parametrize(
    ("accumulate", "replicas", "chains", "expected"),
    [(1, 1, 1, 1), (3, 1, 1, 3), (1, 2, 1, 2), (3, 2, 1, 6), (1, 1, 5, 0.2), (2, 1, 5, 0.4)],
)
def test_batches_per_step_of_a_chain(monkeypatch, accumulate, replicas, chains, expected):
    monkeypatch.setattr("csgmcmc.loop.chain.share_gradients", lambda model, _: model)  # it is alone
    model = stack(Means, chains=chains, separate_batches=True) if chains > 1 else Means()
    sampler = SGLD(model.parameters(), 0.1, num_data=NUM_DATA)
    chain = Chain(
        *(model, half_square, make_loader(10), sampler, Constant(9)),
        accumulate=accumulate,
        layout=ProcessLayout(replicas=replicas),
    )
    assert chain.stepper.batches_per_step == pytest.approx(expected)


@pytest.mark.parametrize("stacked", [False, True])
def test_a_preconditioner_enters_noise_and_target(stacked):
    targets = targets_around(5.0) * torch.linspace(0.5, 2.0, 2 * SIZE)  # of unequal variances
    draws = posterior_draws(targets, ticks_of([0, 0]))
    model = stack(Means, chains=2) if stacked else Means()
    run = run_of(in_order(targets, 10), AdamSGHMC, model=model, lr=0.01, betas=(0.0, 0.99))
    gain = torch.linspace(0.5, 4.0, SIZE, dtype=torch.float64)
    for param in model.parameters():
        other = torch.stack([0.5 * gain, 1.5 * gain]) if stacked else gain  # whose mean is `gain`
        run.stepper.sampler.state[param] = {"scale": other.sqrt().float()}
    report = reports(Means(), list(draws), run)["first"]
    variance = (gain**2 * batch_variance(targets, 10)).mean().item()
    assert report.noise.minibatch == pytest.approx(0.01**2 * variance, rel=1e-4)
    injected = 2 * 0.01 / NUM_DATA * gain.mean().item()
    assert report.noise.injected == pytest.approx(injected, rel=1e-4)
    squares = (matrix(draws) - targets.double().mean(0)[:SIZE]).square()
    exact = (gain * squares).mean().item()
    assert squared_gradient(report, 1.0, 0.01, NUM_DATA) == pytest.approx(exact, rel=1e-3)


def test_preconditioner_without_steps_is_rejected():
    targets = targets_around(5.0)
    run = run_of(in_order(targets, 10), AdamSGHMC)
    with pytest.raises(ValueError, match="the sampler has taken no step: its preconditioner"):
        reports(Means(), list(posterior_draws(targets, ticks_of([0, 0]))), run)


def test_noise_corrected_for_gradient_variance_counts_as_injected():
    targets = targets_around(5.0)
    draws = list(posterior_draws(targets, ticks_of([0, 0])))
    options = {"momentum": 0.8, "gradient_variance": 12 / NUM_DATA, "temperature": 2.0}
    run = run_of(in_order(targets, 10), SGHMC, **options)
    report = reports(Means(), draws, run)["first"]
    assert report.noise.injected == pytest.approx(2 * 0.2 * 0.05 * 2.0 / NUM_DATA)
    assert run.stepper.sampler.param_groups[0]["gradient_variance"] > 0  # which is not changed
    exact = (matrix(draws) - targets.double().mean(0)[:SIZE]).square().mean().item()
    found = squared_gradient(report, 2.0, 0.05, NUM_DATA) / (1 + 0.8) ** -1
    assert found == pytest.approx(exact, rel=1e-3)


def test_one_full_batch_has_no_minibatch_noise_but_a_temperature():
    targets = targets_around(5.0)
    run = run_of(in_order(targets, NUM_DATA))
    report = reports(Means(), list(posterior_draws(targets, ticks_of([0] * 12))), run)
    assert report["first"].noise.minibatch == 0
    found: Any = report["first"].temperature
    assert found.low < 1.0 < found.high


def test_one_draw_has_no_temperature():
    targets = targets_around(5.0)
    run = run_of(in_order(targets, 10))
    report = reports(Means(), list(posterior_draws(targets, ticks_of([0]))), run)["first"]
    assert report.temperature is None
    variance = batch_variance(targets, 10).mean().item()
    assert report.noise.minibatch == pytest.approx(0.05**2 * variance, rel=1e-4)


def test_only_parameters_with_lr_and_temperature_are_reported():
    targets = targets_around(5.0)
    draws = list(posterior_draws(targets, ticks_of([0, 0])))

    def names(first: dict, second: dict, frozen: bool = False):
        model = Means()
        model.first.requires_grad_(not frozen)
        groups = [{"params": [model.first], **first}, {"params": [model.second], **second}]
        sampler = SGLD(groups, 0.1, num_data=NUM_DATA)
        data = in_order(targets, 10)
        chain = Chain(model, half_square, data, sampler, Constant(9), progress=False)
        return list(reports(Means(), draws, chain))

    assert names({}, {}) == ["first", "second"]
    assert names({}, {}, frozen=True) == ["second"]
    assert names({"lr": 0.0}, {}) == ["second"]
    assert names({}, {"temperature": 0.0}) == ["first"]


def test_a_sampler_that_does_not_declare_its_noise_is_rejected(monkeypatch):
    targets = targets_around(5.0)
    monkeypatch.setattr(SGLD, "injected_variance", lambda *_: None)
    with pytest.raises(ValueError, match="SGLD does not declare its injected_variance"):
        draws = list(posterior_draws(targets, ticks_of([0, 0])))
        reports(Means(), draws, run_of(in_order(targets, 10)))


def test_a_run_without_sampled_parameters_is_rejected():
    targets = targets_around(5.0)
    model = Means()
    groups = [
        {"params": [model.first], "lr": 0.0},
        {"params": [model.second], "temperature": 0.0},
    ]
    sampler = SGLD(groups, 0.1, num_data=NUM_DATA)
    data = in_order(targets, 10)
    chain = Chain(model, half_square, data, sampler, Constant(9), progress=False)
    with pytest.raises(ValueError, match="no parameter"):
        reports(model, list(posterior_draws(targets, ticks_of([0, 0]))), chain)


def test_at_most_100_draws_are_measured_evenly_spaced():
    targets = targets_around(5.0)
    draws = posterior_draws(targets, ticks_of([0] * 298))
    run = run_of(in_order(targets, NUM_DATA), schedule=Constant(400))
    seen = []

    def loss(outputs, wanted):
        seen.append(outputs[0, 0].item())
        return half_square(outputs, wanted)

    run.loss = loss
    reports(Means(), list(draws), run)
    assert seen == matrix(draws)[::3, 0].tolist()


class Network(nn.Module):
    """Gradients differ between training and evaluation, in two places."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.BatchNorm1d(3), nn.BatchNorm1d(3)
        self.drop = nn.Dropout(0.5)
        self.last = nn.Linear(3, 2)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.last(self.drop(self.second(self.first(inputs).exp())))


def network_data(batches=4):
    generator = torch.Generator().manual_seed(0)
    return [
        (2 * torch.randn(6, 3, generator=generator), torch.randn(6, 2, generator=generator))
        for _ in range(batches)
    ]


@pytest.mark.parametrize("asleep", [(), ("drop",), ("drop", "first"), ("drop", "second")])
def test_gradients_use_the_training_modes_of_the_chain(asleep):
    torch.manual_seed(0)
    model, data = Network(), network_data()
    for name in asleep:
        getattr(model, name).eval()
    draws = MemoryDraws()
    for tick in ticks_of([0, 0, 0]):
        draws.append(randomise(Network(), seed=tick.step), step=tick.step, cycle=tick.cycle)
    run = run_of(data, model=model, lr=1.0)
    noise = {}
    for draw in draws:
        copied = copy.deepcopy(model)
        torch.manual_seed(1)
        for batch in data:
            draw.load_into(copied)
            loss = half_square(copied(batch[0]), batch[1])
            gradients = torch.autograd.grad(loss, list(copied.parameters()))
            for (name, _), gradient in zip(copied.named_parameters(), gradients, strict=True):
                noise.setdefault((name, draw.step), []).append(gradient.double())
    torch.manual_seed(1)
    found = reports(randomise(Network(), seed=9).eval(), list(draws), run)
    for name, report in found.items():
        exact = [torch.stack(noise[name, step]).var(0).mean().item() for step in range(3)]
        if "drop" in asleep:
            assert report.noise.minibatch == pytest.approx(np.mean(exact), rel=1e-4), name
    if not asleep:  # dropout is noise of its own: that of the last layer grows
        model.drop.eval()
        calm = reports(Network(), list(draws), run)
        for name in ("last.weight", "second.weight", "second.bias"):
            assert found[name].noise.minibatch > 1.2 * calm[name].noise.minibatch


def test_model_in_evaluation_mode_is_measured_in_training_mode():
    model, data = Network(), network_data()
    model.drop = nn.Dropout(0.0)
    draws = MemoryDraws()
    for tick in ticks_of([0, 0]):
        draws.append(randomise(Network(), seed=tick.step), step=tick.step, cycle=tick.cycle)
    run = run_of(data, model=model)
    awake = reports(model, list(draws), run)
    model.eval()
    assert reports(model, list(draws), run) == awake
    assert not any(module.training for module in model.modules())


class Careless:
    """Data whose transforms draw from every global generator, and from one of their own."""

    def __init__(self) -> None:
        self.own = np.random.default_rng(0)

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        scale = random.random() + np.random.rand() + self.own.random()  # noqa: NPY002, S311
        return scale * torch.randn(3), torch.ones(2)


def test_measuring_changes_no_random_state():
    data = Careless()
    order = torch.Generator().manual_seed(0)
    loader = DataLoader(data, 4, shuffle=True, generator=order)  # pyright: ignore[reportArgumentType]
    model = Network()
    sampler = SGLD(model.parameters(), 0.1, num_data=12, seed=0)
    schedule = Constant(10, draws=3)
    chain = Chain(
        model, half_square, loader, sampler, schedule, generators=[data.own], progress=False
    )
    draws = list(chain.run())

    def random_states():
        key: Any = np.random.get_state()  # noqa: NPY002
        own = [random.getstate(), str(key), data.own.bit_generator.state]
        return [torch.get_rng_state().tolist(), order.get_state().tolist(), *own]

    other = randomise(Network(), seed=7).eval()  # not the last draw's weights
    other.last.requires_grad_(False)
    before = random_states(), _everything(other), _everything(model), sampler.noise.state_dict()
    first = reports(other, draws, chain)
    after = random_states(), _everything(other), _everything(model), sampler.noise.state_dict()
    assert str(before) == str(after)
    assert set(first) == {name for name, _ in model.named_parameters()}
    again = reports(other, draws, chain)
    assert again == first  # from the same random state


def _everything(model: nn.Module) -> list:
    """Tensors, modes, and what needs a gradient or has one."""
    tensors = {name: tensor.tolist() for name, tensor in model.state_dict().items()}
    modes = [module.training for module in model.modules()]
    gradients = [(param.requires_grad, str(param.grad)) for param in model.parameters()]
    return [tensors, modes, gradients]


def test_random_states_are_restored_where_measuring_fails():
    targets = targets_around(5.0)
    draws = list(posterior_draws(targets, ticks_of([0, 0])))
    run = run_of(in_order(targets, 10))

    def loss(outputs, wanted):
        torch.rand(1)
        raise ZeroDivisionError

    run.loss = loss
    state = torch.get_rng_state()
    with pytest.raises(ZeroDivisionError):
        reports(Means(), draws, run)
    assert torch.equal(state, torch.get_rng_state())


def test_memory_does_not_grow_with_batches():
    """However many batches there are, no more tensors of a parameter's size are alive."""
    targets = targets_around(5.0)
    draws = list(posterior_draws(targets, ticks_of([0, 0])))

    run = run_of(in_order(targets, 5))
    alive = []

    def loss(outputs, wanted):
        held = [one for one in gc.get_objects() if type(one) in (Tensor, nn.Parameter)]
        alive.append(sum(one.shape == (SIZE,) for one in held))
        return half_square(outputs, wanted)

    run.loss = loss
    gc.collect()
    reports(Means(), draws, run)
    assert len(alive) == 20
    assert max(alive[12:]) <= alive[11]  # of the second draw, from its second batch on


@pytest.mark.parametrize(
    ("temperature", "schedule", "cold"),
    [
        (1.0, Constant(9), False),
        (0.0, Constant(9), True),
        (1.0, Constant(9, temperature_scale=0.0), True),
        (1.0, Cyclical(20, cycles=2, exploration=0.5, keep=Keep(every=1)), False),
        (0.0, Cyclical(20, 2, 0.5, keep=Keep(every=1), exploration_temperature=1.0), True),
    ],
)
def test_sampling_temperature_is_0_without_injected_noise(temperature, schedule, cold):
    run = run_of(in_order(targets_around(0.0), 10), schedule=schedule, temperature=temperature)
    assert (Run(run.stepper, None, None).temperature == 0) is cold
