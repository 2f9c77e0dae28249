"""AdamSGHMC: Adam while it explores, SGHMC with a frozen preconditioner while it samples."""

import math
from itertools import cycle, islice
from typing import Any

import pytest
import torch
from torch import nn

from csgmcmc import SGHMC, AdamSGHMC, Chain, Constant, Cyclical, Keep, MemoryDraws, stack
from csgmcmc.errors import SamplingWarning
from csgmcmc.samplers.adam import NOISE
from tests.support import MODE, SIGMAS, make, same_bits, small_model, train

WARNING = "a preconditioner from a single gradient"


def explored(points: torch.Tensor, gradient: torch.Tensor, **options) -> AdamSGHMC:
    """A sampler at temperature 1 whose preconditioner has adapted to `gradient`."""
    chain = make(AdamSGHMC, [points], temperature=0.0, **options)
    start = points.clone()
    for _ in range(5):
        points.grad = gradient.expand_as(points).clone()
        chain.step()
    points.copy_(start)
    chain.param_groups[0]["temperature"] = 1.0
    return chain


def test_weights_with_other_gradients_have_other_exact_variances():
    """The preconditioner differs between the weights, and their distribution is the declared."""
    curvature, chains = torch.tensor([2.0, 0.5], dtype=torch.float64), 20_000
    options: Any = {"lr": 0.3, "num_data": 4.0, "betas": (0.7, 0.99), "damping": 0.1}
    points = MODE.repeat(chains, 1)
    rms = torch.tensor([0.7, 1.6], dtype=torch.float64)
    chain = explored(points, rms, **options)
    for _ in range(400):
        points.grad = (points - MODE) * curvature
        chain.step()
    for index in range(2):
        exact = SGHMC.stationary_variance(
            float(curvature[index]),
            lr=0.3 * (1 - 0.7) / (float(rms[index]) + 0.1),
            num_data=4.0,
            momentum=0.7,
        )
        found = float(points[:, index].var())
        assert abs(found / exact - 1) < SIGMAS * (2 / chains) ** 0.5
    gains = chain.gradient_gain(chain.param_groups[0], points)
    torch.testing.assert_close(gains[0], 0.3 / (rms + 0.1))


def test_the_preconditioner_is_frozen_while_sampling_and_adapts_anew_in_the_next_cycle():
    model, fresh = small_model(torch.float64), small_model(torch.float64)
    chain = make(AdamSGHMC, model.parameters(), temperature=0.0)
    first = next(model.parameters())
    train(model, chain, steps=5)
    gain = chain.gradient_gain({**chain.param_groups[0], "temperature": 1.0}, first)
    chain.param_groups[0]["temperature"] = 1.0
    train(model, chain, steps=3)
    torch.testing.assert_close(chain.gradient_gain(chain.param_groups[0], first), gain)
    assert chain.state[first].keys() == {"scale", "velocity"}
    chain.param_groups[0]["temperature"] = 0.0
    fresh.load_state_dict(model.state_dict())
    train(model, chain, steps=4)
    train(fresh, torch.optim.Adam(fresh.parameters(), lr=0.1), steps=4)
    assert same_bits(model, fresh)


@pytest.mark.parametrize(("temperature", "lr", "num_data"), [(1.0, 1e-3, 500), (0.1, 1e-2, 1e4)])
def test_the_default_damping_bounds_the_noise(temperature, lr, num_data):
    """Without gradients, velocities have a standard deviation of NOISE times that of Adam's."""
    points = torch.zeros(20_000, dtype=torch.float64)
    chain = explored(points, torch.zeros_like(points), lr=lr, num_data=num_data, eps=1e-30)
    chain.param_groups[0]["temperature"] = temperature
    points.grad, before = torch.zeros_like(points), points.clone()
    for _ in range(200):
        before.copy_(points)
        chain.step()
    expected = NOISE * lr * math.sqrt(0.1 / 1.9)
    assert float((points - before).std()) == pytest.approx(expected, rel=SIGMAS / 40_000**0.5)


def test_as_the_temperature_falls_the_preconditioner_becomes_adams():
    points = torch.zeros(3, dtype=torch.float64)
    rms = torch.tensor([1e-3, 1.0, 100.0], dtype=torch.float64)
    chain = explored(points, rms)
    group = {**chain.param_groups[0], "temperature": 1e-12}
    torch.testing.assert_close(chain.gradient_gain(group, points), 0.1 / (rms + 1e-8))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_weights_with_a_prior_and_without_gradient_are_stable(temperature):
    """As those of pixels that are always 0, whose squared gradients vanish."""
    weights = torch.ones(1000)
    chain = make(AdamSGHMC, [weights], lr=1e-3, weight_decay=0.1, temperature=0.0, num_data=1e6)
    for step in range(4000):
        weights.grad = torch.zeros_like(weights)
        chain.param_groups[0]["temperature"] = temperature if step >= 2000 else 0.0
        chain.step()
        assert weights.abs().max() < 1.01
    if temperature:  # the prior's precision is N * weight_decay
        assert float(weights.var()) == pytest.approx(1e-5, rel=0.3)


def test_a_chain_that_samples_from_its_first_step_is_warned():
    param = torch.zeros(3)
    param.grad = torch.tensor([1.0, 2.0, 3.0])
    chain = make(AdamSGHMC, [param], damping=1.0)
    with pytest.warns(SamplingWarning, match=WARNING):
        chain.step()
    gain = chain.gradient_gain(chain.param_groups[0], param)
    torch.testing.assert_close(gain, 0.1 / (param.grad + 1))
    chain.step()  # once is enough


# Fused


def contiguous_model() -> nn.Module:
    return small_model().to(memory_format=torch.contiguous_format)  # pyright: ignore[reportCallIssue]


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_the_fused_update_is_the_plain_one_to_rounding(weight_decay):
    ends = []
    for fused in (False, None, True):
        model = contiguous_model()
        options = {"fused": fused, "weight_decay": weight_decay, "damping": 0.1}
        chain = make(AdamSGHMC, model.parameters(), temperature=0.0, **options)
        train(model, chain, steps=5)
        chain.param_groups[0]["temperature"] = 1.0
        train(model, chain, steps=15, first=5)
        ends.append(model)
    plain, chosen, fused = ends
    assert same_bits(fused, chosen)
    assert not same_bits(fused, plain)  # it does serve: rounding differs
    for ours, theirs in zip(fused.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=2e-5)


def test_cold_steps_have_the_same_bits_with_any_number_of_threads():
    ends = []
    for threads in (1, 3):
        torch.set_num_threads(threads)
        param = torch.linspace(-1, 1, 100_003)
        chain = make(AdamSGHMC, [param], temperature=0.0)
        for _ in range(3):
            param.grad = param.sin()
            chain.step()
        ends.append(param)
    torch.set_num_threads(1)
    assert torch.equal(*ends)


def test_a_stacked_chain_moves_as_it_would_alone():
    def moved(model, **options):
        chain = make(AdamSGHMC, model.parameters(), **options)
        for step in range(8):
            chain.param_groups[0]["temperature"] = float(step % 4 > 1)
            for param in model.parameters():
                param.grad = param.detach().sin()
            chain.step()
        return model

    models = [nn.Linear(9, 8) for _ in range(3)]
    together = moved(stack(models), chain_id=4).chain_tensors()
    for index, model in enumerate(models):
        alone = moved(model, chain_id=4 + index).state_dict()
        assert all(torch.equal(together[index][name], alone[name]) for name in alone)


# A network that fits its data exactly


def interpolating(damping: float | None) -> tuple[float, float]:
    """The error of a network that has fitted its digits, and the mean of its draws' at T = 1."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    from sklearn.datasets import load_digits  # noqa: PLC0415

    images, labels = load_digits(return_X_y=True)
    inputs, targets = torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels)
    batches = [(inputs[i : i + 50], targets[i : i + 50]) for i in range(0, 300, 50)]
    model = nn.Sequential(nn.Linear(64, 50), nn.ReLU(), nn.Linear(50, 10))
    sampler = AdamSGHMC(model.parameters(), 3e-3, num_data=300, damping=damping, seed=0)
    schedule = Cyclical(1500, 1, exploration=0.6, keep=Keep(every=100))
    errors = []

    def error(model) -> float:
        return float((model(inputs[800:]).argmax(-1) != targets[800:]).float().mean())

    for step, (rows, classes) in enumerate(islice(cycle(batches), schedule.steps)):
        tick = schedule.apply(sampler, step)
        if tick.stage == "sample" and not errors:
            with torch.no_grad():
                fitted = nn.functional.cross_entropy(model(inputs[:300]), targets[:300])
            assert fitted < 0.01  # it does interpolate
            errors.append(error(model))
        sampler.zero_grad()
        nn.functional.cross_entropy(model(rows), classes).backward()
        sampler.step()
        if tick.collect:
            errors.append(error(model))
    return errors[0], sum(errors[1:]) / len(errors[1:])


def test_a_network_that_interpolates_survives_noise_at_temperature_1():
    before, after = interpolating(None)
    assert before < 0.15
    assert after < before + 0.02
    before, after = interpolating(1e-8)  # the eps of torch's own Adam
    assert after > 2 * before


# AdamW


def decay_as_prior(optimizer: torch.optim.AdamW) -> float:
    """The lines of docs/howto/adamw.md, for one parameter."""
    (group,), (state,) = optimizer.param_groups, optimizer.state.values()
    root = (state["exp_avg_sq"] / (1 - group["betas"][1] ** state["step"])).sqrt()
    return group["weight_decay"] * (root.mean().item() + group["eps"])


def test_what_the_decay_of_adamw_means_as_a_prior():
    """AdamW with noisy gradients stops at the mode under the prior."""
    curvature, noise = torch.tensor([0.5, 2.0]), 3.0
    weights = nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.AdamW([weights], lr=1e-2, weight_decay=0.2)
    mean = torch.zeros(2)
    for step in range(8000):
        weights.grad = curvature * (weights.detach() - 1) + noise * (-1) ** step
        optimizer.param_groups[0]["lr"] = 1e-2 if step < 4000 else 1e-3
        optimizer.step()
        mean += weights.detach() / 2000 * (step >= 6000)
    decay = decay_as_prior(optimizer)
    assert decay == pytest.approx(0.2 * noise, rel=0.1)
    torch.testing.assert_close(mean, curvature / (curvature + decay), rtol=0.02, atol=0)


def test_a_chain_uses_it():
    """A cold run of the sampler with that prior ends where AdamW does."""
    draws = MemoryDraws()
    model = nn.Linear(1, 1, bias=False)
    batches = [(torch.ones(4, 1), torch.tensor([[3.0], [-1.0], [2.0], [0.0]]))]
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.5)
    signs = [(batches[0][0], batches[0][1] + 2 * sign) for sign in (-1, 1)]

    def loss(outputs, targets):
        return (outputs - targets).square().mean() / 2

    for rows, targets in islice(cycle(signs), 4000):
        optimizer.zero_grad()
        loss(model(rows), targets).backward()
        optimizer.step()
    ended = model.weight.item()
    options: Any = {"weight_decay": decay_as_prior(optimizer), "temperature": 0.0}
    sampler = AdamSGHMC(model.parameters(), 0.01, num_data=8, **options)
    Chain(model, loss, signs, sampler, Constant(2000, draws=1), draws, progress=False).run()
    assert model.weight.item() == pytest.approx(ended, abs=0.03)
