"""Noise and temperature of each parameter tensor of a run.

The configurational temperature compares weights with gradients at the draws,

    T = N * E[(theta - origin) . g] / d,    g the gradient of U / N,

and is judged against that of the discrete update; see `csgmcmc.diagnostics.temperature`.
"""

import copy
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from csgmcmc.diagnostics import effective_noise, kinetic_temperature, temperature_of_products
from csgmcmc.diagnostics.temperature import EffectiveNoise, Temperature
from csgmcmc.draws import Draw
from csgmcmc.loaders import Loss, batch_loss, to_device
from csgmcmc.loop import Stepper
from csgmcmc.loop.watch import evenly_spaced, sampling_ticks
from csgmcmc.posterior import Posterior
from csgmcmc.randomness import generators_of, preserved_random_state
from csgmcmc.samplers import SGHMC, Sampler
from csgmcmc.samplers.base import Group
from csgmcmc.samplers.prior import prior_gradient
from csgmcmc.schedules.base import options_at
from csgmcmc.stacked import Stack

MAX_DRAWS = 12  # at which gradients are taken
MAX_BATCHES = 32  # for the gradient at each of them

Tensors = dict[str, Tensor]
Groups = dict[str, tuple[Group, Tensor]]
"""The group and the sampler's tensor of each parameter, by its name in the single model."""


@dataclass(frozen=True)
class ParameterReport:
    """One parameter tensor of a model.

    Attributes:
        size: number of weights.
        noise: injected noise and minibatch noise of a step while sampling.
        temperature: configurational temperature; None with fewer than two draws.
    """

    size: int
    noise: EffectiveNoise
    temperature: Temperature | None


class _Measured(NamedTuple):
    """Means over the weights of one parameter at one draw; g is the gradient of U / N."""

    product: float  # (weight - origin) * g, the origin being the mean of other draws
    squared_gradient: float  # gain * g^2
    variance: float  # gain^2 * variance of g over the batches of a step


def kinetic_temperatures(model: nn.Module, sampler: SGHMC) -> dict[str, Temperature]:
    """Temperature of the current velocities of each parameter tensor.

    For a callback while the run samples. The target is exact for small steps and an lr that
    changes little over 1 / (1 - momentum) steps.
    """
    if not isinstance(sampler, SGHMC):
        raise ValueError(f"velocities are those of SGHMC, got {type(sampler).__name__}")
    return {
        name: kinetic_temperature(
            sampler.state[param]["velocity"].cpu().numpy(), **_dynamics(group)
        )
        for name, (group, param) in _sampled(model, sampler).items()
        if "velocity" in sampler.state[param]
    }


def parameter_reports(
    posterior: Posterior, stepper: Stepper, loss: Loss, data: Iterable[Any]
) -> dict[str, ParameterReport]:
    """Noise and configurational temperature of each sampled parameter tensor, by its name.

    Measured with gradients of some batches of `data`, in training mode, at some of the draws. The
    model, the stepper and all random states are left unchanged.

    Args:
        posterior: the single network and the draws of the run.
        stepper: of the run; its model may be a `Stack`.
        loss: mean negative log-likelihood, called as `Chain` calls it.
        data: the batches that the run was trained on.
    """
    sampler, schedule = stepper.sampler, stepper.schedule
    if not isinstance(sampler, Sampler):
        raise ValueError(f"{type(sampler).__name__} injects no noise: it is not a sampler")
    draws = [posterior.draws[i] for i in evenly_spaced(len(posterior.draws), MAX_DRAWS)]
    with preserved_random_state([*stepper.generators, *generators_of(data)]):
        gradients = _Gradients(loss, data, posterior.members.autocast)
        measured = list(_measure(posterior.model, draws, stepper, sampler, gradients))
    sampling = sampling_ticks(schedule)
    chains = stepper.model.chains if isinstance(stepper.model, Stack) else 1
    reports: dict[str, ParameterReport] = {}
    for name, (group, param) in _sampled(stepper.model, sampler).items():
        products, squared, variances = np.transpose([one[name] for one in measured])
        temperature = None
        if len(draws) > 1:
            kept = [options_at(group, schedule(draw.step)) for draw in draws]
            means = {key: float(np.mean([at[key] for at in kept])) for key in ("lr", "temperature")}
            temperature = temperature_of_products(
                products,
                squared_gradient=max(float(np.mean(squared)), 0.0),
                **_dynamics({**group, **means}),
            )
        options = [options_at(group, tick) for tick in sampling]
        noise = _noise(sampler, param, options, float(np.mean(variances)))
        reports[name] = ParameterReport(param.numel() // chains, noise, temperature)
    return reports


def _measure(
    model: nn.Module, draws: list[Draw], stepper: Stepper, sampler: Sampler, gradients: "_Gradients"
) -> Iterator[dict[str, _Measured]]:
    """Measure at each draw, with different batches for each, so that errors are independent."""
    groups = _sampled(stepper.model, sampler)
    trained = copy.deepcopy(model).requires_grad_().train()
    inner = stepper.model.inner if isinstance(stepper.model, Stack) else stepper.model
    if inner.training:  # else it has not run, and all of it will be trained
        modes = {name: module.training for name, module in inner.named_modules()}
        for name, module in trained.named_modules():
            module.training = modes.get(name, True)
    params = {name: param for name, param in trained.named_parameters() if name in groups}
    if not params:
        raise ValueError("no parameter has both lr and temperature above 0")
    stacked = isinstance(stepper.model, Stack)
    gains = {name: _gain(sampler, *groups[name], stacked=stacked) for name in params}
    for draw, origin in zip(draws, _origins(draws, list(params)), strict=True):
        draw.load_into(trained)
        means, variances = gradients.at(trained, params)
        found: dict[str, _Measured] = {}
        for name, param in params.items():
            weight, gain, variance = param.detach(), gains[name], variances[name]
            at = options_at(groups[name][0], stepper.schedule(draw.step))
            prior = at["prior"]
            if prior is None:
                mean = means[name] + at["weight_decay"] * weight
            else:
                mean = means[name] + prior_gradient(prior, weight) / at["num_data"]
            # The square of a mean over batches contains some of their variance: it is removed.
            full = mean.square() - variance * gradients.error_of_the_mean
            found[name] = _Measured(
                product=_mean((weight - origin[name].to(weight)) * mean),
                squared_gradient=_mean(gain * full),
                variance=_mean(gain**2 * variance) / stepper.batches_per_step,
            )
        yield found


class _Gradients:
    """Gradients of the loss over batches of the data: all of a short epoch, else some."""

    def __init__(self, loss: Loss, data: Iterable[Any], autocast: torch.dtype | None) -> None:
        self._loss, self._autocast = loss, autocast
        self._batches = _endless(data)
        first = list(islice(iter(data), MAX_BATCHES + 1))
        if not first:
            raise ValueError("data gave no batches: it may be a generator that is exhausted")
        self._count = min(len(first), MAX_BATCHES)
        self.error_of_the_mean = 0.0
        """Variance of the mean over the batches, relative to one batch; 0 if they are all data."""
        if len(first) > MAX_BATCHES:
            self.error_of_the_mean = 1 / self._count
            # A loader draws the batches of an epoch without replacement, which reduces the error.
            replacement = getattr(getattr(data, "sampler", None), "replacement", False)
            if isinstance(data, DataLoader) and not replacement:
                self.error_of_the_mean -= 1 / len(data)

    def at(self, model: nn.Module, params: Mapping[str, Tensor]) -> tuple[Tensors, Tensors]:
        """Mean and variance over batches, at the weights that `model` has now."""
        means = {name: torch.zeros_like(param) for name, param in params.items()}
        squares = {name: torch.zeros_like(param) for name, param in params.items()}
        device = next(iter(params.values())).device
        autocast = self._autocast
        precision = torch.autocast(device.type, dtype=autocast) if autocast else nullcontext()
        for count, batch in enumerate(islice(self._batches, self._count), start=1):
            with precision:
                loss = batch_loss(self._loss, model, to_device(batch, device))
            gradients = torch.autograd.grad(loss, list(params.values()), materialize_grads=True)
            for name, gradient in zip(params, gradients, strict=True):
                offset = gradient - means[name]
                means[name] += offset / count
                squares[name] += offset * (gradient - means[name])
        return means, {name: square / max(self._count - 1, 1) for name, square in squares.items()}


def _endless(data: Iterable[Any]) -> Iterator[Any]:
    """The batches of epoch after epoch."""
    while True:
        empty = True
        for batch in data:
            empty = False
            yield batch
        if empty:
            raise ValueError("data gave no more batches: it may be a generator")


def _origins(draws: list[Draw], names: list[str]) -> Iterator[Tensors]:
    """The origin of the weights of each draw: the mean of the draws of other cycles.

    Any point that does not depend on the draw is valid; one near the draws makes the interval of
    the temperature narrow. Within a single cycle it is the mean of the other draws.
    """
    one_cycle = len({(draw.chain_id, draw.cycle) for draw in draws}) == 1
    total = _sum(draws, names)
    for draw in draws:
        cycle = (draw.chain_id, draw.cycle)
        same = [draw] if one_cycle else [o for o in draws if (o.chain_id, o.cycle) == cycle]
        near, others = _sum(same, names), max(len(draws) - len(same), 1)
        yield {name: (total[name] - near[name]) / others for name in names}


def _sum(draws: list[Draw], names: list[str]) -> Tensors:
    total: Tensors = {}
    for draw in draws:
        tensors = draw.tensors()
        for name in names:
            total[name] = tensors[name].float() + total.get(name, 0.0)
    return total


def _noise(
    sampler: Sampler, param: Tensor, options: list[Group], variance: float
) -> EffectiveNoise:
    """Mean noise of a step over the options of the sampling stages."""
    variances = [sampler.uncorrected_variance(at, param) for at in options]
    if any(variance is None for variance in variances):
        raise ValueError(f"{type(sampler).__name__} does not declare its injected_variance")
    injected = np.mean([_mean(variance) for variance in variances if variance is not None])
    squared_lr = np.mean([at["lr"] ** 2 for at in options])
    return effective_noise(injected, variance, float(squared_lr**0.5))


def _sampled(model: nn.Module, sampler: torch.optim.Optimizer) -> Groups:
    """Every parameter with lr and temperature above 0."""
    names = {id(param): name for name, param in model.named_parameters() if param.requires_grad}
    prefix = "inner." if isinstance(model, Stack) else ""
    return {
        names[id(param)].removeprefix(prefix): (group, param)
        for group in sampler.param_groups
        for param in group["params"]
        if id(param) in names and group["initial_lr"] > 0 and group["initial_temperature"] > 0
    }


def _gain(sampler: Sampler, group: Group, param: Tensor, *, stacked: bool) -> Tensor | float:
    """The sampler's preconditioner, averaged over the chains of a stack."""
    gain = sampler.gradient_gain(group, param)
    if not isinstance(gain, Tensor):
        return gain
    if not sampler.state[param]:
        raise ValueError("the sampler has taken no step: its preconditioner is not known")
    return gain.mean(0) if stacked else gain


def _dynamics(group: Group) -> dict[str, float]:
    """The options that the target of a temperature depends on."""
    return {name: group.get(name, 0.0) for name in ("lr", "num_data", "temperature", "momentum")}


def _mean(value: Tensor | float) -> float:
    return value.double().mean().item() if isinstance(value, Tensor) else value
